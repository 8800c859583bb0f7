//! Crates depend only on those below them, and modules form no cycles across folders.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Each crate of the workspace and the crates that it may depend on, build scripts included.
const ALLOWED: &[(&str, &[&str])] = &[
    ("crc-fast", &[]),
    ("reseed", &["reseed-cpu", "reseed-cuda", "reseed-media", "reseed-model", "reseed-ops"]),
    ("reseed-check", &["reseed-cpu", "reseed-cuda", "reseed-media", "reseed-model", "reseed-ops", "reseed-testing"]),
    ("reseed-args", &["reseed", "reseed-terminal"]),
    ("reseed-cli", &["reseed", "reseed-args", "reseed-cluster", "reseed-server", "reseed-terminal"]),
    ("reseed-cluster", &["reseed"]),
    ("reseed-cpu", &["reseed-ops"]),
    ("reseed-cuda", &["reseed-ops"]),
    ("reseed-media", &[]),
    ("reseed-model", &["reseed-ops"]),
    ("reseed-ops", &[]),
    // The wheel carries the command.
    ("reseed-python", &["reseed", "reseed-cli"]),
    ("reseed-server", &["reseed"]),
    ("reseed-vapoursynth", &["reseed"]),
    ("reseed-terminal", &["reseed"]),
    ("reseed-testing", &["reseed", "reseed-cpu", "reseed-media", "reseed-model", "reseed-ops"]),
];

/// Tests may also use the reference device, the test support and the crates whose files and types they check.
const TESTS: &[&str] = &["reseed-cpu", "reseed-media", "reseed-model", "reseed-ops", "reseed-testing"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn crates_depend_only_on_lower_layers() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let names: Vec<&str> = packages.iter().map(|package| package["name"].as_str().unwrap()).collect();
    let known = ["reseed-cli", "reseed-media", "reseed-model", "reseed-ops", "reseed-python"];
    assert!(known.iter().all(|name| names.contains(name)));
    for (package, name) in packages.iter().zip(&names) {
        let allowed = ALLOWED.iter().find(|(known, _)| known == name);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("{name} is new: list its allowed dependencies in ALLOWED"));
        let dependencies = package["dependencies"].as_array().unwrap();
        for dependency in dependencies {
            let dependency_name = dependency["name"].as_str().unwrap();
            let in_tests = dependency["kind"] == "dev" && TESTS.contains(&dependency_name);
            let external = !names.contains(&dependency_name);
            let allowed = external || allowed.contains(&dependency_name) || in_tests;
            assert!(allowed, "{name} must not depend on {dependency_name}");
        }
    }
}

/// Every line of code in a folder tree, with its location. Comments and unit tests are left out.
fn code(folder: &Path) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            lines.extend(code(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).unwrap();
            let numbered = text.lines().enumerate().take_while(|(_, line)| !line.starts_with("#[cfg(test)]"));
            let kept = numbered.filter(|(_, line)| !line.trim_start().starts_with("//"));
            lines.extend(kept.map(|(i, line)| (format!("{}:{}", path.display(), i + 1), line.to_string())));
        }
    }
    lines
}

/// Asserts that the code of a crate contains none of these words.
fn assert_free_of(krate: &str, words: &[&str]) {
    let lines = code(&root().join("crates").join(krate).join("src"));
    assert!(lines.len() > 100, "{krate} has too few lines of source");
    for (place, line) in lines {
        let line = line.to_lowercase();
        assert!(!words.iter().any(|word| line.contains(word)), "{place}: {krate} must not contain {words:?}: {line}");
    }
}

#[test]
fn the_model_crate_names_no_device() {
    assert_free_of("reseed-model", &["cuda", "cpuops"]);
}

#[test]
fn the_media_crate_names_no_tensors() {
    assert_free_of("reseed-media", &["tensor", "reseed_ops", "reseed_model", "reseed_cuda", "reseed::"]);
}

#[test]
fn the_library_neither_parses_arguments_nor_prints() {
    assert_free_of(
        "reseed",
        &["clap", "println!", "print!", "--resume", "--overwrite", "--max-vram", "--model", "--tile"],
    );
}

/// The modules of a crate by name, each with the modules that its `use` lines name.
#[derive(Default)]
struct Modules(BTreeMap<String, BTreeSet<String>>);

impl Modules {
    fn of_crate(source: &Path) -> Modules {
        let mut texts = BTreeMap::new();
        read_modules(source, "", &mut texts);
        let names: BTreeSet<String> = texts.keys().cloned().collect();
        let edges = |(name, text): (&String, &String)| {
            let uses = uses(text).into_iter().filter_map(|path| resolve(name, &path, &names));
            (name.clone(), uses.filter(|other| other != name).collect())
        };
        Modules(texts.iter().map(edges).collect())
    }

