//! Finished outputs.

use std::path::{Path as FilePath, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
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
    let output = output(&app, id)?;
    let path = found(&app, &output)?;
    if path.is_dir() {
        return Err(Problem::conflict("the result is a folder of images; open it on the server"));
    }
    let mut response = file(&path, request).await;
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    let value = format!("attachment; filename*=UTF-8''{}", percent(&name));
    if let Ok(value) = HeaderValue::from_str(&value) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

/// Shows the folder of a result on the desktop of the machine that the server runs on.
#[utoipa::path(post, path = "/v1/jobs/{id}/folder", tag = "jobs", params(("id" = String, Path)),
    responses((status = 204, description = "A program that shows the folder was started"),
        (status = 404, description = "No such job, or this server opens no folders"),
        (status = 409, description = "The job is not done")))]
pub async fn open_folder(State(app): State<Arc<App>>, Path(id): Path<String>) -> Answer<StatusCode> {
    let Some(opener) = app.config.opener.clone() else {
        return Err(Problem::not_found("this server opens no folders"));
    };
    let path = found(&app, &output(&app, id)?)?;
    let folder = if path.is_dir() { &path } else { path.parent().unwrap_or(&path) };
    let mut command = Command::new(opener);
    command.arg(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut started = command.spawn().map_err(|cause| Problem::failed(format!("no folder can be shown: {cause}")))?;
    // Its exit code says nothing: the file manager of Windows always fails.
    std::thread::spawn(move || started.wait());
    Ok(StatusCode::NO_CONTENT)
}

/// The output of a job that is done.
fn output(app: &App, id: String) -> Answer<PathBuf> {
    let (job, state) = app.queue.accepted(&id).ok_or(ChangeError::Unknown(id))?;
    match state {
        JobState::Done => Ok(job.output),
        state => Err(Problem::conflict(format!("the job is {}, so that it has no result", state.name()))),
    }
}

/// Where an output is. A link may have taken its place.
fn found(app: &App, output: &FilePath) -> Answer<PathBuf> {
    let real = files::canonicalize(output).ok().filter(|path| app.may_use(path));
    real.ok_or_else(|| Problem::not_found("the result was moved or removed"))
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
