//! How many connections each address holds on which no valid token has been shown yet.
//!
//! Whoever shows one is no stranger any more, and nobody is turned away while there is room: a thousand workers or clients may come from
//! behind one router, also all at once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// The count of all addresses.
#[derive(Debug)]
pub(super) struct Strangers {
    most: usize,
    held: Mutex<HashMap<IpAddr, Held>>,
}

/// What one address holds.
#[derive(Debug, Default)]
struct Held {
    connections: usize,
    /// Whether the log has been told that one was turned away: once is enough until all are gone.
    is_told: bool,
}

/// One connection of a stranger; counted until it is dropped.
#[derive(Debug)]
pub(super) struct Stranger {
    address: IpAddr,
    among: Arc<Strangers>,
}

/// The address has as many as it may have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany;

impl Strangers {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, held: Mutex::default() })
    }

    /// Counts a connection from there; one from this machine is not counted. Where there is room, no number is too many.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr, is_roomy: bool) -> Result<Option<Stranger>, TooMany> {
        let address = network(peer);
        if self.most == usize::MAX || address.is_loopback() {
            return Ok(None);
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let of_address = held.entry(address).or_default();
        if of_address.connections >= self.most && !is_roomy {
            if !std::mem::replace(&mut of_address.is_told, true) {
                tracing::warn!(%peer, "too many connections without a valid token: one is turned away");
            }
            return Err(TooMany);
        }
        of_address.connections += 1;
        Ok(Some(Stranger { address, among: Arc::clone(self) }))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut held = self.among.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut of_address) = held.entry(self.address) {
            of_address.get_mut().connections -= 1;
            if of_address.get().connections == 0 {
                of_address.remove();
            }
        }
    }
}

/// What one customer of a network commonly has: an IPv4 address, or 2^64 IPv6 addresses.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(strangers: &Arc<Strangers>, peer: &str) -> Result<Option<Stranger>, TooMany> {
        strangers.admit(peer.parse().unwrap(), false)
    }

    #[test]
    fn an_address_holds_so_many_until_one_goes_or_shows_a_token() {
        let strangers = Strangers::new(2);
        let first = admit(&strangers, "192.0.2.1").unwrap();
        let _second = admit(&strangers, "::ffff:192.0.2.1").unwrap();
        assert_eq!(admit(&strangers, "192.0.2.1").err(), Some(TooMany));
        assert!(admit(&strangers, "192.0.2.2").is_ok(), "others are not concerned");
        drop(first);
        assert!(admit(&strangers, "192.0.2.1").is_ok());
    }

    #[test]
    fn where_there_is_room_all_are_let_in_and_counted() {
        let strangers = Strangers::new(1);
        let peer = "192.0.2.1".parse().unwrap();
        let many: Vec<_> = (0..300).map(|_| strangers.admit(peer, true).unwrap()).collect();
        assert_eq!(admit(&strangers, "192.0.2.1").err(), Some(TooMany));
        drop(many);
        assert!(admit(&strangers, "192.0.2.1").is_ok());
    }

    #[test]
    fn neighbours_in_a_network_of_version_six_count_together() {
        let strangers = Strangers::new(1);
        let _one = admit(&strangers, "2001:db8::1").unwrap();
        assert_eq!(admit(&strangers, "2001:db8::2:1").err(), Some(TooMany));
        assert!(admit(&strangers, "2001:db8:0:1::1").is_ok());
    }

    #[test]
    fn this_machine_is_not_counted_and_nothing_is_kept_of_who_is_gone() {
        let strangers = Strangers::new(1);
        for peer in ["127.0.0.1", "127.0.0.1", "::1", "::1", "::ffff:127.0.0.1"] {
            assert!(admit(&strangers, peer).is_ok_and(|counted| counted.is_none()), "{peer}");
        }
        drop(admit(&strangers, "192.0.2.1"));
        assert!(strangers.held.lock().unwrap().is_empty());
    }
}