    /// All modules that a module uses, directly or not.
    fn reached(&self, from: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&str> = self.0[from].iter().map(String::as_str).collect();
        while let Some(name) = open.pop() {
            if reached.insert(name) {
                open.extend(self.0[name].iter().map(String::as_str));
            }
        }
        reached
    }

    /// The top-level folder of a module: `a` for `a` and for `a::b` where `a` has submodules, else none.
    fn folder<'n>(&self, name: &'n str) -> &'n str {
        let top = name.split("::").next().unwrap_or(name);
        let has_children = self.0.keys().any(|other| other.starts_with(&format!("{top}::")));
        if has_children { top } else { "" }
    }

    /// Groups of modules that reach each other and span several folders.
    fn cycles(&self) -> Vec<Vec<&str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.0.keys().map(|name| (name.as_str(), self.reached(name))).collect();
        let cycle = |name: &&str| -> Vec<&str> {
            reached[name].iter().filter(|other| reached[*other].contains(name)).copied().collect()
        };
        let cycles: BTreeSet<Vec<&str>> = reached.keys().map(cycle).collect();
        let spans = |cycle: &Vec<&str>| cycle.iter().map(|name| self.folder(name)).collect::<BTreeSet<_>>().len() > 1;
        cycles.into_iter().filter(spans).collect()
    }
}

/// The source of every module in a folder tree, without unit tests. Crate roots re-export everything and are left out.
fn read_modules(folder: &Path, parent: &str, texts: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let name = if parent.is_empty() { stem.to_owned() } else { format!("{parent}::{stem}") };
        if path.is_dir() {
            read_modules(&path, &name, texts);
        } else if path.extension().is_some_and(|e| e == "rs") && !["lib", "main", "tests"].contains(&stem) {
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
            texts.insert(name, lines.collect::<Vec<_>>().join("\n"));
        }
    }
}

/// Every path of the `use` declarations in a text, groups expanded.
fn uses(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("use ") {
        let before = text[..at].rsplit('\n').next().unwrap_or("").trim();
        let Some(end) = text[at..].find(';').filter(|_| before.is_empty() || before.starts_with("pub")) else {
            continue;
        };
        let declaration: String = text[at + 4..at + end].split_whitespace().collect::<Vec<_>>().join(" ");
        expand("", &declaration.replace(", ", ","), &mut found);
    }
    found
}

fn expand(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let Some((head, group)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree).trim();
        return found.push(format!("{prefix}{path}"));
    };
    let (mut depth, mut start) = (0, 0);
    let group = group.strip_suffix('}').unwrap_or(group);
    for (i, c) in group.char_indices().chain([(group.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = group[start..i].trim();
                if !part.is_empty() {
                    expand(&format!("{prefix}{head}"), part, found);
                }
                start = i + 1;
            }
            _ => {}
        }
    }
}

/// The module of this crate that a path names or points into.
fn resolve(module: &str, path: &str, names: &BTreeSet<String>) -> Option<String> {
    let mut at: Vec<&str> = module.split("::").collect();
    let mut parts = path.split("::").peekable();
    match parts.peek() {
        Some(&"crate") => at.clear(),
        Some(&"super") => {}
        Some(child) if names.contains(&format!("{module}::{child}")) => {}
        _ => return None,
    }
    for part in parts {
        match part {
            "crate" | "self" => {}
            "super" => drop(at.pop()),
            part => {
                at.push(part);
                if !names.contains(&at.join("::")) {
                    at.pop();
                    break;
                }
            }
        }
    }
    Some(at.join("::")).filter(|name| names.contains(name))
}

#[test]
fn no_module_cycle_spans_several_folders() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap().map(Result::unwrap) {
        let modules = Modules::of_crate(&entry.path().join("src"));
        let name = entry.file_name().into_string().unwrap();
        wrong.extend(modules.cycles().into_iter().map(|cycle| format!("{name}: {}", cycle.join(", "))));
    }
    assert!(wrong.is_empty(), "module cycles across folders:\n{}", wrong.join("\n"));
}

#[test]
fn cycles_are_detected_in_use_declarations() {
    let folder = temp_dir::TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("a.rs", "mod b;\nuse b::B;\npub use crate::{c::C,\n    d::{D, E as F}};\n");
    write("a/b.rs", "use super::A;\n");
    write("c.rs", "use crate::d::D;\n");
    write("d.rs", "#[cfg(test)]\nuse crate::a::A;\n");
    assert_eq!(Modules::of_crate(folder.path()).cycles(), [[""; 0]; 0]);
    write("d.rs", "use crate::a::b::B;\n");
    assert_eq!(Modules::of_crate(folder.path()).cycles(), [["a", "a::b", "c", "d"]]);
}
