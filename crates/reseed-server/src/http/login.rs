//! The cookie of a browser.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::body::{self, Params};
use super::guard::cookie_name;
use crate::app::App;
use crate::problem::{Answer, Problem};

/// How long a browser keeps the cookie, in seconds.
const AGE: u32 = 30 * 24 * 3600;

/// The code of the address that the server prints.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Code {
    /// The code, which works once.
    #[serde(default)]
    code: String,
}

/// A token for a cookie.
#[derive(Deserialize, ToSchema)]
pub struct Login {
    /// The token of the server.
    token: String,
}

/// Sets the cookie of a browser that opens the address which the server prints.
#[utoipa::path(get, path = "/login", tag = "access", params(Code), security(()),
    responses((status = 303, description = "The cookie is set"), (status = 403, description = "Wrong or used code")))]
pub async fn with_code(State(app): State<Arc<App>>, Params(Code { code }): Params<Code>) -> Answer<Response> {
    match &app.keys {
        Some(keys) if !keys.take_code(&code) => {
            let detail =
                "this address was used already; sign in with the token, or start the server again for a new one";
            Err(Problem::new(StatusCode::FORBIDDEN, "code", detail))
        }
        _ => Ok((StatusCode::SEE_OTHER, [(header::LOCATION, "/".to_owned())], cookie(&app)).into_response()),
    }
}

/// Sets the cookie of a browser whose user has typed the token.
#[utoipa::path(post, path = "/login", tag = "access", request_body = Login, security(()),
    responses((status = 204, description = "The cookie is set"), (status = 403, description = "Wrong token")))]
pub async fn with_token(State(app): State<Arc<App>>, request: Request) -> Answer<Response> {
    let (Login { token }, _) = body::json(&app, request).await?;
    match &app.keys {
        Some(keys) if !keys.is_token(&token) => {
            Err(Problem::new(StatusCode::FORBIDDEN, "token", "this is not the token of the server"))
        }
        _ => Ok((StatusCode::NO_CONTENT, cookie(&app)).into_response()),
    }
}

fn cookie(app: &App) -> [(header::HeaderName, String); 1] {
    let value = app.keys.as_ref().map_or("", |keys| keys.cookie());
    let name = cookie_name(app.port);
    [(header::SET_COOKIE, format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={AGE}"))]
}
