//! One stream of events for all jobs.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde_json::json;
use tokio::sync::watch;

use crate::app::App;
use crate::events::{ServerEvent, Since};

/// A comment is sent after this time without events, so that proxies keep the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Streams events: `snapshot` with all jobs and downloads at the start and after a gap, `job` when a job changes,
/// `removed` when it is no longer listed, `model` when the download of a model changes. A client that sends
/// `Last-Event-ID` gets what it has missed instead of a snapshot.
#[utoipa::path(get, path = "/v1/events", tag = "events",
    params(("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that arrived")),
    responses((status = 200, description = "Server-sent events", content_type = "text/event-stream")))]
pub async fn stream(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| app.hub.number(id));
    app.counters.streams.fetch_add(1, Ordering::Relaxed);
    let mut client = Client {
        number: last.unwrap_or_default(),
        pending: VecDeque::new(),
        changed: app.hub.watch(),
        stop: app.stop.subscribe(),
        app,
    };
    if last.is_none() {
        client.snapshot(client.app.hub.last());
    }
    let keep = KeepAlive::new().interval(KEEP_ALIVE);
    Sse::new(unfold(client, next)).keep_alive(keep).into_response()
}

/// A client and the last event that it has got.
struct Client {
    app: Arc<App>,
    number: u64,
    pending: VecDeque<Event>,
    changed: watch::Receiver<u64>,
    stop: watch::Receiver<bool>,
}

impl Client {
    /// All jobs instead of the events up to one.
    fn snapshot(&mut self, number: u64) {
        self.number = number;
        let (jobs, models) = (self.app.queue.list(), self.app.downloads.downloading());
        let data = json!({"jobs": jobs, "models": models}).to_string();
        self.pending.push_back(Event::default().event("snapshot").id(self.app.hub.id(number)).data(data));
    }

    /// Takes what has happened. False where nothing has.
    fn fill(&mut self) -> bool {
        match self.app.hub.since(self.number) {
            Since::Gap(last) => self.snapshot(last),
            Since::Events(events) => {
                for ServerEvent { number, kind, data } in events {
                    self.number = number;
                    self.pending.push_back(Event::default().event(kind).id(self.app.hub.id(number)).data(data));
                }
            }
        }
        !self.pending.is_empty()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.app.counters.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn next(mut client: Client) -> Option<(Result<Event, Infallible>, Client)> {
    loop {
        if *client.stop.borrow() {
            return None;
        }
        if let Some(event) = client.pending.pop_front() {
            return Some((Ok(event), client));
        }
        if client.fill() {
            continue;
        }
        let Client { changed, stop, .. } = &mut client;
        tokio::select! {
            _ = changed.changed() => {}
            _ = stop.changed() => {}
        }
    }
}
