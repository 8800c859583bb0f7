//! The server itself: health, metrics, models and what it can do.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use reseed::models;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::body::blocking;
use crate::app::App;
use crate::problem::Answer;

/// A model.
#[derive(Serialize, ToSchema)]
pub struct ModelView {
    /// Its name for requests.
    name: String,
    /// In words.
    about: String,
    /// Bytes of its files.
    bytes: u64,
    /// Whether all of its files are on this machine.
    installed: bool,
    /// Whether jobs use it that choose none.
    default: bool,
}

/// All models.
#[derive(Serialize, ToSchema)]
pub struct ModelList {
    /// The best first.
    models: Vec<ModelView>,
}

/// Whether the server answers.
#[utoipa::path(get, path = "/health", tag = "server", security(()),
    responses((status = 200, description = "It does")))]
pub async fn health() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// The version, the devices, the roots and the limits of the server.
#[utoipa::path(get, path = "/v1/capabilities", tag = "server",
    responses((status = 200, description = "What the server can do", body = Object)))]
pub async fn capabilities(State(app): State<Arc<App>>) -> Json<Value> {
    let limits = &app.config.limits;
    let roots: Vec<_> = app.roots.folders().iter().map(|root| root.to_string_lossy()).collect();
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "devices": app.devices(),
        "model": app.config.model,
        "roots": roots,
        "ffmpeg": reseed::media::ffmpeg_path().is_ok(),
        "limits": {
            "jobs": limits.jobs, "frames": limits.frames, "body_bytes": limits.body,
            "uploads": limits.uploads, "upload_bytes": limits.upload,
        },
    }))
}

/// The models of this machine, and those that can be downloaded.
#[utoipa::path(get, path = "/v1/models", tag = "server", responses((status = 200, body = ModelList)))]
pub async fn models(State(app): State<Arc<App>>) -> Answer<Json<ModelList>> {
    blocking(move || {
        let own = app.config.model.as_str();
        let view = |name: &str, about: &str, bytes, installed| ModelView {
            name: name.into(),
            about: about.into(),
            bytes,
            installed,
            default: name == own,
        };
        let mut list: Vec<ModelView> = models::all()
            .iter()
            .map(|model| {
                let bytes = model.files().iter().map(|file| file.bytes).sum();
                view(model.name, model.about, bytes, models::paths(model.name).is_ok())
            })
            .collect();
        list.push(view(models::EMBEDDED, "small, built in", models::embedded_bytes() as u64, true));
        if !list.iter().any(|model| model.default) {
            list.push(view(own, "the server's own", 0, true));
        }
        Ok(Json(ModelList { models: list }))
    })
    .await
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
