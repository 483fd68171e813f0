//! The events to come, in the order of true time. Events of the same moment happen in the order in which they were added.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use worker::input::ShutdownMode;

use crate::clock::Moment;
use crate::connection::{ConnectionNo, End};

/// Something that is going to happen. It names the generation of the process that it is for: an event for an earlier one is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The next entry of the script is due.
    Act,
    /// The server's engine takes what has piled up.
    ServerEngine { generation: u32 },
    /// The group under way is durable, and the engine is told so.
    Committed { generation: u32 },
    /// The server starts.
    ServerStart,
    /// The server goes on after a freeze.
    ServerThaw { generation: u32 },
    /// A client's request arrives.
    Request { request: u32 },
    /// The first parcel of a pipe arrives.
    Arrival { connection: ConnectionNo, end: End },
    /// An end of a connection has heard nothing for so long that it gives up.
    Deaf { connection: ConnectionNo, end: End, spell: u32 },
    /// A worker calls the server.
    Dial { machine: u16, generation: u32, link: u32 },
    /// A worker's call was not answered.
    NoAnswer { machine: u16, generation: u32, link: u32 },
    /// A worker wants to be called.
    WorkerTick { machine: u16, generation: u32 },
    /// A worker's process starts.
    WorkerStart { machine: u16, generation: u32 },
    /// It has looked at what an earlier one has left.
    Surveyed { machine: u16, generation: u32 },
    /// A worker goes on after a freeze.
    WorkerThaw { machine: u16, generation: u32 },
    /// The worker's body does the next thing for an attempt.
    Task { machine: u16, generation: u32, task: u32, turn: u32 },
    /// The worker's body notices whether its engine answers.
    Health { machine: u16, generation: u32 },
    /// The worker looks for containers that none of its attempts has.
    FindStrays { machine: u16, generation: u32 },
    /// The worker's body notices whether its disk is nearly full.
    Room { machine: u16, generation: u32 },
    /// Something like the last start is tried.
    Probe { machine: u16, generation: u32, tries: u32 },
    /// Output of an ended attempt has arrived.
    OutputDone { machine: u16, generation: u32, task: u32 },
    /// A `docker run` gets on.
    Cli { machine: u16, cli: u32, turn: u32 },
    /// A container ends.
    Exit { machine: u16, container: u32, turn: u32 },
    /// Docker on a machine answers again.
    DockerBack { machine: u16, spell: u32 },
    /// The fault that cut or clogged a machine's network, or all, is over.
    Mended { fault: u32 },
    /// A person finds a copy of a state directory in use.
    CopyFound { machine: u16 },
    /// A person puts right that a state directory names another cluster.
    StrayFound { machine: u16 },
    /// A machine is set back to a snapshot.
    SetBack { snapshot: u32 },
    /// An old state of the store comes back.
    Restore { backup: u32 },
    /// A worker that was told to leave is told so again.
    ShutdownAgain { machine: u16, generation: u32, mode: ShutdownMode },
    /// All faults are over.
    Heal,
    /// Checks whether nothing is left to happen, which ends the run.
    CheckQuiet,
}

/// The events to come, the next first.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Entry>,
    noted: u64,
}

impl Agenda {
    pub(crate) fn schedule(&mut self, at: Moment, event: Event) {
        self.noted += 1;
        self.heap.push(Entry { at, order: self.noted, event });
    }

    pub(crate) fn next(&mut self) -> Option<(Moment, Event)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

#[derive(Debug)]
struct Entry {
    at: Moment,
    order: u64,
    event: Event,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives out its greatest entry.
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Entry {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_first_happens_first_and_ties_in_the_order_of_noting() {
        let mut agenda = Agenda::default();
        for (at, request) in [(5, 1), (3, 2), (5, 3), (3, 4)] {
            agenda.schedule(Moment(at), Event::Request { request });
        }
        let order: Vec<_> = std::iter::from_fn(|| agenda.next())
            .map(|(_, event)| match event {
                Event::Request { request } => request,
                _ => 0,
            })
            .collect();
        assert_eq!(order, [2, 4, 1, 3]);
    }
}
