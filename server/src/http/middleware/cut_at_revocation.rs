//! Ends answers that go on, such as followed output, when the token of their request is revoked or expires.

use std::io;

use axum::body::{Body, HttpBody};
use axum::response::Response;
use futures_util::{StreamExt, stream};
use tokio_util::sync::CancellationToken;

/// Breaks the connection of an answer of unknown length when `revoked` is cancelled. A regular end would look like the end of the output.
pub(super) fn wrap(response: Response, revoked: CancellationToken) -> Response {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| {
        let cut = revoked.clone();
        let end = stream::once(async move { cut.is_cancelled() }).filter_map(async |is_cut| {
            is_cut.then(|| Err(axum::Error::new(io::Error::other("the token was revoked"))))
        });
        Body::from_stream(body.into_data_stream().take_until(revoked.cancelled_owned()).chain(end))
    })
}
