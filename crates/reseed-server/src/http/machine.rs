//! The server itself: health, metrics and what it can do.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::body::blocking;
use crate::app::App;
use crate::capabilities::Capabilities;
use crate::problem::Answer;

/// Whether the server answers.
#[utoipa::path(get, path = "/health", tag = "server", security(()),
    responses((status = 200, description = "It does")))]
pub async fn health() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// What the server can do: its version, devices, roots, limits and tools.
#[utoipa::path(get, path = "/v1/capabilities", tag = "server", responses((status = 200, body = Capabilities)))]
pub async fn capabilities(State(app): State<Arc<App>>) -> Answer<Json<Capabilities>> {
    blocking(move || Ok(Json(Capabilities::of(&app)))).await
}

/// Numbers for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "server",
    responses((status = 200, description = "Numbers in the text format of Prometheus", content_type = "text/plain")))]
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    let mut text = String::new();
    let counters = &app.counters;
    let mut number = |name: &str, kind: &str, help: &str, values: &[(String, f64)]| {
        let _ = writeln!(text, "# HELP reseed_{name} {help}\n# TYPE reseed_{name} {kind}");
        for (label, value) in values {
            let _ = writeln!(text, "reseed_{name}{label} {value}");
        }
    };
    let states = app.queue.counts().map(|(state, count)| (format!("{{state=\"{}\"}}", state.name()), count as f64));
    let one = |value: f64| [(String::new(), value)];
    let total = |value: &std::sync::atomic::AtomicU64| one(value.load(Ordering::Relaxed) as f64);
    number("jobs", "gauge", "Jobs that are listed, by state.", &states);
    number("frames_total", "counter", "Frames written since the start.", &total(&counters.frames));
    number("previews_total", "counter", "Previews computed since the start.", &total(&counters.previews));
    number("requests_total", "counter", "HTTP requests since the start.", &total(&counters.requests));
    let streams = counters.streams.load(Ordering::Relaxed) as f64;
    number("event_streams", "gauge", "Clients that listen to events.", &one(streams));
    number("uptime_seconds", "gauge", "Seconds since the start.", &one(app.started.elapsed().as_secs_f64()));
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
