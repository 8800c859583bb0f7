//! Options of `reseed models`.

use clap::{Args, Subcommand};

#[derive(Subcommand)]
pub enum ModelsCommand {
    /// List the public models and the places of their files on this machine.
    List(ListArgs),
    /// Download the missing files of models; an interrupted download continues.
    Pull(PullArgs),
    /// Compare files with their published SHA-256.
    Verify(VerifyArgs),
    /// Print the paths of a model's files: transformer, VAE, text embedding.
    Path(PathArgs),
}

impl ModelsCommand {
    pub fn prints_json(&self) -> bool {
        match self {
            ModelsCommand::List(args) => args.json,
            ModelsCommand::Pull(args) => args.json,
            ModelsCommand::Verify(args) => args.json,
            ModelsCommand::Path(_) => false,
        }
    }
}

#[derive(Args)]
pub struct ListArgs {
    /// One JSON object per line.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct PullArgs {
    /// Models, such as 3b or 7b-q4.
    #[arg(value_name = "MODEL", required = true)]
    pub names: Vec<String>,
    /// One JSON object per line.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct VerifyArgs {
    /// Models, such as 3b or 7b-q4. Default: all files on this machine.
    #[arg(value_name = "MODEL")]
    pub names: Vec<String>,
    /// One JSON object per line.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct PathArgs {
    /// The model, such as 3b or 7b-q4.
    #[arg(value_name = "MODEL")]
    pub name: String,
}
