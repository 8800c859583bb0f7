//! Hostile requests: each case is refused.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use reseed_server::{Access, Config, Error, Limits, Server};
use serde_json::json;

use crate::common::{GUARD, Lab, job};

/// The status of a raw answer.
fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("closed")
}

impl Lab {
    /// A raw GET with the token and these further lines.
    fn raw_get(&self, path: &str, lines: &[&str]) -> String {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let token = &self.server().token;
        self.raw(&format!("GET {path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n{lines}\r\n"))
    }
}

#[test]
fn other_host_names_are_refused() {
    let lab = Lab::new();
    let port = lab.server().address.port();
    for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("LOCALHOST:{port}")] {
        assert_eq!(status(&lab.raw_get("/v1/jobs", &[&format!("Host: {host}")])), "200", "{host}");
    }
    for host in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        "127.0.0.1".into(),
        "127.0.0.1:1".into(),
        format!("127.0.0.1:{port}.evil.example"),
        format!("localhost.:{port}"),
        format!("0.0.0.0:{port}"),
        String::new(),
    ] {
        assert_eq!(status(&lab.raw_get("/v1/jobs", &[&format!("Host: {host}")])), "421", "{host}");
    }
}

#[test]
fn missing_and_repeated_host_headers_are_refused() {
    let lab = Lab::new();
    let host = format!("Host: {}", lab.server().address);
    assert_ne!(status(&lab.raw_get("/v1/jobs", &[])), "200");
    assert_ne!(status(&lab.raw_get("/v1/jobs", &[&host, "Host: evil.example"])), "200");
    assert_eq!(status(&lab.raw_get("http://evil.example/v1/jobs", &[&host])), "421");
}

#[test]
fn even_harmless_addresses_need_the_right_host() {
    let lab = Lab::new();
    for path in ["/health", "/login?code=x", "/"] {
        assert_eq!(status(&lab.raw_get(path, &["Host: evil.example"])), "421", "{path}");
    }
}

#[test]
fn pages_of_other_sites_are_refused() {
    let lab = Lab::new();
    let address = lab.server().address;
    let send = |name: &str, value: &str| lab.send("GET", "/v1/jobs", &[(name, value)], b"");
    assert_eq!(send("origin", &format!("http://{address}")).status, 200);
    assert_eq!(send("sec-fetch-site", "same-origin").status, 200);
    for origin in ["null", "http://evil.example", "http://127.0.0.1", "http://127.0.0.1:1", "file://", ""] {
        send("origin", origin).assert_problem(403, "origin");
    }
    send("origin", &format!("http://{address}.evil.example")).assert_problem(403, "origin");
    for site in ["cross-site", "same-site"] {
        send("sec-fetch-site", site).assert_problem(403, "origin");
    }
}

#[test]
fn forms_of_other_sites_cannot_post() {
    let lab = Lab::new();
    lab.clip("in.y4m", 2);
    let body = job("in.y4m", "out.y4m").to_string();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
        let reply = lab.send("POST", "/v1/jobs", &[("content-type", kind)], body.as_bytes());
        reply.assert_problem(415, "content-type");
    }
}

#[test]
fn a_token_is_needed_everywhere() {
    let lab = Lab::new();
    let host = format!("Host: {}", lab.server().address);
    let get = |path: &str, line: &str| {
        lab.raw(&format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{host}\r\n{line}\r\n\r\n"))
    };
    for path in ["/v1/jobs", "/v1/events", "/metrics", "/openapi.json", "/v1/models", "/v1/jobs/x/result", "/nothing"] {
        let answer = get(path, "Accept: */*");
        assert_eq!(status(&answer), "401", "{path}");
        assert!(answer.to_lowercase().contains("www-authenticate: bearer"), "{answer}");
    }
    let token = &lab.server().token;
    for line in [
        "Authorization: Bearer".to_owned(),
        "Authorization: Bearer x".into(),
        format!("Authorization: Basic {token}"),
        format!("Authorization: Bearer {}", &token[1..]),
        format!("Authorization: Bearer {token}0"),
        format!("Cookie: reseed-{}={token}", lab.server().address.port()),
        format!("X-Token: {token}"),
    ] {
        assert_eq!(status(&get("/v1/jobs", &line)), "401", "{line}");
    }
    assert_eq!(status(&get(&format!("/v1/jobs?token={token}"), "Accept: */*")), "401");
    assert_eq!(status(&get("/health", "Accept: */*")), "200");
}

#[test]
fn the_address_of_the_start_works_once_and_sets_a_strict_cookie() {
    let lab = Lab::new();
    let url = &lab.server().url;
    let get = |url: &str| lab.request(ureq::http::Request::get(url).body(Vec::new()).unwrap());
    let first = get(url);
    assert_eq!((first.status, first.header("location")), (303, "/"));
    let cookie = first.header("set-cookie").to_owned();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains(&lab.server().token));
    get(url).assert_problem(403, "code");
    let host = format!("Host: {}", lab.server().address);
    let pair = cookie.split(';').next().unwrap();
    let answer =
        lab.raw(&format!("GET /v1/jobs HTTP/1.1\r\n{host}\r\nCookie: a=b; {pair}\r\nConnection: close\r\n\r\n"));
    assert_eq!(status(&answer), "200");
}

