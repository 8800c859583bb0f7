//! The page, which is part of the program.

use std::path::Path;

use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use reseed::media::digest;

use crate::problem::Problem;

/// The files of the page: name and content.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/page.rs"));
const INDEX: &str = "index.html";

fn find(path: &str) -> Option<(&'static str, &'static [u8])> {
    let name = match path.strip_prefix('/')? {
        "" => INDEX,
        name => name,
    };
    FILES.iter().find(|(known, _)| *known == name).copied()
}

/// Whether an address is that of a file of the page.
pub fn has(path: &str) -> bool {
    find(path).is_some()
}

/// A file of the page. Browsers ask each time whether it has changed.
pub async fn serve(request: Request) -> Response {
    let Some((name, content)) = find(request.uri().path()) else {
        return Problem::not_found("no such address").into_response();
    };
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let detail = "this address does not have this method";
        return Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", detail).into_response();
    }
    let tag = format!("\"{:016x}\"", digest(0, content));
    let headers = [
        (header::CONTENT_TYPE, kind(name).to_owned()),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::ETAG, tag.clone()),
    ];
    let known = request.headers().get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    match known.is_some_and(|known| known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag)) {
        true => (StatusCode::NOT_MODIFIED, headers).into_response(),
        false => (headers, content).into_response(),
    }
}

fn kind(name: &str) -> &'static str {
    match Path::new(name).extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("json" | "webmanifest") => "application/json",
        Some("woff2") => "font/woff2",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_asks_no_other_site() {
        assert!(FILES.iter().map(|(_, content)| content.len()).sum::<usize>() <= 100 << 10);
        for (name, content) in FILES {
            // The name of a vocabulary is no address that a browser opens.
            let text = String::from_utf8_lossy(content).replace("http://www.w3.org/", "");
            assert!(!["http:", "https:", "//cdn"].iter().any(|address| text.contains(address)), "{name}");
            // The policy forbids code and style within the page.
            let html = name.ends_with(".html");
            assert!(!html || !["<style", " style=", " onclick"].iter().any(|tag| text.contains(tag)), "{name}");
        }
    }

    #[test]
    fn every_file_of_the_page_has_a_kind() {
        assert!(has("/") && has("/index.html") && !has("/page.rs") && !has("//") && !has("/../Cargo.toml"));
        assert!(FILES.iter().all(|(name, _)| !kind(name).starts_with("text/plain") || name.ends_with(".txt")));
    }
}
