//! Previews.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use reseed::{Event, Observer, Position};
use tokio::sync::oneshot;

use super::body::{self, blocking};
use super::jobs::new_id;
use super::results::file;
use crate::app::{App, Counters};
use crate::previews::{self, PreviewView, make};
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
    let PreviewRequest { input, upload, preset, model, settings, .. } = wish;
    let shared = app.clone();
    let checked = {
        let Ok(_permit) = app.probes.acquire().await else { return Err(Problem::failed("the server stops")) };
        blocking(move || Wish { input, upload, preset, model, settings }.check(&shared)).await?
    };
    let (reply, answer) = oneshot::channel();
    let (shared, id) = (app.clone(), new_id()?);
    let added = app.queue.preview(Box::new(move |sessions| {
        let mut client = PreviewClient { app: &shared, reply };
        if !client.cancelled() {
            let made = make(&shared.images, (&id, &checked, at), sessions, &mut client);
            let _ = client.reply.send(made);
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

/// A client that waits for a preview. One that has gone needs none.
struct PreviewClient<'a> {
    app: &'a App,
    reply: oneshot::Sender<reseed::Result<PreviewView>>,
}

impl Observer for PreviewClient<'_> {
    fn event(&mut self, _: &Event) {}

    fn cancelled(&mut self) -> bool {
        self.reply.is_closed() || *self.app.stop.borrow()
    }
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
    let path =
        previews::image(&app.images, &id, &side).ok_or_else(|| Problem::not_found("no such preview, or an old one"))?;
    Ok(file(&path, request).await)
}
