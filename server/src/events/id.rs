//! Ids of events: epoch, group and index, in the order of the commits.

use std::fmt;

use protocol::Epoch;
use scheduler::ids::GroupNo;

use crate::store::Group;

/// The place of an event in the order of all events, shown as `epoch.group.index`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId {
    /// The term of the server that committed it.
    pub epoch: Epoch,
    /// The group that it was committed with, or that was the last one when it happened.
    pub group: GroupNo,
    /// Its place in the group, from 1; 0 stands before the first event of the group.
    pub index: u32,
}

impl EventId {
    /// The id before the first event of a group.
    pub(super) const fn before_group(group: &Group) -> Self {
        Self { epoch: group.epoch, group: group.number, index: 0 }
    }

    /// Parses `epoch.group.index`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let mut number = || {
            let part = parts.next()?;
            let is_plain = part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<u64>().ok().filter(|_| is_plain)
        };
        let (epoch, group, index) = (Epoch(number()?), GroupNo(number()?), u32::try_from(number()?).ok()?);
        parts.next().is_none().then_some(Self { epoch, group, index })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.epoch.0, self.group.0, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_writing_and_parsing_and_nothing_else_is_one() {
        let id = EventId { epoch: Epoch(3), group: GroupNo(120), index: 4 };
        assert_eq!(id.to_string(), "3.120.4");
        assert_eq!(EventId::parse("3.120.4"), Some(id));
        for other in ["", "3", "3.120", "3.120.", "3.120.4.5", "+3.120.4", "a.b.c", "3.120.4294967296"] {
            assert_eq!(EventId::parse(other), None, "{other}");
        }
    }

    #[test]
    fn ids_are_ordered_by_epoch_then_group_then_index() {
        let id = |epoch, group, index| EventId { epoch: Epoch(epoch), group: GroupNo(group), index };
        let ordered = [id(1, 9, 9), id(2, 0, 0), id(2, 1, 1), id(2, 1, 2), id(2, 2, 0)];
        assert!(ordered.is_sorted());
    }
}
