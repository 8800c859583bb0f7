//! The folders of this crate depend on each other in one direction only.
#![allow(clippy::unwrap_used, reason = "a test stops at the first error")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Folder of a module, relative to `src`. The files `tiles.rs` and `tiles/tile.rs` both belong to the folder `tiles`.
fn folder(module: &[&str], folders: &BTreeSet<String>) -> String {
    module.first().filter(|name| folders.contains(**name)).map_or(String::new(), |name| name.to_string())
}

/// Names of the modules that the lines of a file refer to, as paths from the crate root.
fn uses(text: &str, module: &[&str]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        for (at, _) in line.match_indices("crate::") {
            found.extend(paths(&line[at + "crate::".len()..]));
        }
        if let Some(path) = line.split("use super::").nth(1) {
            let parent: Vec<String> = module[..module.len() - 1].iter().map(|name| name.to_string()).collect();
            found.extend(paths(path).into_iter().map(|path| [parent.clone(), path].concat()));
        }
    }
    found
}

/// `a::b` gives one path, `{a, b::c}` gives one path for each entry.
fn paths(text: &str) -> Vec<Vec<String>> {
    let entries = match text.strip_prefix('{') {
        Some(list) => list.trim_end_matches([';', '}']).split(", ").collect(),
        None => vec![text],
    };
    let end = |entry: &str| entry.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(entry.len());
    entries.into_iter().map(|entry| entry[..end(entry)].split("::").map(str::to_string).collect()).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn no_module_cycle_spans_two_folders() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let all = files(&src);
    let inside = all.iter().filter_map(|path| path.strip_prefix(&src).unwrap().parent());
    let folders: BTreeSet<String> =
        inside.map(|path| path.display().to_string()).filter(|name| !name.is_empty()).collect();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in &all {
        let relative = path.strip_prefix(&src).unwrap().with_extension("");
        let module: Vec<&str> = relative.iter().map(|name| name.to_str().unwrap()).collect();
        let from = folder(&module, &folders);
        for path in uses(&fs::read_to_string(path).unwrap(), &module) {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let to = folder(&path, &folders);
            if to != from {
                edges.entry(from.clone()).or_default().insert(to);
            }
        }
    }
    assert!(edges[""].contains("tiles") && edges["tiles"].contains("simd"), "the parser finds the uses: {edges:?}");
    // Remove folders without outgoing edges until none is left. A rest is a cycle.
    let mut rest = folders.clone();
    rest.insert(String::new());
    while let Some(leaf) = rest.iter().find(|name| edges.get(*name).is_none_or(|to| to.is_disjoint(&rest))).cloned() {
        rest.remove(&leaf);
    }
    assert!(rest.is_empty(), "these folders form a cycle: {rest:?}, edges {edges:?}");
}
