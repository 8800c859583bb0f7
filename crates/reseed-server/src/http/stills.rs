//! Single frames of inputs and results, and what an input is.

use std::fs;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use reseed::media::video::Clip;
use reseed::media::{Depth, Frame, Info, Kind, digest, files};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::body::{Params, blocking};
use super::results::file;
use crate::app::App;
use crate::journal::{Accepted, State as JobState};
use crate::problem::{Answer, Problem};
use crate::queue::ChangeError;
use crate::request::{bytes_of, described, find_input, frame_rate, parsed, seconds, settings_of};
use crate::settings::Chosen;
use crate::stills::{Still, within};

/// The widest image that a client may ask for.
const WIDEST: usize = 8192;

/// An input.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct InputQuery {
    /// A file or a folder of images under a root.
    input: Option<String>,
    /// A complete upload, instead of an input.
    upload: Option<String>,
}

/// A frame of an input.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct InputFrameQuery {
    /// A file or a folder of images under a root.
    input: Option<String>,
    /// A complete upload, instead of an input.
    upload: Option<String>,
    /// Seconds from the start; 0 unless given.
    #[serde(default)]
    at: f64,
    /// Most columns of the image. It is never enlarged.
    width: Option<usize>,
}

/// A frame of a job.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct FrameQuery {
    /// Seconds from the start of the result; 0 unless given.
    #[serde(default)]
    at: f64,
    /// Most columns of the image. It is never enlarged.
    width: Option<usize>,
}

/// What an input is.
#[derive(Serialize, ToSchema)]
pub struct InputView {
    /// Its file name.
    name: String,
    /// video, image, pages, folder or animation.
    kind: &'static str,
    /// Width and height.
    size: [usize; 2],
    /// Frames, where they are known.
    frames: Option<usize>,
    /// Frames per second.
    fps: f64,
    /// The same as a fraction.
    rate: String,
    /// How long it is shown, where that is known.
    seconds: Option<f64>,
    /// Whether it has transparency.
    alpha: bool,
    /// Bits of a sample: 8 or 16.
    bits: u8,
    /// Bytes of the file, or of all images.
    bytes: u64,
}

impl InputView {
    fn new(path: &FilePath, info: &Info) -> InputView {
        InputView {
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            kind: match info.kind {
                Kind::Image => "image",
                Kind::Pages => "pages",
                Kind::Folder => "folder",
                Kind::Animation(_) => "animation",
                Kind::Y4m(_) | Kind::Video(_) => "video",
            },
            size: [info.size.w, info.size.h],
            frames: info.frames,
            fps: frame_rate(info),
            rate: format!("{}/{}", info.rate.num, info.rate.den),
            seconds: seconds(info),
            alpha: info.alpha,
            bits: if info.depth == Depth::Eight { 8 } else { 16 },
            bytes: bytes_of(path, info),
        }
    }
}

/// What an input is: its size, its frames and their rate.
#[utoipa::path(get, path = "/v1/inputs", tag = "files", params(InputQuery),
    responses((status = 200, body = InputView), (status = 422, description = "It cannot be used")))]
pub async fn input(State(app): State<Arc<App>>, Params(query): Params<InputQuery>) -> Answer<Json<InputView>> {
    let Ok(_permit) = app.probes.acquire().await else { return Err(Problem::failed("the server stops")) };
    let shared = app.clone();
    blocking(move || {
        let path = find_input(&shared, query.input.as_deref(), query.upload.as_deref())?;
        Ok(Json(InputView::new(&path, &described(&shared, &path, Clip::default())?)))
    })
    .await
}

/// A frame of an input, before a job exists.
#[utoipa::path(get, path = "/v1/inputs/frame", tag = "files", params(InputFrameQuery),
    responses((status = 200, description = "The image", content_type = "image/png"),
        (status = 422, description = "The input cannot be used, or ends before")))]
pub async fn input_frame(
    State(app): State<Arc<App>>,
    Params(query): Params<InputFrameQuery>,
    request: Request,
) -> Answer<Response> {
    let InputFrameQuery { input, upload, at, width } = query;
    let at = checked(at, width)?;
    let shared = app.clone();
    image(&app, request, move || {
        let path = find_input(&shared, input.as_deref(), upload.as_deref())?;
        let name = named(&path, &format!("{at} {width:?}"));
        made(&shared, &name, || {
            let info = described(&shared, &path, Clip::default())?;
            let (rate, frames) = (frame_rate(&info), info.frames);
            let (info, frame) = read(Still { path: &path, clip: Clip::default(), at, rate, frames })?;
            Ok((within(&info, frame, width)?, info))
        })
    })
    .await
}

