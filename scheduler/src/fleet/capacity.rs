//! The capacity of a worker as it reports it: slots, backlog, runtimes.

use alloc::vec::Vec;

use protocol::RuntimeKind;
use protocol::report::Availability;
use protocol::resources::OfferedResources;

/// The capacity that a worker reports.
#[derive(Clone, Debug, Default)]
pub struct Capacity {
    /// Containers that may run at once. An operator may have set another number
    /// ([`Worker::slots`](super::Worker::slots)).
    pub slots: u32,
    /// Attempts that may wait in its backlog.
    pub backlog: u32,
    /// Runtimes and their availability.
    pub runtimes: Vec<(RuntimeKind, Availability)>,
    /// Resources that jobs may reserve.
    pub offer: OfferedResources,
}

impl Capacity {
    /// The worker reports this runtime as available.
    #[must_use]
    pub fn offers(&self, runtime: RuntimeKind) -> bool {
        self.runtimes.iter().any(|(kind, availability)| *kind == runtime && availability.is_available())
    }

    /// The worker sees what runs in this runtime, whether it can start more there or not.
    #[must_use]
    pub fn observes(&self, runtime: RuntimeKind) -> bool {
        self.runtimes.iter().any(|(kind, availability)| *kind == runtime && availability.answers())
    }

    /// The worker has this runtime, available or not.
    #[must_use]
    pub fn has(&self, runtime: RuntimeKind) -> bool {
        self.runtimes.iter().any(|(kind, _)| *kind == runtime)
    }

    /// Sets the runtimes. Returns those that have become available.
    pub fn set_runtimes(
        &mut self,
        runtimes: Vec<(RuntimeKind, Availability)>,
    ) -> impl Iterator<Item = RuntimeKind> + use<> {
        let before = RuntimeKind::ALL.map(|runtime| self.offers(runtime));
        self.runtimes = runtimes;
        let now = RuntimeKind::ALL.map(|runtime| self.offers(runtime));
        let both = before.into_iter().zip(now);
        RuntimeKind::ALL.into_iter().zip(both).filter(|(_, (before, now))| !before && *now).map(|it| it.0)
    }
}
