//! Finished outputs.

use std::path::Path as FilePath;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use reseed::media::files;
use tower::ServiceExt;
use tower_http::services::ServeFile;

use crate::app::App;
use crate::journal::State as JobState;
use crate::problem::{Answer, Problem};
use crate::queue::ChangeError;

/// The output of a job that is done, or a range of its bytes.
#[utoipa::path(get, path = "/v1/jobs/{id}/result", tag = "jobs", params(("id" = String, Path),
        ("Range" = Option<String>, Header, description = "A range of bytes")),
    responses((status = 200, description = "The file"), (status = 206, description = "A range of the file"),
        (status = 404, description = "No such job"), (status = 409, description = "The job is not done")))]
pub async fn result(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Answer<Response> {
    let (job, state) = app.queue.accepted(&id).ok_or(ChangeError::Unknown(id))?;
    if state != JobState::Done {
        return Err(Problem::conflict(format!("the job is {}, so that it has no result", state.name())));
    }
    if job.output.is_dir() {
        return Err(Problem::conflict("the result is a folder of images; open it on the server"));
    }
    // A link may have taken the place of the output.
    let real = files::canonicalize(&job.output).ok().filter(|path| app.may_use(path));
    let path = real.ok_or_else(|| Problem::not_found("the result was moved or removed"))?;
    let mut response = file(&path, request).await;
    let name = job.output.file_name().unwrap_or_default().to_string_lossy();
    let value = format!("attachment; filename*=UTF-8''{}", percent(&name));
    if let Ok(value) = HeaderValue::from_str(&value) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

/// Serves a file with ranges and conditions.
pub async fn file(path: &FilePath, request: Request) -> Response {
    match ServeFile::new(path).oneshot(request).await {
        Ok(response) => response.map(Body::new).into_response(),
        Err(never) => match never {},
    }
}

/// Text in the form of RFC 8187.
fn percent(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
