//! The routes, and what every request passes.

mod body;
mod estimate;
mod events;
mod files;
mod guard;
mod jobs;
mod login;
mod machine;
mod models;
mod openapi;
mod page;
mod previews;
mod results;
mod stills;
mod uploads;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, head, options, patch, post};
use tower_http::catch_panic::CatchPanicLayer;

use crate::app::App;
use crate::problem::Problem;

/// A route: method, path and handler.
type Route = (&'static str, &'static str, MethodRouter<Arc<App>>);

/// All routes of the API. The OpenAPI document has the same.
fn routes() -> Vec<Route> {
    vec![
        ("get", "/health", get(machine::health)),
        ("get", "/metrics", get(machine::metrics)),
        ("get", "/openapi.json", get(openapi::document)),
        ("get", "/login", get(login::with_code)),
        ("post", "/login", post(login::with_token)),
        ("get", "/v1/capabilities", get(machine::capabilities)),
        ("get", "/v1/models", get(models::list)),
        ("post", "/v1/models/{name}", post(models::download)),
        ("delete", "/v1/models/{name}", delete(models::cancel)),
        ("get", "/v1/presets", get(files::presets)),
        ("get", "/v1/files", get(files::list)),
        ("get", "/v1/inputs", get(stills::input)),
        ("get", "/v1/inputs/frame", get(stills::input_frame)),
        ("get", "/v1/events", get(events::stream)),
        ("get", "/v1/jobs", get(jobs::list)),
        ("post", "/v1/jobs", post(jobs::create)),
        ("get", "/v1/jobs/{id}", get(jobs::one)),
        ("delete", "/v1/jobs/{id}", delete(jobs::delete)),
        ("post", "/v1/jobs/{id}/pause", post(jobs::pause)),
        ("post", "/v1/jobs/{id}/resume", post(jobs::resume)),
        ("post", "/v1/jobs/{id}/retry", post(jobs::retry)),
        ("get", "/v1/jobs/{id}/result", get(results::result)),
        ("post", "/v1/jobs/{id}/folder", post(results::open_folder)),
        ("get", "/v1/jobs/{id}/frames/{side}", get(stills::job_frame)),
        ("post", "/v1/order", post(jobs::order)),
        ("post", "/v1/estimate", post(estimate::estimate)),
        ("post", "/v1/previews", post(previews::create)),
        ("get", "/v1/previews/{id}/{side}", get(previews::image)),
        ("options", "/v1/uploads", options(uploads::options)),
        ("post", "/v1/uploads", post(uploads::create)),
        ("head", "/v1/uploads/{id}", head(uploads::offset)),
        ("patch", "/v1/uploads/{id}", patch(uploads::append)),
        ("delete", "/v1/uploads/{id}", delete(uploads::remove)),
    ]
}

/// The whole service.
pub fn router(app: Arc<App>) -> Router {
    let add = |router: Router<Arc<App>>, (_, path, handler): Route| router.route(path, handler);
    let router = routes().into_iter().fold(Router::new(), add);
    router
        .fallback(page::serve)
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", "this address does not have this method")
        })
        .layer(from_fn_with_state(app.clone(), guard::guard))
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(app)
}

fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    tracing::error!("a request panicked");
    Problem::failed("an internal error; see the log of the server").into_response()
}
