//! `reseed serve`.

use std::path::PathBuf;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reseed::internals::data_folder;
use reseed::{Budget, Job};
use reseed_server::systemd::{listener, notify};
use reseed_server::{Access, Config, Error, Limits, Server};
use serde_json::json;

use crate::console;
use crate::failure::{Failure, Result};
use reseed_args::{ServeArgs, threads};

/// The variable with the token, which other users of the machine cannot read, unlike an argument.
const TOKEN: &str = "RESEED_TOKEN";
/// The exit code after a second signal.
const CANCELLED: i32 = 130;

static STOPPED: AtomicBool = AtomicBool::new(false);

pub fn run(args: &ServeArgs) -> Result<()> {
    let server = match listener() {
        Some(listener) => Server::with_listener(config(args), listener),
        None => Server::bind(config(args)),
    }
    .map_err(failure)?;
    let stopper = server.stopper();
    // Without a handler the system ends the server at once, and the queue continues at the next start.
    let _ = ctrlc::set_handler(move || match STOPPED.swap(true, Ordering::SeqCst) {
        true => exit(CANCELLED),
        false => {
            notify("STOPPING=1");
            stopper.stop();
        }
    });
    announce(args, &server);
    notify("READY=1");
    let busy = server.run().map_err(failure)?;
    // The process ends before jobs that still compute.
    reseed::media::discard_unfinished();
    busy.iter().for_each(|output| Job::discard_unused(output));
    Ok(())
}

fn config(args: &ServeArgs) -> Config {
    let token = args.token.clone().or_else(|| std::env::var(TOKEN).ok().filter(|token| !token.is_empty()));
    let access = match (args.no_token, token) {
        (true, _) => Access::Open,
        (false, Some(token)) => Access::Token(token),
        (false, None) => Access::Generated,
    };
    let data = args.data.clone().unwrap_or_else(|| data_folder().join("reseed").join("server"));
    Config {
        access,
        hosts: args.allow_host.clone(),
        roots: args.root.clone(),
        model: args.model.clone(),
        devices: args.device.clone(),
        budget: args.max_vram.map(Budget::bytes),
        dtype: args.math.dtype,
        math: args.math.precision,
        threads: threads(args.math.threads),
        opener: opener(args),
        limits: limits(args),
        ..Config::new(args.bind, data)
    }
}

/// The program that shows folders, if clients are on this machine and it has a desktop.
fn opener(args: &ServeArgs) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let (program, has_desktop) = match std::env::consts::OS {
        "windows" => ("explorer.exe", true),
        "macos" => ("open", true),
        _ => ("xdg-open", set("DISPLAY") || set("WAYLAND_DISPLAY")),
    };
    let local = args.bind.ip().is_loopback() && args.allow_host.is_empty();
    let path = std::env::var_os("PATH").filter(|_| local && has_desktop)?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn limits(args: &ServeArgs) -> Limits {
    let defaults = Limits::default();
    let time = |default| args.read_timeout.map_or(default, |seconds| Duration::from_secs(seconds.into()));
    let (headers, idle) = (time(defaults.headers), time(defaults.idle));
    Limits { jobs: args.max_jobs as usize, headers, idle, ..defaults }
}

fn announce(args: &ServeArgs, server: &Server) {
    let (address, url) = (server.address(), server.url());
    if args.json {
        say!("{}", json!({"event": "serving", "address": address.to_string(), "url": url}));
        return;
    }
    if args.root.is_empty() {
        console::note("no --root DIR is given: clients upload their files");
    }
    say!("listening on {address}; open this address once in a browser, Ctrl-C stops:");
    say!("{url}");
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Library(error) => error.into(),
        Error::OpenToNetwork { address } => Failure::Usage(format!(
            "--bind {address} --no-token: everybody on the network could use the server; leave out --no-token"
        )),
        Error::WeakToken { .. } => Failure::Usage(format!("--token: {error}")),
        Error::Root { .. } => Failure::Usage(format!("--root {error}")),
        Error::DeviceTwice { .. } => Failure::Usage(format!("--device: {error}")),
        Error::Busy { .. } => Failure::Failed(format!("{error} with --data")),
        error => Failure::Failed(error.to_string()),
    }
}
