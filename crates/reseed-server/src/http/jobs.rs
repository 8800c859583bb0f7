//! Jobs.

use std::fs;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::{self, blocking};
use crate::app::App;
use crate::auth;
use crate::journal::Accepted;
use crate::problem::{Answer, Problem};
use crate::queue::{Acceptance, ChangeError, now};
use crate::request::{Checked, JobRequest, Wish, bytes_of};
use crate::view::JobView;

/// The longest Idempotency-Key.
const LONGEST_KEY: usize = 200;
/// Characters of an id.
const ID: usize = 16;

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Problem {
        let detail = error.to_string();
        match error {
            ChangeError::Unknown(_) => Problem::not_found(detail),
            ChangeError::State(..) | ChangeError::SameOutput(_) => Problem::conflict(detail),
            ChangeError::Full(_) => {
                let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "queue-full", detail);
                problem.with(header::RETRY_AFTER, HeaderValue::from_static("60"))
            }
            ChangeError::KeyReused(_) => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "key", detail),
            ChangeError::Storage(cause) => Problem::storage(&cause),
        }
    }
}

/// All jobs.
#[derive(Serialize, ToSchema)]
pub struct JobList {
    /// In the order of the queue.
    jobs: Vec<JobView>,
}

/// Jobs that go first.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderRequest {
    /// Their ids in the new order.
    jobs: Vec<String>,
}

/// An id that nobody can guess.
pub fn new_id() -> Answer<String> {
    let digits = auth::random().map_err(|error| Problem::failed(error.to_string()))?;
    Ok(digits.chars().take(ID).collect())
}

/// Lists all jobs.
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", responses((status = 200, body = JobList)))]
pub async fn list(State(app): State<Arc<App>>) -> Json<JobList> {
    Json(JobList { jobs: app.queue.list() })
}

/// Adds a job to the queue. The job survives a crash from the answer on. A request that is repeated with the same
/// `Idempotency-Key` gives the same job.
#[utoipa::path(post, path = "/v1/jobs", tag = "jobs", request_body = JobRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "Chosen by the client, unique for each job")),
    responses((status = 202, body = JobView), (status = 409, description = "The output exists"),
        (status = 422, description = "A value cannot be used"), (status = 429, description = "The queue is full")))]
pub async fn create(State(app): State<Arc<App>>, request: Request) -> Answer<Response> {
    let key = key(request.headers())?;
    let (job, digest): (JobRequest, u64) = body::json(&app, request).await?;
    if let Some(replayed) = key.as_deref().and_then(|key| app.queue.replayed(key, digest)) {
        return Ok(answer(Acceptance { job: replayed?, replayed: true }));
    }
    let Ok(_permit) = app.probes.acquire().await else { return Err(Problem::failed("the server stops")) };
    let shared = app.clone();
    let accepted = blocking(move || Ok(shared.queue.accept(accepted(&shared, job, key, digest)?)?));
    accepted.await.map(answer)
}

fn answer(Acceptance { job, replayed }: Acceptance) -> Response {
    let location = HeaderValue::from_str(&format!("/v1/jobs/{}", job.id));
    let mut response = (StatusCode::ACCEPTED, Json(job)).into_response();
    location.into_iter().for_each(|value| drop(response.headers_mut().insert(header::LOCATION, value)));
    if replayed {
        let name = HeaderName::from_static("idempotency-replayed");
        response.headers_mut().insert(name, HeaderValue::from_static("true"));
    }
    response
}

fn key(headers: &HeaderMap) -> Answer<Option<String>> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    match value.to_str() {
        Ok(key) if !key.is_empty() && key.len() <= LONGEST_KEY => Ok(Some(key.to_owned())),
        _ => Err(Problem::bad_request(format!("Idempotency-Key: 1 to {LONGEST_KEY} visible characters"))),
    }
}

/// Checks a job against the files at hand.
fn accepted(app: &App, request: JobRequest, key: Option<String>, digest: u64) -> Answer<Accepted> {
    let JobRequest { input, upload, output, overwrite, preset, model, device, settings } = request;
    let wish = Wish { input, upload: upload.clone(), preset: preset.clone(), model, settings };
    let checked = wish.check(app)?;
    let device = device.map(|device| app.device(Some(&device))).transpose()?;
    let id = new_id()?;
    let output = match output {
        Some(text) => app.roots.output(&text).map_err(|error| Problem::invalid(error.to_string()))?,
        None => app.results(&id).join(checked.output_name()),
    };
    check_output(&checked, &output, overwrite)?;
    let size = checked.settings_for(&output).output(&checked.info)?.size;
    let batches = checked.info.frames.map(|frames| batches(&checked, frames));
    let (before, rate) = (checked.info.size, checked.info.rate);
    Ok(Accepted {
        id,
        at: now(),
        key,
        request: digest,
        bytes: bytes_of(&checked.input, &checked.info),
        input: checked.input,
        upload,
        output,
        overwrite,
        preset,
        settings: checked.settings,
        model: checked.model,
        device,
        frames: checked.info.frames,
        sizes: [[before.w, before.h], [size.w, size.h]],
        rate: [rate.num, rate.den],
        still: checked.info.kind.is_still(),
        batches,
    })
}

