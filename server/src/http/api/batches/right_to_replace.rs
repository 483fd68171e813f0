//! The right to replace a batch by its unique key. A replacement is a cancel, so the token must be allowed to cancel the batch that has the key.
//!
//! The right is looked up before the engine decides. If another batch has got the key meanwhile, the engine refuses, and the client repeats.

use std::sync::Arc;

use scheduler::batches::{BatchOptions, BatchUnique, MayReplace};
use scheduler::limits::rules::OnDuplicate;

use crate::auth::actor::Actor;
use crate::http::api::bulk;
use crate::http::middleware::problem::Problem;
use crate::http::state::AppState;

/// Looks up which batch the request may replace, if it is to replace the one with its key.
///
/// # Errors
/// `out_of_scope` if the token may not cancel that batch, `busy` if it takes too long to find out, and those of a read.
pub(super) async fn look_up(state: &Arc<AppState>, options: BatchOptions) -> Result<BatchOptions, Problem> {
    let BatchOptions { unique: Some(unique), .. } = &options else { return Ok(options) };
    // A retry never replaces, and the other answers cancel nothing.
    if unique.on_duplicate != OnDuplicate::Replace || options.retry_of.is_some() {
        return Ok(options);
    }
    let may_replace = if Actor::current().has_whole_scope() {
        MayReplace::Any
    } else {
        let key = Arc::clone(&unique.key);
        match state.read(move |archive| archive.batch_with_key(&key)).await? {
            Some(first) => {
                bulk::check_scope_of_members(state, first).await.map_err(|refusal| {
                    refusal.hint(format!("the request would cancel batch {first}, which has its unique key"))
                })?;
                MayReplace::Only(first)
            }
            None => MayReplace::None,
        }
    };
    let unique = Some(BatchUnique { may_replace, ..unique.clone() });
    Ok(BatchOptions { unique, ..options })
}