#[test]
fn wrong_codes_and_tokens_sign_nobody_in() {
    let lab = Lab::new();
    let address = lab.server().address;
    for url in [format!("http://{address}/login"), format!("http://{address}/login?code="), {
        format!("http://{address}/login?code=00")
    }] {
        let reply = lab.request(ureq::http::Request::get(url).body(Vec::new()).unwrap());
        reply.assert_problem(403, "code");
        assert_eq!(reply.header("set-cookie"), "");
    }
    lab.post("/login", json!({"token": "wrong"})).assert_problem(403, "token");
    assert_eq!(lab.post("/login", json!({"token": lab.server().token})).status, 204);
}

#[test]
fn a_server_without_a_token_stays_on_this_machine() {
    let folder = temp_dir::TempDir::new().unwrap();
    let config = Config { access: Access::Open, ..Config::new("0.0.0.0:0".parse().unwrap(), folder.path()) };
    assert!(matches!(Server::bind(config), Err(Error::OpenToNetwork { .. })));
}

#[test]
fn answers_cannot_be_framed_or_sniffed() {
    let lab = Lab::new();
    let reply = lab.get("/v1/jobs");
    assert!(reply.header("content-security-policy").contains("frame-ancestors 'none'"));
    assert_eq!(reply.header("x-content-type-options"), "nosniff");
    assert_eq!(reply.header("cross-origin-resource-policy"), "same-origin");
    assert_eq!(reply.header("access-control-allow-origin"), "");
}

#[test]
fn encoder_options_and_noise_files_are_no_settings() {
    let lab = Lab::new();
    lab.clip("in.y4m", 2);
    for settings in [
        json!({"encoder_arg": ["stats=/etc/passwd"]}),
        json!({"encoder_args": {"passlogfile": "/tmp/x"}}),
        json!({"noise_file": "/etc/passwd"}),
        json!({"vae": "/etc/passwd"}),
        json!({"device": "cpu"}),
    ] {
        lab.post("/v1/jobs", json!({"input": "in.y4m", "settings": settings})).assert_problem(422, "usage");
    }
}

#[test]
fn large_bodies_and_headers_are_refused() {
    let lab = Lab::new();
    let body = format!("{{\"input\": \"{}\"}}", "x".repeat(100_000));
    lab.send("POST", "/v1/jobs", &[("content-type", "application/json")], body.as_bytes()).assert_problem(413, "body");
    let long = format!("X-Long: {}", "x".repeat(100_000));
    let host = format!("Host: {}", lab.server().address);
    assert_ne!(status(&lab.raw_get("/v1/jobs", &[&host, &long])), "200");
    let nested = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let reply = lab.send("POST", "/v1/jobs", &[("content-type", "application/json")], nested.as_bytes());
    reply.assert_problem(422, "usage");
    assert_eq!(lab.get("/health").status, 200);
}

#[test]
fn slow_headers_and_bodies_are_cut_off() {
    let limits = Limits { headers: Duration::from_millis(200), idle: Duration::from_millis(200), ..Limits::default() };
    let lab = Lab::with(limits);
    let start = Instant::now();
    let mut stream = TcpStream::connect(lab.server().address).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: ").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains(" 200 "));
    let (host, token) = (lab.server().address, &lab.server().token);
    let head = format!(
        "POST /v1/jobs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Length: 50\r\n\
         Content-Type: application/json\r\n\r\n{{"
    );
    assert_eq!(status(&lab.raw(&head)), "408");
    assert!(start.elapsed() < GUARD);
}

#[test]
fn a_limit_of_connections_holds() {
    let lab = Lab::with(Limits { connections: 2, headers: Duration::from_millis(300), ..Limits::default() });
    let _idle: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(lab.server().address).unwrap()).collect();
    // The idle connections are cut off after a while, and a client is served.
    assert_eq!(lab.get("/health").status, 200);
}

#[test]
fn inputs_that_are_too_long_are_refused() {
    let lab = Lab::with(Limits { frames: 5, ..Limits::default() });
    lab.clip("in.y4m", 6);
    lab.post("/v1/jobs", json!({"input": "in.y4m"})).assert_problem(422, "usage");
}