/// A frame of a job's input, resized to the size of the result (`before`), or of its result (`after`). Both show the
/// same frame at the same time.
#[utoipa::path(get, path = "/v1/jobs/{id}/frames/{side}", tag = "jobs",
    params(("id" = String, Path), ("side" = String, Path, description = "before or after"), FrameQuery),
    responses((status = 200, description = "The image", content_type = "image/png"),
        (status = 404, description = "No such job or side"), (status = 409, description = "The job is not done"),
        (status = 422, description = "The file cannot be used, or ends before")))]
pub async fn job_frame(
    State(app): State<Arc<App>>,
    Path((id, side)): Path<(String, String)>,
    Params(FrameQuery { at, width }): Params<FrameQuery>,
    request: Request,
) -> Answer<Response> {
    let (job, state) = app.queue.accepted(&id).ok_or(ChangeError::Unknown(id))?;
    let at = checked(at, width)?;
    let after = match side.as_str() {
        "before" => false,
        "after" if state == JobState::Done => true,
        "after" => return Err(Problem::conflict(format!("the job is {}, so that it has no result", state.name()))),
        _ => return Err(Problem::not_found("a side is before or after")),
    };
    let shared = app.clone();
    image(&app, request, move || {
        let path = if after { &job.output } else { &job.input };
        let real = files::canonicalize(path).ok().filter(|path| shared.may_use(path));
        let path = real.ok_or_else(|| Problem::not_found("the file was moved or removed"))?;
        let name = named(&path, &format!("{} {side} {at} {width:?}", job.id));
        made(&shared, &name, || {
            let chosen = parsed(&job.settings)?;
            let clip = if after { Clip::default() } else { chosen.clip };
            let (info, frame) = read(Still { path: &path, clip, at, rate: job.rate(), frames: job.frames })?;
            let frame = if after { frame } else { resized(&job, chosen, &info, &frame)? };
            Ok((within(&info, frame, width)?, info))
        })
    })
    .await
}

/// The input of a job at the size of its result.
fn resized(job: &Accepted, chosen: Chosen, info: &Info, frame: &Frame) -> Answer<Frame> {
    Ok(settings_of(job, chosen, info).resized_input(info, frame)?)
}

/// A time and a width within their limits.
fn checked(at: f64, width: Option<usize>) -> Answer<f64> {
    if width.is_some_and(|width| width == 0 || width > WIDEST) {
        return Err(Problem::invalid(format!("width: 1 to {WIDEST} pixels")));
    }
    if (0.0..1e9).contains(&at) { Ok(at) } else { Err(Problem::invalid("at: seconds from the start, 0 or more")) }
}

fn read(still: Still) -> Answer<(Info, Frame)> {
    let read = still.read().map_err(reseed::Error::Input)?;
    read.ok_or_else(|| Problem::invalid(format!("at: the clip ends before {} s", still.at)))
}

/// The name of an image of a file as it is now.
fn named(path: &FilePath, what: &str) -> String {
    let state = fs::metadata(path).ok().map(|file| (file.len(), file.modified().ok()));
    let at = |time: std::time::SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let state = state.map(|(bytes, time)| (bytes, time.map(at)));
    let text = format!("{} {state:?} {what}", path.display());
    // Two seeds, because images of different files must not have one name.
    format!("frame-{:016x}{:016x}", digest(1, text.as_bytes()), digest(2, text.as_bytes()))
}

/// The image with a name, made unless it is kept.
fn made(app: &App, name: &str, make: impl FnOnce() -> Answer<(Frame, Info)>) -> Answer<std::path::PathBuf> {
    if let Some(path) = app.images.get(name) {
        return Ok(path);
    }
    let (frame, info) = make()?;
    Ok(app.images.add(name, &info, &frame)?)
}

/// Answers with a file that `find` finds or makes.
async fn image(
    app: &App,
    request: Request,
    find: impl FnOnce() -> Answer<std::path::PathBuf> + Send + 'static,
) -> Answer<Response> {
    let Ok(_permit) = app.probes.acquire().await else { return Err(Problem::failed("the server stops")) };
    let path = blocking(find).await?;
    let mut response = file(&path, request).await;
    // Moving a slider to and fro asks once.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("private, max-age=300"));
    Ok(response)
}
