//! Origins of cordons and pauses: columns ↔ meaning. An empty name is stored as null.

use protocol::Timestamp;
use rusqlite::Row;
use scheduler::origin::{Intervention, Origin};

/// The name of the requester as it is stored.
pub(super) fn by(intervention: &Intervention) -> Option<&str> {
    Some(&*intervention.origin.by).filter(|by| !by.is_empty())
}

/// An intervention whose columns begin at this index: when, by whom, why, until when.
pub(super) fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Intervention>> {
    let text = |index: usize| row.get::<_, Option<String>>(index);
    let Some(since) = row.get::<_, Option<i64>>(at)? else { return Ok(None) };
    let origin =
        Origin { by: text(at + 1)?.unwrap_or_default().into(), reason: text(at + 2)?.map(Into::into) };
    let until = row.get::<_, Option<i64>>(at + 3)?.map(Timestamp);
    Ok(Some(Intervention { since: Timestamp(since), until, origin }))
}
