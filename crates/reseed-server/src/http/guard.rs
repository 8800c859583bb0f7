//! Who may use the server: the Host and Origin headers against web pages of others, then the token.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::page;
use crate::app::{App, Counters};
use crate::problem::{Answer, Problem};

/// Headers of every answer.
const HEADERS: &[(HeaderName, &str)] = &[
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::CACHE_CONTROL, "no-store"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; \
         connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
];

/// Addresses that need no token, beside the files of the page. None of them reveals anything or changes anything.
const PUBLIC: &[&str] = &["/health", "/login"];

/// Refuses requests that do not come from the page of this server or from a program with its token.
pub async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    Counters::add(&app.counters.requests, 1);
    let admitted = check_host(&app, &request)
        .and_then(|()| check_origin(&app, &request))
        .and_then(|()| check_token(&app, &request));
    let mut response = match admitted {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    let policy = HeaderName::from_static("cross-origin-resource-policy");
    response.headers_mut().insert(policy, HeaderValue::from_static("same-origin"));
    response
}

/// Another name for this address may belong to an attacker (DNS rebinding).
fn check_host(app: &App, request: &Request) -> Answer<()> {
    let mut values = request.headers().get_all(header::HOST).iter();
    let host = match (values.next(), values.next()) {
        (Some(host), None) => host.to_str().ok(),
        _ => None,
    };
    let known = |host: &str| app.hosts.iter().any(|known| known.eq_ignore_ascii_case(host));
    let authority = request.uri().authority().is_none_or(|authority| known(authority.as_str()));
    match host {
        Some(host) if known(host) && authority => Ok(()),
        _ => {
            let detail = "this server does not answer to that host name; the operator can allow it";
            Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "host", detail))
        }
    }
}

/// A page of another site may send requests, with the cookie in old browsers.
fn check_origin(app: &App, request: &Request) -> Answer<()> {
    let foreign = || {
        let detail = "requests from pages of other sites are refused";
        Err(Problem::new(StatusCode::FORBIDDEN, "origin", detail))
    };
    let headers = request.headers();
    for origin in headers.get_all(header::ORIGIN) {
        let text = origin.to_str().unwrap_or_default();
        let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).unwrap_or_default();
        if !app.hosts.iter().any(|known| known.eq_ignore_ascii_case(host)) {
            return foreign();
        }
    }
    let site = value(headers, "sec-fetch-site").unwrap_or("none");
    let link = request.method() == Method::GET
        && request.uri().path() == "/"
        && value(headers, "sec-fetch-mode") == Some("navigate");
    if ["none", "same-origin"].contains(&site) || link { Ok(()) } else { foreign() }
}

fn value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn check_token(app: &App, request: &Request) -> Answer<()> {
    let Some(keys) = &app.keys else { return Ok(()) };
    let path = request.uri().path();
    if PUBLIC.contains(&path) || page::has(path) {
        return Ok(());
    }
    let bearer = value(request.headers(), "authorization").and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    let name = cookie_name(app.port);
    let cookies = request.headers().get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut cookies = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let known = bearer.is_some_and(|token| keys.is_token(token))
        || cookies.any(|(found, value)| found == name && keys.is_cookie(value));
    if known {
        return Ok(());
    }
    let detail = "a token is needed; send it as `Authorization: Bearer TOKEN`, or open the address that the server \
                  printed when it started";
    let problem = Problem::new(StatusCode::UNAUTHORIZED, "token", detail);
    Err(problem.with(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
}

/// The cookie of a port: browsers send cookies to all ports of a host.
pub fn cookie_name(port: u16) -> String {
    format!("reseed-{port}")
}
