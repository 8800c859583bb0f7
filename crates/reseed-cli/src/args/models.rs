//! What can be typed behind `reseed models`.

use clap::{Args, Subcommand};

#[derive(Subcommand)]
pub enum ModelsCommand {
    /// Show the public models and where their files are on this machine.
    List(ListArgs),
    /// Download what is missing of models, going on where an earlier download stopped.
    Pull(PullArgs),
    /// Compare files with their published SHA-256.
    Verify(VerifyArgs),
    /// Print where a model's files are: transformer, VAE, text embedding.
    Path(PathArgs),
}

#[derive(Args)]
pub struct ListArgs {
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct PullArgs {
    /// Models, such as 3b or 7b-q4.
    #[arg(value_name = "MODEL", required = true)]
    pub names: Vec<String>,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct VerifyArgs {
    /// Models, such as 3b or 7b-q4; all that is here unless given.
    #[arg(value_name = "MODEL")]
    pub names: Vec<String>,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct PathArgs {
    /// The model, such as 3b or 7b-q4.
    #[arg(value_name = "MODEL")]
    pub name: String,
}
