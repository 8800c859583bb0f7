//! `reseed completions` and `reseed man`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::console;
use crate::failure::{Failure, Result};
use reseed_args::Cli;

/// Prints the completions of a shell.
pub fn completions(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "reseed", &mut script);
    console::data(&script);
    Ok(())
}

/// Prints the manual page of the command and of every subcommand.
pub fn page() -> Result<()> {
    let mut command = Cli::command();
    command.build();
    let mut text = Vec::new();
    render(&command, &mut text).map_err(|error| Failure::Failed(format!("cannot write the manual page: {error}")))?;
    console::data(&text);
    Ok(())
}

fn render(command: &clap::Command, text: &mut Vec<u8>) -> std::io::Result<()> {
    clap_mangen::Man::new(command.clone()).render(text)?;
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
    visible.into_iter().try_for_each(|command| render(command, text))
}
