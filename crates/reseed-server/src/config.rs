//! What the operator of a server chooses.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use reseed::{Budget, MathMode, Precision};

/// Who may use a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Clients with a token that the server draws and keeps in its data folder.
    Generated,
    /// Clients with this token.
    Token(String),
    /// Everybody on this machine. Only for loopback addresses.
    Open,
}

/// What the operator of a server chooses.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen on; port 0 takes a free one.
    pub bind: SocketAddr,
    /// Further values of the Host header that clients may send, with their port unless it is that of the protocol.
    pub hosts: Vec<String>,
    /// Who may use the server.
    pub access: Access,
    /// Folders that clients may name files in.
    pub roots: Vec<PathBuf>,
    /// The folder of the queue, of uploads and of results without a chosen output.
    pub data: PathBuf,
    /// The model of jobs that choose none.
    pub model: String,
    /// The devices, each with one job at a time; `auto` where empty. The CPU may be there several times.
    pub devices: Vec<String>,
    /// GPU memory of each device.
    pub budget: Option<Budget>,
    /// Type of the activations.
    pub dtype: Option<Precision>,
    /// Accuracy that the products of GPUs keep.
    pub math: MathMode,
    /// CPU threads.
    pub threads: Option<usize>,
    /// The program that shows a folder on the desktop of this machine, with the path as its argument.
    pub opener: Option<PathBuf>,
    /// Limits for clients.
    pub limits: Limits,
}

impl Config {
    /// A server on a loopback address with a token.
    pub fn new(bind: SocketAddr, data: impl Into<PathBuf>) -> Config {
        Config {
            bind,
            hosts: Vec::new(),
            access: Access::Generated,
            roots: Vec::new(),
            data: data.into(),
            model: reseed::models::EMBEDDED.into(),
            devices: Vec::new(),
            budget: None,
            dtype: None,
            math: MathMode::default(),
            threads: None,
            opener: None,
            limits: Limits::default(),
        }
    }
}

/// Limits for clients.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at the same time.
    pub connections: usize,
    /// Bytes of a request's body, except uploads.
    pub body: usize,
    /// Jobs that wait or run.
    pub jobs: usize,
    /// Frames of a job's input.
    pub frames: usize,
    /// Ended jobs that are listed; older ones are forgotten.
    pub ended: usize,
    /// Uploads that are not complete.
    pub uploads: usize,
    /// Bytes of an upload.
    pub upload: u64,
    /// Time for the headers of a request.
    pub headers: Duration,
    /// Time for the body of a request, and between two parts of an upload.
    pub idle: Duration,
    /// Time for open requests after a stop.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 512,
            body: 64 << 10,
            jobs: 1000,
            frames: 10_000_000,
            ended: 1000,
            uploads: 16,
            upload: 1 << 40,
            headers: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            grace: Duration::from_millis(1000),
        }
    }
}
