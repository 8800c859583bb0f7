//! The OpenAPI document.

use axum::Json;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

use super::{estimate, events, files, jobs, login, machine, models, previews, results, stills, uploads};
use crate::settings::JobSettings;

/// The API of the server.
#[derive(OpenApi)]
#[openapi(
    info(title = "Reseed", description = "Restores and upscales video. Errors are problems of RFC 9457."),
    paths(
        document, estimate::estimate, events::stream, files::list, files::presets, jobs::create, jobs::delete,
        jobs::list, jobs::one, jobs::order, jobs::pause, jobs::resume, jobs::retry, login::with_code,
        login::with_token, machine::capabilities, machine::health, machine::metrics, models::cancel, models::download,
        models::list, previews::create, previews::image, results::open_folder, results::result, stills::input,
        stills::input_frame, stills::job_frame,
        uploads::append, uploads::create, uploads::offset, uploads::options, uploads::remove
    ),
    components(schemas(JobSettings)),
    security(("token" = []))
)]
struct Api;

/// The document with the scheme of the token.
fn api() -> Document {
    let mut document = Api::openapi();
    let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    document.components.get_or_insert_default().add_security_scheme("token", scheme);
    document
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "server",
    responses((status = 200, description = "The OpenAPI document")))]
pub async fn document() -> Json<Document> {
    Json(api())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_document_has_exactly_the_routes() {
        let document = serde_json::to_value(api()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let documented = paths.iter().flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            methods.map(move |method| format!("{method} {path}"))
        });
        let served = super::super::routes().into_iter().map(|(method, path, _)| format!("{method} {path}"));
        assert_eq!(documented.collect::<BTreeSet<_>>(), served.collect::<BTreeSet<_>>());
    }

    #[test]
    fn every_reference_of_the_document_has_a_schema() {
        let text = serde_json::to_string(&api()).unwrap();
        let document = serde_json::to_value(api()).unwrap();
        for name in text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
    }
}
