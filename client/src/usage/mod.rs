//! Resources that running attempts use: sampled from control groups and `/proc`, on a thread of its own.
//!
//! Each attempt is sampled often at first and every few seconds later, and once more at the moment in which its first process ends: then
//! its control group still exists, and its totals are complete. Figures that cannot be read are left out, never guessed.
//!
//! [`UsageSampler`] is the handle of the runtimes. `sampler` is the thread, `cgroup`, `group_files` and `process` read the kernel's files.
//! Samples go to the server as they come; the totals are a part of an attempt's end.

mod cgroup;
mod group_files;
mod proc_files;
mod process;
mod record;
mod sampler;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::{Token, Usage, UsageSample};
use tokio::sync::mpsc;

use crate::attempt_dir::{AttemptDir, ProcessId};
pub(crate) use cgroup::{Layout, layout_of};
pub(crate) use process::ChildUsage;
use sampler::{Command, SamplerThread};

/// Measures the attempts of this worker. Clones share one thread, which ends with the last of them.
#[derive(Clone)]
pub struct UsageSampler {
    state: Arc<SamplerState>,
}

/// The origin of an attempt's figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// By the control group of this container.
    Container {
        /// Its id.
        id: String,
        /// It has network interfaces of its own.
        has_network: bool,
    },
    /// By this process and its descendants.
    Process(ProcessId),
    /// By the engine of a container whose control group is not found: the runtime asks it and calls [`UsageSampler::add`].
    Elsewhere,
}

struct SamplerState {
    /// The figures so far of all attempts that are watched.
    totals: Mutex<HashMap<Token, Total>>,
    thread: SamplerThread,
}

#[derive(Clone, Copy)]
struct Total {
    usage: Usage,
    was_oom_killed: bool,
}

impl UsageSampler {
    /// A sampler, and the samples that are to be sent: at most one list a second, with the latest sample of each attempt.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Vec<UsageSample>>) {
        // One list waits at most; later samples replace older ones until there is room.
        let (live, samples) = mpsc::channel(1);
        let state = Arc::new_cyclic(|state| SamplerState {
            totals: Mutex::default(),
            thread: SamplerThread::new(state.clone(), live),
        });
        (Self { state }, samples)
    }

    /// Watches an attempt until [`UsageSampler::finish`]. It reads files of the kernel and of the attempt's directory, which holds what an
    /// earlier process of the worker has measured. Returns false if nothing is measured: the source cannot be found, or the thread does not
    /// run.
    pub(crate) fn watch(&self, token: Token, dir: &AttemptDir, source: Source) -> bool {
        let before = dir.usage().unwrap_or_default();
        self.state.totals().entry(token).or_insert(Total { usage: before, was_oom_killed: false });
        match self.state.thread.open(&source) {
            Some(gauge) => {
                self.state.thread.send(Command::Watch { token, dir: dir.clone(), gauge: Box::new(gauge) })
            }
            None => false,
        }
    }

    /// From now on looks for the control groups of containers at this place, too.
    pub(crate) fn learn(&self, layout: Layout) {
        self.state.thread.learn(layout);
    }

    /// Adds figures of an attempt that is watched as [`Source::Elsewhere`]. Others are ignored.
    pub(crate) fn add(&self, sample: UsageSample) {
        if let Some(usage) = self.state.add(&sample) {
            self.state.thread.send(Command::Live(UsageSample { usage, ..sample }));
        }
    }

    /// `true` if the kernel has killed a process of the attempt for its memory limit, as its control group showed when its first process
    /// ended. False if nothing is known.
    pub(crate) fn was_oom_killed(&self, token: Token) -> bool {
        self.state.totals().get(&token).is_some_and(|total| total.was_oom_killed)
    }

    /// Ends the watch. Returns what the attempt has used, as far as it is known.
    pub(crate) fn finish(&self, token: Token) -> Usage {
        let total = self.state.totals().remove(&token);
        if total.is_some() {
            self.state.thread.send(Command::Forget(token));
        }
        total.map(|it| it.usage).unwrap_or_default()
    }
}

impl Default for UsageSampler {
    /// A sampler whose samples nobody sends.
    fn default() -> Self {
        Self::new().0
    }
}

impl std::fmt::Debug for UsageSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UsageSampler").field("watched", &self.state.totals().len()).finish_non_exhaustive()
    }
}

impl SamplerState {
    /// Adds a sample to the totals, and returns them; `None` if the attempt is not watched any more.
    fn add(&self, sample: &UsageSample) -> Option<Usage> {
        let mut totals = self.totals();
        let total = totals.get_mut(&sample.token)?;
        total.usage = total.usage.later(sample.usage);
        Some(total.usage)
    }

    fn mark_oom_killed(&self, token: Token) {
        if let Some(total) = self.totals().get_mut(&token) {
            total.was_oom_killed = true;
        }
    }

    fn totals(&self) -> MutexGuard<'_, HashMap<Token, Total>> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
