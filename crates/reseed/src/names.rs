//! Names of the values of an enum, for command lines, scripts and journals.

/// The name of a value, which must be in the table.
pub fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| name)
}

/// The value with this name. The error lists all names: `a, b or c`.
pub fn named<T: Copy>(names: &[(&'static str, T)], name: &str) -> Result<T, String> {
    let found = names.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    found.ok_or_else(|| match names {
        [first @ .., (last, _)] if !first.is_empty() => {
            let first: Vec<&str> = first.iter().map(|(name, _)| *name).collect();
            format!("{} or {last}", first.join(", "))
        }
        names => names.iter().map(|(name, _)| *name).collect(),
    })
}
