//! Command lines that cannot be parsed, and those that ask for help.

use std::ffi::OsString;
use std::path::Path;

use clap::CommandFactory;
use clap::error::ErrorKind;
use serde_json::json;

use crate::config::Refusal;
use crate::console;
use crate::failure::Failure;
use reseed_args::Cli;

/// Prints the help or the version that was asked for, or what is wrong with the arguments or the configuration.
pub fn report(refusal: &Refusal, args: &[OsString]) -> u8 {
    let json = args.iter().any(|arg| arg == "--json");
    let error = match refusal {
        Refusal::Parse(error) => error,
        Refusal::Config(failure) => {
            console::configure(false, json);
            return fail(failure);
        }
    };
    console::configure(false, error.use_stderr() && json);
    if let Some(command) = suggestion(error.kind(), args) {
        return fail(&Failure::Usage(format!("no command given; did you mean `{command}`?")));
    }
    let printed = error.print();
    if !error.use_stderr() {
        return match printed.map_err(console::stdout_failure) {
            Err(Some(failure)) => fail(&failure),
            _ => 0,
        };
    }
    let code = error.exit_code();
    console::event(|| {
        let text = error.render().to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        json!({"event": "error", "kind": "usage", "exit_code": code, "message": message})
    });
    code as u8
}

fn fail(failure: &Failure) -> u8 {
    console::error(failure);
    failure.code()
}

/// The command that a user meant who gave files without a command.
fn suggestion(kind: ErrorKind, args: &[OsString]) -> Option<String> {
    let wrong = matches!(kind, ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument);
    let is_option = |arg: &OsString| arg.to_string_lossy().starts_with('-');
    let is_file = |arg: &OsString| Path::new(arg).extension().is_some() || Path::new(arg).exists();
    let first = args.first().filter(|_| wrong)?;
    let names_command = args.iter().any(|arg| Cli::command().find_subcommand(arg).is_some());
    let files = if is_option(first) { args.iter().any(|arg| !is_option(arg) && is_file(arg)) } else { is_file(first) };
    (files && !names_command)
        .then(|| format!("reseed upscale {}", args.iter().map(quoted).collect::<Vec<_>>().join(" ")))
}

/// An argument as a shell reads it.
fn quoted(arg: &OsString) -> String {
    let arg = arg.to_string_lossy();
    let plain = arg.chars().all(|c| c.is_alphanumeric() || "-_=./:+,@%".contains(c));
    if plain { arg.into_owned() } else { format!("'{}'", arg.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_a_command_are_to_be_upscaled() {
        let suggest = |args: &[&str]| {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            suggestion(ErrorKind::InvalidSubcommand, &args)
        };
        assert_eq!(suggest(&["in.mp4", "out.mp4"]).unwrap(), "reseed upscale in.mp4 out.mp4");
        assert_eq!(suggest(&["--scale", "2", "a b.mp4", "c.mkv"]).unwrap(), "reseed upscale --scale 2 'a b.mp4' c.mkv");
        assert_eq!(suggest(&["src", "out"]).unwrap(), "reseed upscale src out");
        for other in [&["upscal", "in.mp4", "out.mp4"][..], &["--wrong"], &["nonsense"], &["--x", "upscale", "in.mp4"]]
        {
            assert_eq!(suggest(other), None, "{other:?}");
        }
    }
}
