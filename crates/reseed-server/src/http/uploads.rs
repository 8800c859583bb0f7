//! Uploads by the protocol tus 1.0: core, creation and termination.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use super::body::blocking;
use super::jobs::new_id;
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::uploads::{Refusal, Upload};

const VERSION: HeaderValue = HeaderValue::from_static("1.0.0");
const RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
const OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const LENGTH: HeaderName = HeaderName::from_static("upload-length");
/// The longest Upload-Metadata.
const LONGEST: usize = 4096;

/// An answer of the protocol.
fn tus(status: StatusCode, headers: &[(HeaderName, String)]) -> Response {
    let mut response = status.into_response();
    response.headers_mut().insert(RESUMABLE, VERSION);
    for (name, value) in headers {
        HeaderValue::from_str(value).into_iter().for_each(|value| drop(response.headers_mut().insert(name, value)));
    }
    response
}

fn refuse(status: StatusCode, detail: impl Into<String>) -> Problem {
    Problem::new(status, "upload", detail).with(RESUMABLE, VERSION)
}

fn check_version(headers: &HeaderMap) -> Answer<()> {
    match headers.get(RESUMABLE) == Some(&VERSION) {
        true => Ok(()),
        false => {
            let problem = refuse(StatusCode::PRECONDITION_FAILED, "send `Tus-Resumable: 1.0.0`");
            Err(problem.with(HeaderName::from_static("tus-version"), VERSION))
        }
    }
}

/// A header with a number.
fn number(headers: &HeaderMap, name: HeaderName) -> Answer<u64> {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let value = headers.get(&name).and_then(|value| value.to_str().ok()).filter(|text| digits(text));
    let wrong = || refuse(StatusCode::BAD_REQUEST, format!("{name}: not a number of bytes"));
    value.and_then(|text| text.parse().ok()).ok_or_else(wrong)
}

fn known(app: &App, id: &str) -> Answer<Upload> {
    app.uploads.get(id).ok_or_else(|| refuse(StatusCode::NOT_FOUND, "no such upload"))
}

/// What the server supports of the protocol.
#[utoipa::path(options, path = "/v1/uploads", tag = "uploads",
    responses((status = 204, description = "Tus-Version, Tus-Extension and Tus-Max-Size")))]
pub async fn options(State(app): State<Arc<App>>) -> Response {
    let name = HeaderName::from_static;
    let headers = [
        (name("tus-version"), "1.0.0".to_owned()),
        (name("tus-extension"), "creation,termination".to_owned()),
        (name("tus-max-size"), app.config.limits.upload.to_string()),
    ];
    tus(StatusCode::NO_CONTENT, &headers)
}

/// Creates an upload. Its id is the last part of `Location`; jobs name it as `upload`.
#[utoipa::path(post, path = "/v1/uploads", tag = "uploads",
    params(("Tus-Resumable" = String, Header), ("Upload-Length" = u64, Header),
        ("Upload-Metadata" = Option<String>, Header, description = "`filename` and its value in base64")),
    responses((status = 201, description = "Created"), (status = 413, description = "Too large"),
        (status = 429, description = "Too many incomplete uploads")))]
pub async fn create(State(app): State<Arc<App>>, headers: HeaderMap) -> Answer<Response> {
    check_version(&headers)?;
    let length = number(&headers, LENGTH)?;
    let most = app.config.limits.upload;
    if length > most {
        return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, format!("{length} bytes; at most {most} are accepted")));
    }
    let name = file_name(&headers)?;
    let id = new_id()?;
    let location = format!("/v1/uploads/{id}");
    blocking(move || {
        app.uploads.create(&id, length, &name).map_err(|refusal| match refusal {
            Refusal::TooMany(most) => {
                let detail = format!("{most} uploads are incomplete already; complete or remove one");
                refuse(StatusCode::TOO_MANY_REQUESTS, detail)
            }
            Refusal::Storage(cause) => Problem::storage(&cause),
        })
    })
    .await?;
    Ok(tus(StatusCode::CREATED, &[(header::LOCATION, location)]))
}

/// The file name in the metadata.
fn file_name(headers: &HeaderMap) -> Answer<String> {
    let Some(value) = headers.get("upload-metadata") else { return Ok(String::new()) };
    let wrong = || refuse(StatusCode::BAD_REQUEST, "Upload-Metadata: pairs of a key and a value in base64");
    let text = value.to_str().ok().filter(|text| text.len() <= LONGEST).ok_or_else(wrong)?;
    let mut pairs = text.split(',').filter_map(|pair| pair.trim().split_once(' '));
    match pairs.find(|(key, _)| *key == "filename") {
        Some((_, value)) => base64(value.trim()).and_then(|bytes| String::from_utf8(bytes).ok()).ok_or_else(wrong),
        None => Ok(String::new()),
    }
}

