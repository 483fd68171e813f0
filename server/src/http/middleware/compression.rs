//! Compresses answers whose whole text is in memory: pages, JSON and static files.
//!
//! Streams keep their own pace, so they have no exact size and are left alone: events, followed output, exports. So are answers to a
//! `Range`, whose offsets count bytes of the plain text, and answers with an `ETag`, which stands for exactly these bytes.

use axum::body::HttpBody;
use axum::http::{Response, header};
use tower_http::CompressionLevel;
use tower_http::compression::{CompressionLayer, Predicate};

/// The layer. It acts on requests that accept gzip.
pub(crate) fn layer() -> CompressionLayer<IsWholeText> {
    CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(IsWholeText)
}

/// Selects the answers that are compressed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IsWholeText;

impl Predicate for IsWholeText {
    fn should_compress<B: HttpBody>(&self, response: &Response<B>) -> bool {
        let headers = response.headers();
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        response.body().size_hint().exact().is_some_and(|bytes| bytes >= BYTES_MIN)
            && KINDS.contains(&kind)
            && !headers.contains_key(header::CONTENT_RANGE)
            && !headers.contains_key(header::ETAG)
    }
}

const KINDS: [&str; 5] = ["text/html", "text/css", "text/javascript", "image/svg+xml", "application/json"];

/// A shorter answer fits into one packet anyway.
const BYTES_MIN: u64 = 1_024;

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn only_whole_texts_are_compressed() {
        let chosen = |kind: &str, extra: Option<header::HeaderName>, body: Body| {
            let mut response = Response::builder().header(header::CONTENT_TYPE, kind);
            if let Some(name) = extra {
                response = response.header(name, "x");
            }
            IsWholeText.should_compress(&response.body(body).unwrap())
        };
        let long = || Body::from("x".repeat(5_000));
        let stream = || Body::from_stream(futures_util::stream::empty::<Result<String, std::io::Error>>());
        assert!(chosen("text/html; charset=utf-8", None, long()));
        assert!(chosen("application/json", None, long()));
        for (kind, extra, body) in [
            ("application/json", None, Body::from("{}")),
            ("application/json", Some(header::ETAG), long()),
            ("text/html", Some(header::CONTENT_RANGE), long()),
            ("text/plain; charset=utf-8", None, long()),
            ("text/event-stream", None, stream()),
            ("application/json", None, stream()),
        ] {
            assert!(!chosen(kind, extra.clone(), body), "{kind} {extra:?}");
        }
    }
}
