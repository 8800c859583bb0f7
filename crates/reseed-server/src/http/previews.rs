//! Previews.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use reseed::Position;
use tokio::sync::oneshot;

use super::body::{self, blocking};
use super::jobs::new_id;
use super::results::file;
use crate::app::{App, Counters};
use crate::previews::PreviewView;
use crate::problem::{Answer, Problem};
use crate::request::{PreviewRequest, Wish};
use crate::settings::time;

/// Computes one frame of a job with the job's own batches, so that its pixels are those of the output. A running job
/// waits meanwhile, after its current batch.
#[utoipa::path(post, path = "/v1/previews", tag = "previews", request_body = PreviewRequest,
    responses((status = 201, body = PreviewView), (status = 422, description = "A value cannot be used"),
        (status = 429, description = "Too many previews wait")))]
pub async fn create(State(app): State<Arc<App>>, request: Request) -> Answer<Response> {
    let (wish, _): (PreviewRequest, u64) = body::json(&app, request).await?;
    let at = match (&wish.at, wish.frame) {
        (Some(at), None) => Position::Time(time("at", at).map_err(Problem::invalid)?),
        (None, Some(frame)) => Position::Frame(frame),
        _ => return Err(Problem::invalid("give either at or frame")),
    };
    let PreviewRequest { input, upload, model, settings, .. } = wish;
    let shared = app.clone();
    let checked = {
        let Ok(_permit) = app.probes.acquire().await else { return Err(Problem::failed("the server stops")) };
        blocking(move || Wish { input, upload, model, settings }.check(&shared)).await?
    };
    let (reply, answer) = oneshot::channel();
    let (shared, id) = (app.clone(), new_id()?);
    let added = app.queue.preview(Box::new(move |sessions| {
        // A client that has gone needs no preview.
        if !reply.is_closed() {
            let _ = reply.send(shared.previews.make(&id, &checked, at, sessions));
        }
    }));
    if !added {
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "queue-full", "too many previews wait");
        return Err(problem.with(header::RETRY_AFTER, HeaderValue::from_static("10")));
    }
    let preview = answer.await.map_err(|_| Problem::failed("the preview was not computed; see the log"))??;
    Counters::add(&app.counters.previews, 1);
    Ok((StatusCode::CREATED, Json(preview)).into_response())
}

/// An image of a preview: `input`, resized, or `output`.
#[utoipa::path(get, path = "/v1/previews/{id}/{side}", tag = "previews",
    params(("id" = String, Path), ("side" = String, Path, description = "input or output")),
    responses((status = 200, description = "The image", content_type = "image/png"),
        (status = 404, description = "No such preview, or an old one")))]
pub async fn image(
    State(app): State<Arc<App>>,
    Path((id, side)): Path<(String, String)>,
    request: Request,
) -> Answer<Response> {
    let path = app.previews.image(&id, &side).ok_or_else(|| Problem::not_found("no such preview, or an old one"))?;
    Ok(file(&path, request).await)
}
