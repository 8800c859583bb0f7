//! Options of `reseed serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use reseed::models::EMBEDDED;

use super::{DEVICE, MEMORY, MathArgs, device, memory};

#[derive(Args, Clone)]
pub struct ServeArgs {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7373")]
    pub bind: SocketAddr,
    /// A folder that jobs may read from and write to; repeatable.
    #[arg(long, value_name = "DIR")]
    pub root: Vec<PathBuf>,
    /// Folder of the queue, of uploads and of results
    /// [default: reseed/server in the user's data folder]
    #[arg(long, value_name = "DIR", verbatim_doc_comment)]
    pub data: Option<PathBuf>,
    /// Token that clients send, at least 16 characters; RESEED_TOKEN is the same
    /// [default: drawn at the first start and kept in the data folder]
    #[arg(long, value_name = "TOKEN", conflicts_with = "no_token", verbatim_doc_comment)]
    pub token: Option<String>,
    /// Let every user of this machine in; for loopback addresses only.
    #[arg(long)]
    pub no_token: bool,
    /// Another name, with its port, by which clients reach the server,
    /// such as media.local:7373; repeatable
    #[arg(long, value_name = "HOST", verbatim_doc_comment)]
    pub allow_host: Vec<String>,
    /// Model of jobs that choose none.
    #[arg(long, value_name = "NAME|PATH", default_value = EMBEDDED)]
    pub model: String,
    /// cpu, cuda or cuda:N, or several such as cuda:0,cuda:1; each runs one
    /// job at a time [default: auto, a GPU if there is one]
    #[arg(long, value_name = "NAME", value_parser = device, value_delimiter = ',', help_heading = DEVICE)]
    #[arg(verbatim_doc_comment)]
    pub device: Vec<String>,
    #[command(flatten)]
    pub math: MathArgs,
    /// GPU memory of each device to use at most, such as 6G
    /// [default: what is free, less a margin]
    #[arg(long, value_name = "SIZE", value_parser = memory, help_heading = MEMORY, verbatim_doc_comment)]
    pub max_vram: Option<usize>,
    /// Jobs that may wait or run.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub max_jobs: u32,
    /// Seconds that a client may be silent within a request
    /// [default: 10 for its headers, 30 for its body]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..), verbatim_doc_comment)]
    pub read_timeout: Option<u16>,
    /// Print one JSON object per line on stdout instead of text.
    #[arg(long)]
    pub json: bool,
}
