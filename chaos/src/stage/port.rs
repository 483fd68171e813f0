//! A port that stays a stage's own while its server is down.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process;

/// A port, and the mark that keeps other tests from it: to find nobody listening is not enough, as a test that restarts its server, or has not
/// started it yet, does not listen either.
#[derive(Debug)]
pub(super) struct Port {
    number: u16,
    /// The system takes it away with the process, however that ends.
    _mark: UnixListener,
}

impl Port {
    /// One that nobody has taken or listens on: not one that the system gives to outgoing connections, else a worker that calls may be given the
    /// very port that it calls, and talk to itself.
    pub(super) fn free() -> Self {
        // Where to begin is only a matter of looking at fewer that are taken.
        let first = process::id() % COUNT;
        (0..COUNT)
            .filter_map(|step| Self::take(FIRST + ((first + step) % COUNT) as u16))
            .find(|port| TcpListener::bind(("127.0.0.1", port.number)).is_ok())
            .unwrap()
    }

    /// This one, unless another stage has it. A name in the abstract space belongs to one network namespace, as ports do.
    fn take(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("longshore-stage-{number}")).unwrap();
        UnixListener::bind_addr(&name).ok().map(|mark| Self { number, _mark: mark })
    }

    /// Its number.
    pub(super) const fn number(&self) -> u16 {
        self.number
    }
}

const FIRST: u16 = 11_000;
/// Linux gives out ports from 32768 on.
const COUNT: u32 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_on_which_nobody_listens_yet_is_given_once() {
        let ours = Port::free();
        assert!(Port::take(ours.number()).is_none());
        let next = Port::free();
        assert_ne!(next.number(), ours.number());
    }

    #[test]
    fn a_port_is_free_again_once_its_stage_is_gone() {
        // Out of the range that tests beside this one search.
        let number = FIRST - 1;
        drop(Port::take(number).unwrap());
        assert!(Port::take(number).is_some());
    }
}
