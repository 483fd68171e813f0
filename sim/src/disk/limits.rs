//! The limits that a stored job counts against, for the oracle.

use std::collections::BTreeMap;

use protocol::Timestamp;
use scheduler::definition::Definition;
use scheduler::limits::rate::Rate;
use scheduler::limits::{LimitId, LimitKind, RateRow};
use scheduler::step::AddedJob;

use super::{Disk, Row};

impl Disk {
    /// A job started under a rate.
    pub(super) fn use_rate(&mut self, row: &RateRow) -> Result<(), String> {
        self.rates.insert(row.id.clone(), row.recovered);
        Ok(())
    }
}

/// Sets what a new job needs.
pub(super) fn set(row: &mut Row, definition: Option<&Definition>, added: &AddedJob) {
    row.permit = definition.and_then(|definition| permit(definition, added));
    row.rate = definition.and_then(|definition| rate(definition, added));
}

/// The rates for a start of the server.
pub(super) fn rows(rates: &BTreeMap<LimitId, Timestamp>) -> Vec<RateRow> {
    rates.iter().map(|(id, recovered)| RateRow { id: id.clone(), recovered: *recovered }).collect()
}

/// The limit on jobs at once that a job needs, and its value.
fn permit(definition: &Definition, added: &AddedJob) -> Option<(LimitId, usize)> {
    let rule = definition.limits.concurrency.as_ref()?;
    let (kind, name) = match &rule.group {
        Some(group) => (LimitKind::Group, group.as_str()),
        None => (LimitKind::Definition, definition.name.as_str()),
    };
    let key = added.keys.as_ref().and_then(|keys| keys.concurrency.clone());
    Some((LimitId { kind, name: name.into(), key }, rule.limit as usize))
}

/// The rate that a job needs, and its value.
fn rate(definition: &Definition, added: &AddedJob) -> Option<(LimitId, Rate)> {
    let rule = definition.limits.rate.as_ref()?;
    let key = added.keys.as_ref().and_then(|keys| keys.rate.clone());
    Some((LimitId { kind: LimitKind::Rate, name: definition.name.as_str().into(), key }, Rate::of(rule)))
}