/// Batches of a job whose shots are not known.
fn batches(checked: &Checked, frames: usize) -> usize {
    let batching = checked.chosen.settings.batching;
    let (size, shared) = (batching.size, batching.shared());
    match checked.info.kind.is_still() {
        true => frames,
        false => frames.saturating_sub(shared).div_ceil(size - shared).max(1),
    }
}

fn check_output(checked: &Checked, output: &std::path::Path, overwrite: bool) -> Answer<()> {
    reseed::internals::refuse_same_file(&checked.input, output)?;
    if output.is_file() && !overwrite {
        let output = output.display();
        return Err(Problem::conflict(format!("{output}: exists; set overwrite to replace it")));
    }
    Ok(())
}

/// One job.
#[utoipa::path(get, path = "/v1/jobs/{id}", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = JobView), (status = 404, description = "No such job")))]
pub async fn one(State(app): State<Arc<App>>, Path(id): Path<String>) -> Answer<Json<JobView>> {
    app.queue.get(&id).map(Json).ok_or_else(|| ChangeError::Unknown(id).into())
}

/// Cancels a job that waits or runs; its finished frames are kept for a retry. Removes an ended job from the list, and
/// the work that it left; an output under a root stays.
#[utoipa::path(delete, path = "/v1/jobs/{id}", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = JobView, description = "Cancelled"), (status = 204, description = "Removed"),
        (status = 404, description = "No such job"), (status = 409, description = "It is being stopped")))]
pub async fn delete(State(app): State<Arc<App>>, Path(id): Path<String>) -> Answer<Response> {
    blocking(move || {
        let (_, state) = app.queue.accepted(&id).ok_or_else(|| ChangeError::Unknown(id.clone()))?;
        Ok(match state.is_ended() {
            true => {
                app.queue.remove(&id)?;
                // Without the job nobody finds a result in the data folder.
                let _ = fs::remove_dir_all(app.results(&id));
                StatusCode::NO_CONTENT.into_response()
            }
            false => app.queue.cancel(&id).map(|job| Json(job).into_response())?,
        })
    })
    .await
}

/// Stops a job until it is resumed.
#[utoipa::path(post, path = "/v1/jobs/{id}/pause", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = JobView), (status = 409, description = "The job has ended")))]
pub async fn pause(State(app): State<Arc<App>>, Path(id): Path<String>) -> Answer<Json<JobView>> {
    blocking(move || Ok(Json(app.queue.pause(&id)?))).await
}

/// Lets a paused job wait for its turn.
#[utoipa::path(post, path = "/v1/jobs/{id}/resume", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = JobView), (status = 409, description = "The job has ended")))]
pub async fn resume(State(app): State<Arc<App>>, Path(id): Path<String>) -> Answer<Json<JobView>> {
    blocking(move || Ok(Json(app.queue.resume(&id)?))).await
}

/// Lets a failed or cancelled job wait for its turn. It continues with its finished frames.
#[utoipa::path(post, path = "/v1/jobs/{id}/retry", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = JobView), (status = 409, description = "The job has not ended, or is done")))]
pub async fn retry(State(app): State<Arc<App>>, Path(id): Path<String>) -> Answer<Json<JobView>> {
    blocking(move || Ok(Json(app.queue.retry(&id)?))).await
}

/// Puts jobs first, in the given order.
#[utoipa::path(post, path = "/v1/order", tag = "jobs", request_body = OrderRequest,
    responses((status = 200, body = JobList), (status = 404, description = "No such job")))]
pub async fn order(State(app): State<Arc<App>>, request: Request) -> Answer<Json<JobList>> {
    let (OrderRequest { jobs }, _) = body::json(&app, request).await?;
    blocking(move || {
        app.queue.reorder(&jobs)?;
        Ok(Json(JobList { jobs: app.queue.list() }))
    })
    .await
}
