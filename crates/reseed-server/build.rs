//! Lists the files of the page, which become part of the program.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let page = root.join("page");
    println!("cargo::rerun-if-changed=page");
    let mut names: Vec<String> = fs::read_dir(&page)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<_>>()?;
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    let file = |name: &String| format!("    ({name:?}, include_bytes!({:?}) as &[u8]),\n", page.join(name));
    let list: String = names.iter().map(file).collect();
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    fs::write(Path::new(&out).join("page.rs"), format!("&[\n{list}]\n"))
}
