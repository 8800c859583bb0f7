//! The connection to object storage, over the HTTP client that downloads models too.

use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use ureq::Agent;

/// Longest wait for a connection, and for the next piece of an answer.
const SILENCE: Duration = Duration::from_secs(30);
/// Largest answer; objects are read in smaller pieces.
const MOST: u64 = 256 << 20;

/// Connects to object storage. A request blocks its thread: storage is used by one request at a time.
#[derive(Debug)]
pub struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .max_redirects(0)
            .timeout_connect(Some(SILENCE))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .user_agent(concat!("reseed/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Ok(HttpClient::new(Client(agent)))
    }
}

#[derive(Debug)]
struct Client(Agent);

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let answer = match bytes.is_empty() {
            true => self.0.run(ureq::http::Request::from_parts(parts, ())),
            false => self.0.run(ureq::http::Request::from_parts(parts, &bytes[..])),
        };
        let (parts, mut body) = answer.map_err(failed)?.into_parts();
        let content = body.with_config().limit(MOST).read_to_vec().map_err(failed)?;
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(content)))
    }
}

/// The kind of an error tells whether the request is repeated.
fn failed(error: ureq::Error) -> HttpError {
    let kind = match &error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => HttpErrorKind::Connect,
        ureq::Error::Timeout(_) => HttpErrorKind::Timeout,
        ureq::Error::Io(_) | ureq::Error::Protocol(_) => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, error)
}
