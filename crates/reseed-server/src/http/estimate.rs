//! Estimates.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use serde::Serialize;
use utoipa::ToSchema;

use super::body::{self, blocking};
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::request::{EstimateRequest, Wish, bytes_of, frame_rate, seconds};

/// What a job would need.
#[derive(Serialize, ToSchema)]
pub struct EstimateView {
    /// Width and height of the input.
    input_size: [usize; 2],
    /// Width and height of the output.
    output_size: [usize; 2],
    /// The name that the output has unless another is chosen.
    output_name: String,
    /// Frames of the input.
    frames: usize,
    /// Frames per second of the input and of the output.
    frame_rate: f64,
    /// How long the result is shown.
    duration_seconds: f64,
    /// Bytes of the input.
    input_bytes: u64,
    /// The device that the estimate is for.
    device: String,
    /// Batches, without the cuts of shots.
    batches: usize,
    /// Time in the networks.
    seconds: f64,
    /// Frames per second in the networks.
    fps: f64,
    /// Bytes of GPU memory; zero on the CPU.
    device_bytes: usize,
    /// Bytes of host memory.
    host_bytes: usize,
    /// Bytes of the output, roughly.
    output_bytes: u64,
    /// Bytes of temporary files.
    work_bytes: u64,
    /// The rates that the time is based on.
    based_on: String,
}

/// Estimates time, memory and disk space of a job. Nothing is computed but a short measurement of the CPU.
#[utoipa::path(post, path = "/v1/estimate", tag = "jobs", request_body = EstimateRequest,
    responses((status = 200, body = EstimateView), (status = 422, description = "A value cannot be used")))]
pub async fn estimate(State(app): State<Arc<App>>, request: Request) -> Answer<Json<EstimateView>> {
    let (EstimateRequest { input, upload, preset, model, device, settings }, _) = body::json(&app, request).await?;
    let Ok(_permit) = app.probes.acquire().await else { return Err(Problem::failed("the server stops")) };
    let shared = app.clone();
    blocking(move || {
        let checked = Wish { input, upload, preset, model, settings }.check(&shared)?;
        let device = shared.device(device.as_deref())?;
        let output = shared.results("estimate").join(checked.output_name());
        let settings = checked.settings_for(&output);
        let estimate = shared.estimate(&device, &checked.model, &checked.info, &settings)?;
        let disk = estimate.disk(&checked.chosen.video);
        let (input, output) = (estimate.input_size, estimate.output_size);
        Ok(Json(EstimateView {
            input_size: [input.w, input.h],
            output_size: [output.w, output.h],
            output_name: checked.output_name(),
            frame_rate: frame_rate(&checked.info),
            duration_seconds: seconds(&checked.info).unwrap_or(0.0),
            input_bytes: bytes_of(&checked.input, &checked.info),
            device,
            frames: estimate.frames,
            batches: estimate.batches,
            seconds: estimate.seconds,
            fps: estimate.fps(),
            device_bytes: estimate.device_bytes,
            host_bytes: estimate.host_bytes,
            output_bytes: disk.output,
            work_bytes: disk.work,
            based_on: estimate.based_on.clone(),
        }))
    })
    .await
}
