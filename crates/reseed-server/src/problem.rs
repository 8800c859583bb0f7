//! Errors as `application/problem+json` (RFC 9457).

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use reseed::Kind;
use serde_json::{Value, json};

/// An error that a client sees.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    /// Ends the type of the problem.
    kind: &'static str,
    detail: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem of a kind.
    pub fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Problem {
        Problem { status, kind, detail: detail.into(), headers: Vec::new() }
    }

    /// A request that the server does not understand.
    pub fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "bad-request", detail)
    }

    /// A value that cannot be used.
    pub fn invalid(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "usage", detail)
    }

    /// Something that is not known.
    pub fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// A request that does not suit the state.
    pub fn conflict(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::CONFLICT, "conflict", detail)
    }

    /// A failure of the server.
    pub fn failed(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", detail)
    }

    /// The server cannot write or read a file of its own.
    pub fn storage(cause: &std::io::Error) -> Problem {
        tracing::error!(%cause, "the data folder cannot be used");
        let full = matches!(cause.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
        let status = if full { StatusCode::INSUFFICIENT_STORAGE } else { StatusCode::INTERNAL_SERVER_ERROR };
        Problem::new(status, "storage", format!("the data folder of the server cannot be used: {cause}"))
    }

    /// The problem with one more header.
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Problem {
        self.headers.push((name, value));
        self
    }

    fn json(&self) -> Value {
        json!({
            "type": format!("urn:reseed:problem:{}", self.kind),
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "detail": self.detail,
        })
    }
}

impl From<reseed::Error> for Problem {
    fn from(error: reseed::Error) -> Problem {
        let status = match error.kind() {
            Kind::Usage | Kind::Input | Kind::Model => StatusCode::UNPROCESSABLE_ENTITY,
            Kind::Memory => StatusCode::INSUFFICIENT_STORAGE,
            Kind::Device => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Cancelled => StatusCode::CONFLICT,
            Kind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Problem::new(status, error.kind().name(), error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = self.json().to_string();
        let mut response = (self.status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response();
        response.headers_mut().extend(self.headers);
        response
    }
}

/// Result of a request.
pub type Answer<T> = std::result::Result<T, Problem>;
