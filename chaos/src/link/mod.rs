//! The way from a worker to its server, and what can happen to it.

mod namespace;
mod proxy;

use std::time::Duration;

pub use namespace::{Namespace, Network};
pub use proxy::Proxy;

/// How a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Everything passes.
    Clear,
    /// Connections break, and none can be made.
    Broken,
    /// Nothing passes, and nobody is told.
    Silent,
    /// What the worker says does not pass.
    DeafServer,
    /// What the server says does not pass.
    DeafWorker,
    /// Everything passes late.
    Slow(Duration),
}

impl Weather {
    fn passes(self, way: Way) -> bool {
        match self {
            Self::Clear | Self::Slow(_) => true,
            Self::Broken | Self::Silent => false,
            Self::DeafServer => way == Way::Down,
            Self::DeafWorker => way == Way::Up,
        }
    }
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// From the worker to the server.
    Up,
    /// From the server to the worker.
    Down,
}

/// A way of either kind.
#[derive(Debug)]
pub enum Link {
    /// Through a proxy in this process.
    Proxy(Proxy),
    /// Through the kernel, from a network namespace of its own.
    Namespace(Namespace),
}

impl Link {
    /// Where the worker finds its server.
    #[must_use]
    pub fn address(&self) -> String {
        match self {
            Self::Proxy(proxy) => proxy.address().to_string(),
            Self::Namespace(namespace) => namespace.address(),
        }
    }

    /// The command through which the worker is started.
    #[must_use]
    pub fn through(&self) -> Vec<String> {
        match self {
            Self::Proxy(_) => Vec::new(),
            Self::Namespace(namespace) => namespace.through(),
        }
    }

    /// Every kind of trouble that it can have. A delay needs a module that not every kernel has.
    #[must_use]
    pub const fn troubles(&self) -> &[Weather] {
        const TROUBLES: [Weather; 5] = [
            Weather::Broken,
            Weather::Silent,
            Weather::DeafServer,
            Weather::DeafWorker,
            Weather::Slow(Duration::from_millis(400)),
        ];
        match self {
            Self::Proxy(_) => &TROUBLES,
            Self::Namespace(_) => TROUBLES.split_at(4).0,
        }
    }

    /// Changes what passes, at once.
    pub fn turn(&self, weather: Weather) {
        match self {
            Self::Proxy(proxy) => proxy.turn(weather),
            Self::Namespace(namespace) => namespace.turn(weather),
        }
    }
}
