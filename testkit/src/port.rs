//! A TCP port that is reserved for one test even while nothing listens on it.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process;

/// A port number, and a lock that keeps other tests from using it. A test that restarts its server does not listen all the time,
/// so a port on which nobody listens is not necessarily free.
#[derive(Debug)]
pub struct ReservedPort {
    number: u16,
    /// A socket in the abstract namespace; the kernel removes it when the process ends, however it ends.
    _lock: UnixListener,
}

impl Default for ReservedPort {
    fn default() -> Self {
        Self::new()
    }
}

impl ReservedPort {
    /// Reserves a port on which nobody listens. It is outside of the range for outgoing connections: otherwise a worker could be given the
    /// server's port as its own, and connect to itself.
    ///
    /// # Panics
    /// All 20,000 ports of the range are in use.
    #[must_use]
    pub fn new() -> Self {
        // The process id spreads the first candidates of concurrent tests.
        let first = process::id() % COUNT;
        (0..COUNT)
            .filter_map(|step| Self::try_reserve(FIRST + ((first + step) % COUNT) as u16))
            .find(|port| TcpListener::bind(("127.0.0.1", port.number)).is_ok())
            .unwrap()
    }

    /// Reserves this port unless another test has. Abstract socket names are per network namespace, as ports are.
    fn try_reserve(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("longshore-test-port-{number}")).unwrap();
        UnixListener::bind_addr(&name).ok().map(|lock| Self { number, _lock: lock })
    }

    /// The port number.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }
}

const FIRST: u16 = 11_000;
/// Linux gives ports from 32768 to outgoing connections.
const COUNT: u32 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_without_a_listener_is_reserved_once() {
        let first = ReservedPort::new();
        assert!(ReservedPort::try_reserve(first.number()).is_none());
        let second = ReservedPort::new();
        assert_ne!(second.number(), first.number());
    }

    #[test]
    fn drop_frees_the_port() {
        // Outside of the range that concurrent tests search.
        let number = FIRST - 1;
        drop(ReservedPort::try_reserve(number).unwrap());
        assert!(ReservedPort::try_reserve(number).is_some());
    }
}
