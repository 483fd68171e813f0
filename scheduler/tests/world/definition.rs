//! A definition for tests.

use std::time::Duration;

use super::protocol::container::ContainerSpec;
use super::protocol::{Revision, RuntimeKind};
use super::scheduler::definition::{Definition, Expect, LossPolicy, RetryPolicy, WaitLimits};
use super::scheduler::placement::rules::PlacementRules;
use super::scheduler::schedule::Timetable;

/// A definition for the fake runtime, to be varied.
pub fn definition(name: &str) -> Definition {
    let revision = name.bytes().fold(0, |sum, byte| sum * 256 + u128::from(byte));
    Definition {
        name: name.into(),
        revision: Revision(revision),
        enabled: true,
        priority: 0,
        timeout: None,
        retry: RetryPolicy::default(),
        success_exit_codes: Vec::new(),
        loss: LossPolicy::default(),
        waits: WaitLimits::default(),
        expect: Expect::default(),
        placement: PlacementRules::default(),
        timetable: Timetable::default(),
        hooks: Default::default(),
        secrets: Default::default(),
        submission: Default::default(),
        limits: Default::default(),
        container: ContainerSpec {
            runtime: RuntimeKind::Fake,
            stop_grace: Duration::from_secs(10),
            ..ContainerSpec::default()
        },
    }
}
