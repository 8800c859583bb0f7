//! The page, which is part of the program.

use axum::http::header;
use axum::response::{IntoResponse, Response};

const INDEX: &str = include_str!("../../page/index.html");
const STYLE: &str = include_str!("../../page/style.css");
const SCRIPT: &str = include_str!("../../page/app.js");

fn text(kind: &'static str, content: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], content).into_response()
}

/// The page.
pub async fn index() -> Response {
    text("text/html; charset=utf-8", INDEX)
}

/// Its style.
pub async fn style() -> Response {
    text("text/css; charset=utf-8", STYLE)
}

/// Its code.
pub async fn script() -> Response {
    text("text/javascript; charset=utf-8", SCRIPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_asks_no_other_site() {
        assert!(INDEX.len() + STYLE.len() + SCRIPT.len() < 100 << 10);
        for (name, content) in [("html", INDEX), ("css", STYLE), ("js", SCRIPT)] {
            assert!(!content.contains("http:") && !content.contains("https:") && !content.contains("//cdn"), "{name}");
        }
        // The policy forbids code and style within the page.
        assert!(!INDEX.contains("<style") && !INDEX.contains(" style=") && !INDEX.contains(" onclick"));
    }
}
