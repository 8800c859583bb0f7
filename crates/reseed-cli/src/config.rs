//! Settings from the user's configuration file and from presets. They are added to the command line before it is
//! parsed, unless the user gives them or something that excludes them.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::error::Error as ClapError;
use clap::{Arg, CommandFactory, Parser};
use reseed::presets::{Config, NamedSettings};
use serde_json::json;

use crate::failure::{Failure, Result};
use reseed_args::{Cli, ConfigArgs};

/// Commands that take settings. The first takes all of them.
const COMMANDS: [&[&str]; 5] = [&["upscale"], &["image"], &["preview"], &["estimate", "upscale"], &["plan"]];
const PRESET: &str = "preset";

/// Why a command line cannot be run.
pub enum Refusal {
    /// It cannot be parsed, or it asks for help.
    Parse(ClapError),
    /// The configuration or the preset is wrong.
    Config(Failure),
}

/// Parses a command line, with the program first, together with the configuration of the user.
pub fn parse(args: &[OsString]) -> std::result::Result<Cli, Refusal> {
    let Some(command) = command_of(args) else { return Cli::try_parse_from(args).map_err(Refusal::Parse) };
    let plain = Cli::try_parse_from(args);
    if matches!(&plain, Err(error) if !error.use_stderr()) {
        return plain.map_err(Refusal::Parse);
    }
    let expanded = expand(args, &command).map_err(Refusal::Config)?;
    match (Cli::try_parse_from(&expanded.args), plain) {
        (Ok(cli), _) => Ok(cli),
        // The user's own arguments are wrong.
        (Err(_), Err(error)) => Err(Refusal::Parse(error)),
        (Err(error), Ok(_)) => Err(Refusal::Config(expanded.failure(&error))),
    }
}

/// The subcommand that takes settings, with the number of arguments up to its name.
fn command_of(args: &[OsString]) -> Option<(clap::Command, usize)> {
    let is = |at: usize, name: &str| args.get(at).is_some_and(|arg| arg == name);
    let is_option = |arg: &OsString| arg.to_string_lossy().starts_with('-');
    let first = 1 + args.get(1..)?.iter().position(|arg| !is_option(arg))?;
    let names = COMMANDS.iter().find(|names| names.iter().enumerate().all(|(i, name)| is(first + i, name)))?;
    let mut root = Cli::command();
    root.build();
    let command = names.iter().try_fold(&root, |command, name| command.find_subcommand(name))?;
    Some((command.clone(), first + names.len()))
}

/// Where a setting comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum Origin {
    File,
    Preset(String),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::File => write!(f, "{}", Config::path().display()),
            Origin::Preset(name) => write!(f, "preset `{name}`"),
        }
    }
}

/// A setting of the file or of a preset.
struct Setting {
    name: String,
    value: String,
    origin: Origin,
}

/// A command line with the settings that were added to it.
struct Expanded {
    args: Vec<OsString>,
    added: Vec<Setting>,
}

impl Expanded {
    /// The failure of an added setting.
    fn failure(&self, error: &ClapError) -> Failure {
        let text = error.render().to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        let culprit = self.added.iter().find(|setting| message.contains(&format!("--{}", setting.name)));
        let origin = culprit.or(self.added.first()).map_or(String::new(), |setting| setting.origin.to_string());
        Failure::Usage(format!("{origin}: {message}"))
    }
}

/// The name of an argument in a command.
fn argument<'c>(command: &'c clap::Command, name: &str) -> Option<&'c Arg> {
    let named = |arg: &&Arg| {
        arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
    };
    command.get_arguments().find(named)
}

/// The arguments that the user gives.
fn given<'c>(command: &'c clap::Command, args: &[OsString]) -> Vec<&'c Arg> {
    let name = |arg: &OsString| {
        let text = arg.to_str()?.strip_prefix("--")?;
        argument(command, text.split('=').next()?)
    };
    args.iter().filter_map(name).collect()
}

/// The value of `--preset`.
fn preset_of(args: &[OsString]) -> Option<&str> {
    let flag = format!("--{PRESET}");
    let is_preset = |arg: &OsString| arg.to_str().is_some_and(|arg| arg.split('=').next() == Some(&flag));
    let at = args.iter().position(is_preset)?;
    match args[at].to_str()?.split_once('=') {
        Some((_, value)) => Some(value),
        None => args.get(at + 1)?.to_str(),
    }
}

