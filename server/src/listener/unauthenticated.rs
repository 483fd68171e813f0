//! Counts the unauthenticated connections of each address.
//!
//! A connection leaves the count when a valid token is shown. While there is room, nobody is refused: a thousand workers or clients may
//! come from behind one router at once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::auth::failures::network;

/// The counts of all addresses.
#[derive(Debug)]
pub(super) struct UnauthenticatedConnections {
    most: usize,
    held: Mutex<HashMap<IpAddr, AddressConnections>>,
}

/// The connections of one address.
#[derive(Debug, Default)]
struct AddressConnections {
    connections: usize,
    /// True if a refusal was logged: once is enough until all connections of the address are closed.
    refusal_logged: bool,
}

/// An unauthenticated connection; counted until it is dropped.
#[derive(Debug)]
pub(super) struct UnauthenticatedConnection {
    address: IpAddr,
    counts: Arc<UnauthenticatedConnections>,
}

/// The address has reached its limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany;

impl UnauthenticatedConnections {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, held: Mutex::default() })
    }

    /// Counts a connection; one from this machine is not counted. While there is room, there is no limit.
    pub(super) fn admit(
        self: &Arc<Self>,
        peer: IpAddr,
        has_room: bool,
    ) -> Result<Option<UnauthenticatedConnection>, TooMany> {
        let address = network(peer);
        if self.most == usize::MAX || address.is_loopback() {
            return Ok(None);
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let of_address = held.entry(address).or_default();
        if of_address.connections >= self.most && !has_room {
            if !std::mem::replace(&mut of_address.refusal_logged, true) {
                tracing::warn!(%peer, "connection refused: this address has too many without a valid token");
            }
            return Err(TooMany);
        }
        of_address.connections += 1;
        Ok(Some(UnauthenticatedConnection { address, counts: Arc::clone(self) }))
    }
}

impl Drop for UnauthenticatedConnection {
    fn drop(&mut self) {
        let mut held = self.counts.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut of_address) = held.entry(self.address) {
            of_address.get_mut().connections -= 1;
            if of_address.get().connections == 0 {
                of_address.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(
        unauthenticated: &Arc<UnauthenticatedConnections>,
        peer: &str,
    ) -> Result<Option<UnauthenticatedConnection>, TooMany> {
        unauthenticated.admit(peer.parse().unwrap(), false)
    }

    #[test]
    fn an_address_is_limited_until_a_connection_closes_or_authenticates() {
        let unauthenticated = UnauthenticatedConnections::new(2);
        let first = admit(&unauthenticated, "192.0.2.1").unwrap();
        let _second = admit(&unauthenticated, "::ffff:192.0.2.1").unwrap();
        assert_eq!(admit(&unauthenticated, "192.0.2.1").err(), Some(TooMany));
        assert!(admit(&unauthenticated, "192.0.2.2").is_ok(), "others are not concerned");
        drop(first);
        assert!(admit(&unauthenticated, "192.0.2.1").is_ok());
    }

    #[test]
    fn while_there_is_room_all_connections_are_admitted_and_counted() {
        let unauthenticated = UnauthenticatedConnections::new(1);
        let peer = "192.0.2.1".parse().unwrap();
        let many: Vec<_> = (0..300).map(|_| unauthenticated.admit(peer, true).unwrap()).collect();
        assert_eq!(admit(&unauthenticated, "192.0.2.1").err(), Some(TooMany));
        drop(many);
        assert!(admit(&unauthenticated, "192.0.2.1").is_ok());
    }

    #[test]
    fn ipv6_addresses_of_one_64_bit_network_count_together() {
        let unauthenticated = UnauthenticatedConnections::new(1);
        let _one = admit(&unauthenticated, "2001:db8::1").unwrap();
        assert_eq!(admit(&unauthenticated, "2001:db8::2:1").err(), Some(TooMany));
        assert!(admit(&unauthenticated, "2001:db8:0:1::1").is_ok());
    }

    #[test]
    fn loopback_is_not_counted_and_closed_addresses_are_forgotten() {
        let unauthenticated = UnauthenticatedConnections::new(1);
        for peer in ["127.0.0.1", "127.0.0.1", "::1", "::1", "::ffff:127.0.0.1"] {
            assert!(admit(&unauthenticated, peer).is_ok_and(|counted| counted.is_none()), "{peer}");
        }
        drop(admit(&unauthenticated, "192.0.2.1"));
        assert!(unauthenticated.held.lock().unwrap().is_empty());
    }
}
