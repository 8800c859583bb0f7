//! A server: its listener, its devices and its end.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::app::App;
use crate::auth::Keys;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::http;
use crate::sessions::SessionCache;
use crate::worker;

/// Threads that answer requests. The devices have their own.
const THREADS: usize = 2;
/// Bytes of a request's headers.
const HEADERS: usize = 32 << 10;
/// A listener that has too many files open recovers after this time.
const RETRY: std::time::Duration = std::time::Duration::from_millis(100);

/// A server that listens.
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
    devices: Vec<(String, SessionCache)>,
}

/// Stops a server from another thread.
#[derive(Clone)]
pub struct Stopper(Arc<App>);

impl Stopper {
    /// The server answers open requests and ends. Jobs continue when it is started again.
    pub fn stop(&self) {
        self.0.stop.send_replace(true);
        self.0.queue.stop();
        self.0.downloads.stop();
    }
}

impl Server {
    /// Opens the model, the devices and the queue, and listens.
    pub fn bind(config: Config) -> Result<Server> {
        let address = config.bind;
        let listener = TcpListener::bind(address).map_err(|cause| Error::Bind { address, cause })?;
        Server::with_listener(config, listener)
    }

    /// The same on a socket that listens already.
    pub fn with_listener(mut config: Config, listener: TcpListener) -> Result<Server> {
        let local = listener.local_addr().and_then(|local| listener.set_nonblocking(true).map(|()| local));
        let local = local.map_err(|cause| Error::Bind { address: config.bind, cause })?;
        config.bind = local;
        let app = Arc::new(App::open(config, local.port())?);
        let mut devices: Vec<(String, SessionCache)> = Vec::new();
        for device in app.devices().to_vec() {
            let mut sessions = SessionCache::new(app.compute(&device));
            // A model that is missing is found now, not by the first job.
            sessions.get(&app.config.model)?;
            devices.push((device, sessions));
        }
        Ok(Server { app, listener, devices })
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.app.config.bind
    }

    /// The address for a browser. Where a token is needed, it works once.
    pub fn url(&self) -> String {
        let mut address = self.address();
        if address.ip().is_unspecified() {
            address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        match self.app.keys.as_ref().and_then(Keys::code) {
            Some(code) => format!("http://{address}/login?code={code}"),
            None => format!("http://{address}/"),
        }
    }

    /// The token for programs.
    pub fn token(&self) -> Option<&str> {
        self.app.keys.as_ref().map(Keys::token)
    }

    /// Stops the server from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.app.clone())
    }

    /// Serves until it is stopped. Returns the outputs of jobs that have not stopped yet: a device does not stop within
    /// a large product. A process that ends before they do removes their files with
    /// [`discard_unfinished`](reseed::media::discard_unfinished) and
    /// [`Job::discard_unused`](reseed::Job::discard_unused).
    pub fn run(self) -> Result<Vec<PathBuf>> {
        let Server { app, listener, devices } = self;
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
        let runtime = runtime.map_err(Error::System)?;
        for (device, sessions) in devices {
            worker::start(app.clone(), device, sessions).map_err(Error::System)?;
        }
        let served = runtime.block_on(serve(&app, listener));
        Stopper(app.clone()).stop();
        let busy = app.queue.wait_idle(app.config.limits.grace);
        app.queue.release();
        runtime.shutdown_background();
        served.map(|()| busy).map_err(Error::System)
    }
}

async fn serve(app: &Arc<App>, listener: TcpListener) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let limits = &app.config.limits;
    let (router, graceful) = (http::router(app.clone()), GracefulShutdown::new());
    let permits = Arc::new(Semaphore::new(limits.connections));
    let mut stop = app.stop.subscribe();
    loop {
        let accepted = async {
            let permit = permits.clone().acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            accepted = accepted => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let stream: TcpStream = match accepted {
            Ok((stream, _)) => stream,
            Err(cause) => {
                tracing::warn!(%cause, "a connection cannot be accepted");
                sleep(RETRY).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(limits.headers).max_buf_size(HEADERS);
        let service = TowerToHyperService::new(router.clone());
        let connection = graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            let _permit = permit;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
    drop(listener);
    let _ = timeout(limits.grace, graceful.shutdown()).await;
    Ok(())
}
