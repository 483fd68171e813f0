//! The cancels of whole batches, the changes of their limits, and the batches that replace others.

use rusqlite::Connection;

use super::Failure;
use crate::store::fold::Folded;
use crate::store::sqlite::batches::{cancel, change, replace};

pub(super) fn apply(connection: &Connection, folded: &Folded<'_>) -> Result<(), Failure> {
    let refused = |what: String| Failure::Refused(format!("{what}, but there is none, or it has ended"));
    for (first, by, at) in &folded.cancelled_batches {
        if !cancel(connection, *first, by, *at)? {
            return Err(refused(format!("batch {first} is cancelled")));
        }
    }
    for (first, by) in &folded.replaced_batches {
        if !replace(connection, *first, *by)? {
            return Err(refused(format!("batch {first} is replaced by batch {by}")));
        }
    }
    for (first, limits) in &folded.changed_batches {
        if !change(connection, *first, *limits)? {
            return Err(refused(format!("the limits of batch {first} change")));
        }
    }
    Ok(())
}