/// Settings of the file, then those of the preset, which replace them.
fn settings(config: &Config, preset: Option<&str>) -> Result<Vec<Setting>> {
    let with = |settings: &NamedSettings, origin: &Origin| -> Vec<Setting> {
        let owned = settings.iter().cloned();
        owned.map(|(name, value)| Setting { name, value, origin: origin.clone() }).collect()
    };
    let mut all = with(&config.defaults, &Origin::File);
    if let Some(name) = preset {
        let preset = config.preset(name).map_err(|error| Failure::Usage(error.to_string()))?;
        all.extend(with(&preset.settings, &Origin::Preset(name.into())));
    }
    Ok(all)
}

fn expand(args: &[OsString], (command, start): &(clap::Command, usize)) -> Result<Expanded> {
    let (before, after) = args.split_at(*start);
    let config = Config::of_user().map_err(|error| Failure::Usage(error.to_string()))?;
    let added = in_force(command, settings(&config, preset_of(after))?, &given(command, after))?;
    let texts = added.iter().filter_map(|setting| as_argument(command, setting));
    let args = before.iter().cloned().chain(texts).chain(after.iter().cloned()).collect();
    Ok(Expanded { args, added })
}

/// The settings that apply to a command line, later ones first: what the user gives, or what a later setting says,
/// excludes them.
fn in_force(command: &clap::Command, settings: Vec<Setting>, given: &[&Arg]) -> Result<Vec<Setting>> {
    let mut root = Cli::command();
    root.build();
    let all = root.find_subcommand(COMMANDS[0][0]).ok_or(Failure::Failed("no such command".into()))?;
    let conflict = |a: &Arg, b: &Arg| command.get_arg_conflicts_with(a).iter().any(|c| c.get_id() == b.get_id());
    let excluded = |arg: &Arg| -> Vec<clap::Id> {
        let same = |other: &&Arg| other.get_id() == arg.get_id() || conflict(arg, other) || conflict(other, arg);
        command.get_arguments().filter(same).map(|other| other.get_id().clone()).collect()
    };
    let mut taken: BTreeSet<clap::Id> = given.iter().flat_map(|arg| excluded(arg)).collect();
    let mut added = Vec::new();
    for setting in settings.into_iter().rev() {
        if argument(all, &setting.name).is_none_or(|arg| arg.is_positional() || arg.get_long() == Some(PRESET)) {
            return Err(Failure::Usage(format!(
                "{}: no setting is called `{}`; `reseed upscale --help` lists all",
                setting.origin, setting.name
            )));
        }
        // Other commands take fewer settings.
        let Some(arg) = argument(command, &setting.name) else { continue };
        if !taken.contains(arg.get_id()) {
            taken.extend(excluded(arg));
            added.push(setting);
        }
    }
    Ok(added)
}

/// A setting as an argument; a switch that is off is none.
fn as_argument(command: &clap::Command, setting: &Setting) -> Option<OsString> {
    let takes_value = argument(command, &setting.name)?.get_action().takes_values();
    match (takes_value, setting.value.as_str()) {
        (false, "false") => None,
        (false, "true") => Some(format!("--{}", setting.name).into()),
        _ => Some(format!("--{}={}", setting.name, setting.value).into()),
    }
}

/// Prints the settings in force and where each comes from, and all presets.
pub fn print(args: &ConfigArgs) -> Result<()> {
    let config = Config::of_user().map_err(|error| Failure::Usage(error.to_string()))?;
    let mut root = Cli::command();
    root.build();
    let upscale = root.find_subcommand(COMMANDS[0][0]).ok_or(Failure::Failed("no such command".into()))?;
    let added = in_force(upscale, settings(&config, args.preset.as_deref())?, &[])?;
    let path = Config::path();
    if args.json {
        let settings = added.iter().map(|s| json!({"name": s.name, "value": s.value, "from": s.origin.to_string()}));
        let presets = config.presets.iter().map(|preset| {
            let settings: serde_json::Map<_, _> =
                preset.settings.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
            json!({"name": preset.name, "description": preset.description, "settings": settings})
        });
        let file = json!({"path": path.to_string_lossy(), "exists": path.is_file()});
        say!(
            "{}",
            json!({"file": file, "settings": settings.collect::<Vec<_>>(), "presets": presets.collect::<Vec<_>>()})
        );
        return Ok(());
    }
    say!("file      {}{}", path.display(), if path.is_file() { "" } else { " (does not exist)" });
    say!("settings  {}", if added.is_empty() { "the defaults of each command" } else { "" }.trim_end());
    added.iter().rev().for_each(|s| say!("  {} = {}    from {}", s.name, s.value, s.origin));
    say!("presets   for --preset");
    for preset in &config.presets {
        let settings: Vec<String> = preset.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        say!("  {:8}  {} ({})", preset.name, preset.description, settings.join(", "));
    }
    Ok(())
}
