//! The network link between a worker and the server, and the faults that it can have.

mod namespace;
mod proxy;

use std::time::Duration;

pub use namespace::{Namespace, Network};
pub use proxy::Proxy;

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// All data passes.
    Clear,
    /// Connections end (a proxy closes them, a namespace resets them), and new ones end at once.
    Broken,
    /// No data passes, and no side is notified.
    Silent,
    /// No data passes from the worker to the server.
    DeafServer,
    /// No data passes from the server to the worker.
    DeafWorker,
    /// Each read of at most 64 KiB passes after this delay, so the throughput is limited as well.
    Slow(Duration),
}

impl LinkState {
    fn passes(self, direction: Direction) -> bool {
        match self {
            Self::Clear | Self::Slow(_) => true,
            Self::Broken | Self::Silent => false,
            Self::DeafServer => direction == Direction::Down,
            Self::DeafWorker => direction == Direction::Up,
        }
    }
}

/// The direction of data on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// From the worker to the server.
    Up,
    /// From the server to the worker.
    Down,
}

/// A link of either kind.
#[derive(Debug)]
pub enum Link {
    /// Through a proxy in this process.
    Proxy(Proxy),
    /// Through the kernel, from a network namespace of its own.
    Namespace(Namespace),
}

impl Link {
    /// The server address that the worker is given.
    #[must_use]
    pub fn address(&self) -> String {
        match self {
            Self::Proxy(proxy) => proxy.address().to_string(),
            Self::Namespace(namespace) => namespace.address(),
        }
    }

    /// The words before the worker's command; none for a proxy.
    #[must_use]
    pub fn command_prefix(&self) -> Vec<String> {
        match self {
            Self::Proxy(_) => Vec::new(),
            Self::Namespace(namespace) => namespace.command_prefix(),
        }
    }

    /// The faulty states that this link supports. Delays in a namespace need a kernel module that is often missing.
    #[must_use]
    pub const fn faulty_states(&self) -> &[LinkState] {
        const WITHOUT_DELAY: [LinkState; 4] =
            [LinkState::Broken, LinkState::Silent, LinkState::DeafServer, LinkState::DeafWorker];
        const ALL: [LinkState; 5] = [
            LinkState::Broken,
            LinkState::Silent,
            LinkState::DeafServer,
            LinkState::DeafWorker,
            // Nearly as long as the heartbeats of a round are apart.
            LinkState::Slow(Duration::from_millis(400)),
        ];
        match self {
            Self::Proxy(_) => &ALL,
            Self::Namespace(_) => &WITHOUT_DELAY,
        }
    }

    /// Changes the state at once.
    pub fn set_state(&self, state: LinkState) {
        match self {
            Self::Proxy(proxy) => proxy.set_state(state),
            Self::Namespace(namespace) => namespace.set_state(state),
        }
    }
}
