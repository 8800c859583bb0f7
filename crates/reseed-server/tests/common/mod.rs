//! A server in this process with a client.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use reseed::media::{Depth, Frame, ImageTags, Info, Kind, Rate, Size};
use reseed::{JobSpec, Session, Settings};
use reseed_server::{Config, Limits, Server, Stopper};
use serde_json::{Value, json};
use ureq::http::{Request, Response};
use ureq::{Agent, Body};

/// An upper guard for everything that a test waits for.
pub const GUARD: Duration = Duration::from_secs(120);

/// A folder with a root and the data of a server.
pub struct Lab {
    folder: temp_dir::TempDir,
    pub server: Option<Running>,
    limits: Limits,
    devices: usize,
}

/// A server that runs.
pub struct Running {
    pub address: SocketAddr,
    pub url: String,
    pub token: String,
    pub stopper: Stopper,
    thread: JoinHandle<()>,
}

/// Status, headers and body of an answer.
pub struct Reply {
    pub status: u16,
    pub headers: ureq::http::HeaderMap,
    pub bytes: Vec<u8>,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&self.bytes)))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Asserts a problem of RFC 9457.
    pub fn assert_problem(&self, status: u16, kind: &str) -> String {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.bytes));
        assert_eq!(self.header("content-type"), "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["type"], format!("urn:reseed:problem:{kind}"), "{problem}");
        assert_eq!(problem["status"], status);
        problem["detail"].as_str().unwrap().to_owned()
    }
}

impl Lab {
    /// A server that waits for its devices when it stops: a process would end them, a test must not restart beside
    /// them.
    pub fn new() -> Lab {
        Lab::with(Limits { grace: GUARD, ..Limits::default() })
    }

    pub fn with(limits: Limits) -> Lab {
        Lab::with_devices(limits, 1)
    }

    /// A server that runs several jobs at the same time.
    pub fn with_devices(limits: Limits, devices: usize) -> Lab {
        let folder = temp_dir::TempDir::new().unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        let mut lab = Lab { folder, server: None, limits, devices };
        lab.start();
        lab
    }

    /// Starts the server, again with the same data.
    pub fn start(&mut self) {
        let mut config = Config::new("127.0.0.1:0".parse().unwrap(), self.path("data"));
        config.roots = vec![self.path("root")];
        config.model = "formula:tiny".into();
        config.devices = vec!["cpu".into(); self.devices];
        config.threads = Some(1);
        config.limits = self.limits.clone();
        config.opener = Some(self.path("opener")).filter(|opener| opener.is_file());
        let server = Server::bind(config).unwrap();
        let (address, url, stopper) = (server.address(), server.url(), server.stopper());
        let token = server.token().unwrap().to_owned();
        let thread = thread::spawn(move || drop(server.run().unwrap()));
        self.server = Some(Running { address, url, token, stopper, thread });
    }

    /// Stops the server and waits for its end.
    pub fn stop(&mut self) {
        let Running { stopper, thread, .. } = self.server.take().unwrap();
        stopper.stop();
        thread.join().unwrap();
    }

    pub fn server(&self) -> &Running {
        self.server.as_ref().unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        reseed::media::files::canonicalize(self.folder.path()).unwrap().join(name)
    }

    /// A file of the root.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path("root").join(name)
    }

    /// Writes a video of small frames into the root.
    pub fn clip(&self, name: &str, frames: usize) {
        let size = Size { h: 16, w: 16 };
        let kind = Kind::Y4m(reseed::media::y4m::Format::for_depth(Depth::Eight));
        let (rate, depth, alpha, names) = (Rate { num: 25, den: 1 }, Depth::Eight, false, Vec::new());
        let info = Info { size, frames: Some(frames), rate, depth, alpha, kind, names, tags: ImageTags::default() };
        let mut sink = reseed::media::create(&self.file(name), &info).unwrap();
        for i in 0..frames {
            let value = |k: usize| ((k * 37 + i * 11) % 256) as f32 / 255.0;
            let unit: Vec<f32> = (0..3 * size.pixels()).map(value).collect();
            sink.write(&Frame::from_unit(size, &unit, Depth::Eight)).unwrap();
        }
        sink.finish().unwrap();
    }

    pub fn request(&self, request: Request<Vec<u8>>) -> Reply {
        let agent: Agent = Agent::config_builder().http_status_as_error(false).max_redirects(0).build().into();
        let response: Response<Body> = agent.run(request).unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.into_body().with_config().limit(1 << 30).read_to_vec().unwrap();
        Reply { status, headers, bytes }
    }

    /// A request with the token and further headers.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let Running { address, token, .. } = self.server();
        let mut request = Request::builder().method(method).uri(format!("http://{address}{path}"));
        request = request.header("authorization", format!("Bearer {token}"));
        request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        self.request(request.body(body.to_vec()).unwrap())
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    /// An image of the server.
    pub fn image(&self, path: &str) -> Frame {
        let reply = self.get(path);
        assert_eq!(reply.status, 200, "{path}: {}", String::from_utf8_lossy(&reply.bytes));
        assert_eq!(reply.header("content-type"), "image/png");
        reseed::media::decode(&reply.bytes, Path::new("image.png")).unwrap()
    }

    /// Accepts a job and returns its id.
    pub fn accept(&self, job: Value) -> String {
        let reply = self.post("/v1/jobs", job);
        assert_eq!(reply.status, 202, "{}", String::from_utf8_lossy(&reply.bytes));
        reply.json()["id"].as_str().unwrap().to_owned()
    }

    pub fn job(&self, id: &str) -> Value {
        self.get(&format!("/v1/jobs/{id}")).json()
    }

    /// Waits until a job satisfies a condition.
    pub fn wait(&self, id: &str, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let job = self.job(id);
            if condition(&job) {
                return job;
            }
            assert!(start.elapsed() < GUARD, "{what}: {job}");
            sleep(Duration::from_millis(10));
        }
    }

    pub fn wait_done(&self, id: &str) -> Value {
        let job =
            self.wait(id, "done", |job| ["done", "failed", "cancelled"].contains(&job["state"].as_str().unwrap()));
        assert_eq!(job["state"], "done", "{job}");
        job
    }

    /// Sends bytes as they are and returns everything that comes back.
    pub fn raw(&self, text: &str) -> String {
        let mut stream = TcpStream::connect(self.server().address).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Creates a file in the root with ffmpeg. False where ffmpeg is missing.
    pub fn ffmpeg(&self, args: &str, name: &str) -> bool {
        if reseed::media::ffmpeg_path().is_err() {
            println!("skipped: ffmpeg is missing");
            return false;
        }
        let mut command = Command::new("ffmpeg");
        command.args(["-v", "error", "-y"]).args(args.split_whitespace()).arg(self.file(name));
        assert!(command.status().unwrap().success());
        true
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.server.iter().for_each(|server| server.stopper.stop());
    }
}

/// What the library alone writes for a job.
pub fn expected(input: &Path, settings: Settings) -> Vec<u8> {
    let folder = temp_dir::TempDir::new().unwrap();
    let output = folder.path().join(input.file_name().unwrap());
    let session = Session::builder().model("formula:tiny").device("cpu").threads(1).open().unwrap();
    reseed::Job::open(JobSpec::new(input, &output, settings)).unwrap().run(&session, &mut ()).unwrap();
    fs::read(output).unwrap()
}

/// A job on a clip of the root.
pub fn job(input: &str, output: &str) -> Value {
    json!({"input": input, "output": output, "settings": {"scale": 2}})
}
