//! The static files of the dashboard, embedded into the program.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use data_encoding::HEXLOWER;
use rust_embed::RustEmbed;
use sha2::{Digest, Sha256};

use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;

#[derive(RustEmbed)]
#[folder = "static/"]
struct Files;

/// A short hash of all files: part of their addresses.
pub(crate) fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let mut hash = Sha256::new();
        for name in Files::iter() {
            hash.update(Files::get(&name).map(|file| file.metadata.sha256_hash()).unwrap_or_default());
        }
        HEXLOWER.encode(&hash.finalize()[..6])
    });
    &VERSION
}

/// `GET /static/{version}/{file}`. The version only serves the browser's cache.
pub(crate) async fn file(Path((_, name)): Path<(String, String)>) -> Result<Response, Problem> {
    let Some(file) = Files::get(&name) else {
        return Err(Problem::new(ProblemCode::NotFound, "there is no such file"));
    };
    let kind = match name.rsplit('.').next() {
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    };
    let headers = [(header::CONTENT_TYPE, HeaderValue::from_static(kind)), (header::CACHE_CONTROL, FOR_EVER)];
    Ok((headers, file.data.into_owned()).into_response())
}

const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
