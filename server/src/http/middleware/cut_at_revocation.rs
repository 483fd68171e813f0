//! Ends answers that go on, such as followed output, when the token of their request is revoked or expires, or when its session of the
//! dashboard ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use futures_util::{StreamExt, stream};

use crate::auth::actor::Actor;

/// Breaks the connection of an answer of unknown length when nothing of the actor may stay open. A regular end would look like the end of
/// the output.
pub(super) fn wrap(response: Response, actor: Arc<Actor>) -> Response {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| {
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = Arc::clone(&is_cut);
        let ended = async move {
            actor.ended().await;
            cut.store(true, Ordering::Relaxed);
        };
        let end = stream::once(async move { is_cut.load(Ordering::Relaxed) }).filter_map(async |is_cut| {
            is_cut.then(|| Err(axum::Error::new(io::Error::other("the token or the session has ended"))))
        });
        Body::from_stream(body.into_data_stream().take_until(ended).chain(end))
    })
}
