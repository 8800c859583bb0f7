//! Bodies and queries of requests.

use axum::body::to_bytes;
use axum::extract::{FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use reseed::media::digest;
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::problem::{Answer, Problem};

/// A body in JSON, and its digest.
pub async fn json<T: DeserializeOwned>(app: &App, request: Request) -> Answer<(T, u64)> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    // A form of another site cannot send this type without asking.
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        let detail = "the body must be application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content-type", detail));
    }
    let limit = app.config.limits.body;
    let read = tokio::time::timeout(app.config.limits.idle, to_bytes(request.into_body(), limit)).await;
    let slow = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body took too long");
    let large = |_| {
        let detail = format!("the body is cut off, or longer than {limit} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body", detail)
    };
    let bytes = read.map_err(slow)?.map_err(large)?;
    let value = serde_json::from_slice(&bytes).map_err(|error| Problem::invalid(format!("the body: {error}")))?;
    Ok((value, digest(0, &bytes)))
}

/// The query of an address.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Params<T>> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(query)| Params(query)).map_err(|error| Problem::invalid(error.body_text()))
    }
}

/// Runs work that waits for files or processes.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Answer<T> + Send + 'static) -> Answer<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Problem::failed("an internal error; see the log of the server")))
}
