//! The limits that a stored job counts against, for the oracle.

use scheduler::definition::Definition;
use scheduler::limits::rate::Rate;
use scheduler::limits::{LimitId, LimitKind};
use scheduler::step::AddedJob;

/// The limit on jobs at once that a job needs, and its value.
pub(super) fn permit(definition: &Definition, added: &AddedJob) -> Option<(LimitId, usize)> {
    let rule = definition.limits.concurrency.as_ref()?;
    let (kind, name) = match &rule.group {
        Some(group) => (LimitKind::Group, group.as_str()),
        None => (LimitKind::Definition, definition.name.as_str()),
    };
    let key = added.keys.as_ref().and_then(|keys| keys.concurrency.clone());
    Some((LimitId { kind, name: name.into(), key }, rule.limit as usize))
}

/// The rate that a job needs, and its value.
pub(super) fn rate(definition: &Definition, added: &AddedJob) -> Option<(LimitId, Rate)> {
    let rule = definition.limits.rate.as_ref()?;
    let key = added.keys.as_ref().and_then(|keys| keys.rate.clone());
    Some((LimitId { kind: LimitKind::Rate, name: definition.name.as_str().into(), key }, Rate::of(rule)))
}
