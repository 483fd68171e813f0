//! The inbox of the sampler's thread: commands, the event that wakes it, and the mounts and layouts of control groups.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fd::OwnedFd;

use super::Command;
use crate::usage::cgroup::{Hierarchies, Layout};

/// Commands that wait for the thread, and state that it shares with its handle.
#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<InboxState>,
}

#[derive(Default)]
pub(super) struct InboxState {
    pub(super) commands: Vec<Command>,
    /// Wakes the thread; `None` until it runs.
    pub(super) wakeup: Option<Arc<OwnedFd>>,
    hierarchies: Option<Arc<Hierarchies>>,
    pub(super) layouts: Vec<Layout>,
    pub(super) is_closed: bool,
}

impl Inbox {
    /// Returns false if the thread does not run.
    pub(super) fn send(&self, command: Command) -> bool {
        let mut state = self.state();
        if state.is_closed {
            return false;
        }
        state.commands.push(command);
        drop(state);
        self.wake();
        true
    }

    pub(super) fn wake(&self) {
        let wakeup = self.state().wakeup.clone();
        if let Some(wakeup) = wakeup {
            // A full counter wakes as well.
            let _ = rustix::io::write(&*wakeup, &1_u64.to_ne_bytes());
        }
    }

    /// The mounts of control groups, and the layouts of containers below them.
    pub(super) fn cgroup_layouts(&self) -> (Arc<Hierarchies>, Vec<Layout>) {
        let mut state = self.state();
        if state.hierarchies.is_none() {
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            state.hierarchies = Some(Arc::new(Hierarchies::of(&mounts)));
            state.layouts.extend(Layout::usual());
        }
        (state.hierarchies.clone().unwrap_or_default(), state.layouts.clone())
    }

    pub(super) fn state(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
