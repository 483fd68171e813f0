//! Decides about batches with unique keys: a request whose key is taken gets the batch that has it, is refused, or replaces that batch.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use protocol::{JobId, Now};

use crate::batches::BatchOptions;
use crate::core::Scheduler;
use crate::handlers::batch;
use crate::limits::rules::OnDuplicate;
use crate::step::{Change, Rejection};

/// Returns the batch that has the key of a new one, with the number of its members, if no batch is to be made because of it.
///
/// # Errors
/// The key is taken and the request refuses that, or the other batch may not be replaced, or is being made.
pub(crate) fn check(
    scheduler: &Scheduler,
    options: Option<&BatchOptions>,
) -> Result<Option<(JobId, u32)>, Rejection> {
    let Some((unique, options)) = options.and_then(|options| Some((options.unique.as_ref()?, options)))
    else {
        return Ok(None);
    };
    // It has no number yet, and may have one that it replaces.
    if scheduler.pending_batches.claims(&unique.key) {
        return Err(Rejection::BatchKeyPending);
    }
    let Some(holder) = scheduler.batches.holder(&unique.key) else { return Ok(None) };
    match unique.on_duplicate {
        OnDuplicate::Return => Ok(Some((holder.first, holder.count))),
        OnDuplicate::Reject => Err(Rejection::DuplicateBatch { batch: holder.first }),
        // The holder was made later than the batch that a retry repeats: an old version must not replace a new one.
        OnDuplicate::Replace if options.retry_of.is_some() => {
            Err(Rejection::DuplicateBatch { batch: holder.first })
        }
        OnDuplicate::Replace if !unique.may_replace.allows(holder.first) => {
            Err(Rejection::HolderLookupTooOld)
        }
        OnDuplicate::Replace => Ok(None),
    }
}

/// Gives a batch whose members are made its key, unless all of them have ended. The batch that had the key is cancelled as a whole. Returns that
/// batch. The caller has checked that it may be replaced.
pub(crate) fn take_key(
    scheduler: &mut Scheduler,
    now: Now,
    first: JobId,
    key: Option<Arc<str>>,
) -> Option<JobId> {
    let key = key?;
    let replaced = scheduler.batches.replace(&key);
    scheduler.batches.take_key(first);
    if let Some(other) = replaced {
        scheduler.change(Change::BatchReplaced { first: other, by: first });
        batch::stop_batch(scheduler, now, other, requester(first));
    }
    replaced
}

/// The requester of the cancel of a batch that another one replaces.
fn requester(by: JobId) -> Arc<str> {
    format!("batch {by}, which replaces it").into()
}

/// Differences between the keys and the batches. For tests only.
pub(crate) fn faults(scheduler: &Scheduler) -> Vec<String> {
    let visible = scheduler.batches.iter().filter(|it| !scheduler.pending_batches.hides(it.first));
    let (mut faults, mut keys) = (Vec::new(), 0);
    for (batch, key) in visible.filter_map(|batch| Some((batch, batch.unique_key.as_ref()?))) {
        keys += 1;
        if scheduler.batches.holder(key).is_none_or(|holder| holder.first != batch.first) {
            faults.push(format!("batch {} has the key {key:?}, and another one as well", batch.first));
        }
    }
    if keys != scheduler.batches.keys_taken() {
        faults.push("a key is taken by a batch that has ended or was replaced".into());
    }
    faults
}
