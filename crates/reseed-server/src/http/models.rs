//! Models and their downloads.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::body::blocking;
use crate::app::App;
use crate::downloads::ModelView;
use crate::problem::{Answer, Problem};

/// All models.
#[derive(Serialize, ToSchema)]
pub struct ModelList {
    /// The best first.
    models: Vec<ModelView>,
}

/// The models of this machine, and those that can be downloaded.
#[utoipa::path(get, path = "/v1/models", tag = "models", responses((status = 200, body = ModelList)))]
pub async fn list(State(app): State<Arc<App>>) -> Answer<Json<ModelList>> {
    blocking(move || Ok(Json(ModelList { models: app.downloads.models() }))).await
}

/// Downloads a model. Progress and end are events of the kind `model`. Parts of an earlier download are used.
#[utoipa::path(post, path = "/v1/models/{name}", tag = "models", params(("name" = String, Path)),
    responses((status = 200, body = ModelView, description = "It is on this machine"),
        (status = 202, body = ModelView, description = "The download waits or runs"),
        (status = 422, description = "No such model")))]
pub async fn download(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<Response> {
    blocking(move || {
        let model = reseed::models::find(&name)?;
        let view = app.downloads.start(model).map_err(|error| Problem::failed(error.to_string()))?;
        let status = if view.installed { StatusCode::OK } else { StatusCode::ACCEPTED };
        Ok((status, Json(view)).into_response())
    })
    .await
}

/// Ends the download of a model. Its parts are kept for the next one.
#[utoipa::path(delete, path = "/v1/models/{name}", tag = "models", params(("name" = String, Path)),
    responses((status = 200, body = ModelView), (status = 409, description = "No download of this model runs"),
        (status = 422, description = "No such model")))]
pub async fn cancel(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<Json<ModelView>> {
    blocking(move || {
        let model = reseed::models::find(&name)?;
        match app.downloads.cancel(model) {
            true => Ok(Json(app.downloads.view(model))),
            false => Err(Problem::conflict("no download of this model runs")),
        }
    })
    .await
}
