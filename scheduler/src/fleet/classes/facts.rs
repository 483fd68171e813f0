//! Facts that the workers of a class have in common, and needs that they meet.

use alloc::string::String;
use alloc::vec::Vec;

use protocol::RuntimeKind;

use super::{ConditionsId, Need, NeedKeys, ReservationId};

/// Facts that the workers of a class have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassFacts {
    /// Runtimes that answer, ordered.
    pub runtimes: Vec<RuntimeKind>,
    /// The protocol version of their sessions.
    pub protocol: u16,
    /// Labels that some need names, ordered by name.
    pub labels: Vec<(String, String)>,
    /// Exclusive labels, ordered.
    pub exclusive: Vec<String>,
    /// Reservations that fit on these workers while they are idle, ordered.
    pub fitting: Vec<ReservationId>,
    /// Conditions of narrowings that these workers meet, ordered. The labels themselves do not count: a job that asks for one host by a label
    /// does not make a class of each host.
    pub conditions: Vec<ConditionsId>,
}

impl ClassFacts {
    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }

    /// Workers of this class may take jobs with this need. The list of workers in the need is not looked at.
    #[must_use]
    pub fn meets(&self, need: &Need, keys: NeedKeys) -> bool {
        self.runtimes.contains(&need.runtime)
            && self.meets_by_protocol(need)
            && self.meets_by_labels(need)
            && self.meets_by_resources(keys)
            && self.meets_by_conditions(keys)
    }

    /// Workers of this class are new enough for the containers of the definition.
    #[must_use]
    pub const fn meets_by_protocol(&self, need: &Need) -> bool {
        self.protocol >= need.protocol
    }

    /// Workers of this class offer as much as the reservation.
    #[must_use]
    pub fn meets_by_resources(&self, keys: NeedKeys) -> bool {
        keys.reservation.is_none_or(|reservation| self.fitting.binary_search(&reservation).is_ok())
    }

    /// Workers of this class meet the conditions of the narrowing.
    #[must_use]
    pub fn meets_by_conditions(&self, keys: NeedKeys) -> bool {
        keys.conditions.is_none_or(|conditions| self.conditions.binary_search(&conditions).is_ok())
    }

    /// The labels of this class are such as the definition asks for. Neither the runtime nor the list of workers is looked at.
    #[must_use]
    pub fn meets_by_labels(&self, need: &Need) -> bool {
        need.requires.iter().all(|rule| rule.holds(self.label(&rule.label)))
            && self.exclusive.iter().all(|label| need.asks_for(label))
    }

    /// Sum of the weights of the preferences that hold.
    #[must_use]
    pub fn score(&self, need: &Need) -> i64 {
        let holding = need.prefers.iter().filter(|it| it.rule.holds(self.label(&it.rule.label)));
        holding.map(|it| i64::from(it.weight)).sum()
    }
}
