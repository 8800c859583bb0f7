//! `reseed models`: lists, downloads and verifies the public model files.

use std::path::Path;

use reseed::models::{self, EmbeddedModel, File, Model};
use serde_json::json;

use crate::console;
use crate::failure::{Failure, Result};
use crate::progress::Meter;
use crate::report::bytes;
use crate::shutdown;
use reseed_args::models::{ListArgs, ModelsCommand, PathArgs, PullArgs, VerifyArgs};

pub fn run(command: &ModelsCommand) -> Result<()> {
    match command {
        ModelsCommand::List(args) => list(args),
        ModelsCommand::Pull(args) => pull(args),
        ModelsCommand::Verify(args) => verify(args),
        ModelsCommand::Path(args) => path(args),
    }
}

fn list(args: &ListArgs) -> Result<()> {
    for &EmbeddedModel { name, about, bytes: count } in models::embedded() {
        match args.json {
            true => say!("{}", json!({"event": "model", "name": name, "bytes": count, "embedded": true})),
            false => say!("{name:<13} {:>10}  {about}: embedded", bytes(count)),
        }
    }
    let shared = models::shared().map(|(name, file)| (name, "of all models", file));
    let models = models::all().iter().map(|model| (model.name, model.about, &model.dit));
    for (name, about, file) in models.chain(shared) {
        let path = models::locate(file);
        if args.json {
            let (repo, path) = (file.repo.name, path.as_ref().map(|path| path.to_string_lossy()));
            say!(
                "{}",
                json!({"event": "model", "name": name, "file": file.name, "repository": repo,
                       "revision": file.repo.revision, "bytes": file.bytes, "sha256": file.sha256, "path": path})
            );
        } else {
            let place = path.map_or("not on this machine".into(), |path| path.display().to_string());
            say!("{name:<13} {:>10}  {}, {about}: {place}", bytes(file.bytes as usize), file.name);
        }
    }
    Ok(())
}

fn pull(args: &PullArgs) -> Result<()> {
    shutdown::set_left("finished parts are kept: the same command continues");
    for file in files_of(&named(&args.names)?) {
        let path = match models::locate(file) {
            Some(path) => path,
            None => {
                let mut meter = Meter::new(file.name, file.bytes, args.json);
                models::download(file, &mut |count| meter.at(count))?
            }
        };
        print("pulled", file, &path, args.json);
    }
    Ok(())
}

fn verify(args: &VerifyArgs) -> Result<()> {
    let models = named(&args.names)?;
    let chosen = !models.is_empty();
    let models = if chosen { models } else { models::all().iter().collect() };
    let (mut found, mut wrong) = (0, Vec::new());
    for file in files_of(&models) {
        let Some(path) = models::locate(file) else {
            if chosen {
                return Err(Failure::Model(format!("{}: not on this machine", file.name)));
            }
            continue;
        };
        found += 1;
        let mut meter = Meter::new(file.name, file.bytes, args.json);
        let intact = models::is_intact(file, &path, &mut |count| meter.at(count))?;
        drop(meter);
        match intact {
            true => print("verified", file, &path, args.json),
            false => wrong.push(path),
        }
    }
    match &wrong[..] {
        [] if found == 0 && !args.json => {
            say!("no model files on this machine; `reseed models pull 3b` downloads some");
            Ok(())
        }
        [] => {
            console::event(|| json!({"event": "done", "command": "models verify", "files": found}));
            Ok(())
        }
        [first, ..] => {
            let (first, others) = (first.display(), wrong.len() - 1);
            let more = if others > 0 { format!(", nor those of {others} more files") } else { String::new() };
            Err(Failure::Model(format!(
                "{first}: its SHA-256 is not the published one{more}; delete it and pull it again"
            )))
        }
    }
}

fn path(args: &PathArgs) -> Result<()> {
    for path in models::paths(&args.name)? {
        say!("{}", path.display());
    }
    Ok(())
}

fn named(names: &[String]) -> Result<Vec<&'static Model>> {
    Ok(names.iter().map(|name| models::find(name)).collect::<reseed::Result<_>>()?)
}

/// The files of some models, each once.
fn files_of(models: &[&'static Model]) -> Vec<&'static File> {
    let mut files: Vec<&File> = Vec::new();
    for file in models.iter().flat_map(|model| model.files()) {
        if !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

fn print(event: &str, file: &File, path: &Path, as_json: bool) {
    match as_json {
        true => say!("{}", json!({"event": event, "file": file.name, "path": path.to_string_lossy()})),
        false => say!("{event} {}", path.display()),
    }
}
