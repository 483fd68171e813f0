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
    /// Connections are reset, and no new one can be made.
    Broken,
    /// No data passes, and no side is notified.
    Silent,
    /// No data passes from the worker to the server.
    DeafServer,
    /// No data passes from the server to the worker.
    DeafWorker,
    /// All data passes after a delay.
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

    /// The command through which the worker is started; empty means none.
    #[must_use]
    pub fn through(&self) -> Vec<String> {
        match self {
            Self::Proxy(_) => Vec::new(),
            Self::Namespace(namespace) => namespace.through(),
        }
    }

    /// The faulty states that this link supports. Delays in a namespace need a kernel module that is often missing.
    #[must_use]
    pub const fn faulty_states(&self) -> &[LinkState] {
        const TROUBLES: [LinkState; 5] = [
            LinkState::Broken,
            LinkState::Silent,
            LinkState::DeafServer,
            LinkState::DeafWorker,
            LinkState::Slow(Duration::from_millis(400)),
        ];
        match self {
            Self::Proxy(_) => &TROUBLES,
            Self::Namespace(_) => TROUBLES.split_at(4).0,
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