/// Decodes base64.
fn base64(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

/// How many bytes of an upload have arrived.
#[utoipa::path(head, path = "/v1/uploads/{id}", tag = "uploads",
    params(("id" = String, Path), ("Tus-Resumable" = String, Header)),
    responses((status = 200, description = "Upload-Offset and Upload-Length"),
        (status = 404, description = "Unknown")))]
pub async fn offset(State(app): State<Arc<App>>, Path(id): Path<String>, headers: HeaderMap) -> Answer<Response> {
    check_version(&headers)?;
    let Upload { length, offset } = known(&app, &id)?;
    Ok(tus(StatusCode::OK, &[(OFFSET, offset.to_string()), (LENGTH, length.to_string())]))
}

/// Adds bytes to an upload. What has arrived stays when the connection breaks.
#[utoipa::path(patch, path = "/v1/uploads/{id}", tag = "uploads",
    params(("id" = String, Path), ("Tus-Resumable" = String, Header), ("Upload-Offset" = u64, Header)),
    responses((status = 204, description = "Added"), (status = 409, description = "Wrong offset"),
        (status = 423, description = "Another request adds bytes")))]
pub async fn append(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Answer<Response> {
    let headers = request.headers();
    check_version(headers)?;
    if headers.get(header::CONTENT_TYPE) != Some(&HeaderValue::from_static("application/offset+octet-stream")) {
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/offset+octet-stream"));
    }
    let from = number(headers, OFFSET)?;
    let busy = || refuse(StatusCode::LOCKED, "another request adds bytes to this upload");
    let _lock = app.uploads.lock(&id).ok_or_else(busy)?;
    let Upload { length, offset } = known(&app, &id)?;
    if from != offset {
        return Err(refuse(StatusCode::CONFLICT, format!("{offset} bytes have arrived; continue there")));
    }
    if offset == length {
        return Ok(tus(StatusCode::NO_CONTENT, &[(OFFSET, offset.to_string())]));
    }
    let offset = write(&app, &id, request.into_body(), [offset, length]).await?;
    if offset == length {
        let shared = app.clone();
        blocking(move || shared.uploads.finish(&id).map_err(|cause| Problem::storage(&cause))).await?;
    }
    Ok(tus(StatusCode::NO_CONTENT, &[(OFFSET, offset.to_string())]))
}

/// Writes a body at the end of an upload.
async fn write(app: &App, id: &str, body: Body, [mut offset, length]: [u64; 2]) -> Answer<u64> {
    let storage = |cause| Problem::storage(&cause);
    let mut file = File::options().append(true).open(app.uploads.data(id)).await.map_err(storage)?;
    let mut stream = body.into_data_stream();
    let mut result = Ok(());
    loop {
        let part = match tokio::time::timeout(app.config.limits.idle, stream.next()).await {
            Ok(Some(Ok(part))) => part,
            Ok(None) => break,
            Ok(Some(Err(_))) => {
                result = Err(refuse(StatusCode::BAD_REQUEST, "the body is cut off"));
                break;
            }
            Err(_) => {
                result = Err(refuse(StatusCode::REQUEST_TIMEOUT, "no bytes arrive"));
                break;
            }
        };
        if offset + part.len() as u64 > length {
            result = Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, format!("more than the {length} bytes of the upload")));
            break;
        }
        file.write_all(&part).await.map_err(storage)?;
        offset += part.len() as u64;
    }
    file.flush().await.map_err(storage)?;
    result.map(|()| offset)
}

/// Removes an upload. A job that has it as its input fails when it is not done.
#[utoipa::path(delete, path = "/v1/uploads/{id}", tag = "uploads",
    params(("id" = String, Path), ("Tus-Resumable" = String, Header)),
    responses((status = 204, description = "Removed"), (status = 404, description = "Unknown")))]
pub async fn remove(State(app): State<Arc<App>>, Path(id): Path<String>, headers: HeaderMap) -> Answer<Response> {
    check_version(&headers)?;
    let removed = blocking(move || {
        let _lock = app.uploads.lock(&id).ok_or_else(|| refuse(StatusCode::LOCKED, "bytes are being added"))?;
        app.uploads.remove(&id).map_err(|cause| Problem::storage(&cause))
    });
    match removed.await? {
        true => Ok(tus(StatusCode::NO_CONTENT, &[])),
        false => Err(refuse(StatusCode::NOT_FOUND, "no such upload")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded() {
        for (text, plain) in [("", ""), ("Zg==", "f"), ("Zm9v", "foo"), ("dGFwZSAxLm1wNA==", "tape 1.mp4")] {
            assert_eq!(base64(text).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(base64("a b"), None);
    }
}
