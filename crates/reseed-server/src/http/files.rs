//! Files that clients may name, and presets.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::body::{Params, blocking};
use crate::app::App;
use crate::files::FileList;
use crate::presets::{self, PresetList};
use crate::problem::{Answer, Problem};

/// A folder.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct FolderQuery {
    /// A folder under a root; all roots unless given.
    #[serde(default)]
    path: String,
}

/// Lists the folders and media files of a folder, or the roots.
#[utoipa::path(get, path = "/v1/files", tag = "files", params(FolderQuery),
    responses((status = 200, body = FileList), (status = 422, description = "Not a folder under a root")))]
pub async fn list(State(app): State<Arc<App>>, Params(query): Params<FolderQuery>) -> Answer<Json<FileList>> {
    let refused = |error: crate::roots::PathProblem| Problem::invalid(error.to_string());
    blocking(move || app.roots.list(&query.path).map(Json).map_err(refused)).await
}

/// Lists presets: those of the operator and those of the library.
#[utoipa::path(get, path = "/v1/presets", tag = "jobs", responses((status = 200, body = PresetList)))]
pub async fn presets() -> Answer<Json<PresetList>> {
    blocking(|| Ok(Json(PresetList { presets: presets::all()? }))).await
}
