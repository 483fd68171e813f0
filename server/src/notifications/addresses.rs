//! The addresses to which the server posts messages. URLs come from jobs.yaml, and the server stands inside of a network: without a
//! check they would reach services that trust everybody within it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// The networks that are allowed beside the public ones.
#[derive(Clone, Debug, Default)]
pub struct AllowedNetworks(Vec<IpNet>);

impl AllowedNetworks {
    /// Public addresses, and these.
    #[must_use]
    pub const fn new(networks: Vec<IpNet>) -> Self {
        Self(networks)
    }

    /// True if messages may be posted to this address.
    #[must_use]
    pub fn allow(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        is_public(address) || self.0.iter().any(|network| network.contains(&address))
    }
}

/// True for addresses that anybody on the internet may have. The ranges are those of the IANA registries of special-purpose addresses.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

const fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_shared = a == 100 && b & 0b1100_0000 == 64;
    let is_protocol_assignment = a == 192 && b == 0 && c == 0;
    let is_relay = a == 192 && b == 88 && c == 99;
    let is_benchmark = a == 198 && b & 0b1111_1110 == 18;
    !(a == 0
        || a >= 240
        || is_shared
        || is_protocol_assignment
        || is_relay
        || is_benchmark
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || address.is_broadcast())
}

/// Global unicast is 2000::/3. Within it, ranges that carry an IPv4 address or are for special use are refused: a translator could lead
/// them back inside.
const fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let is_global = segments[0] & 0xe000 == 0x2000;
    let is_protocol_assignment = segments[0] == 0x2001 && segments[1] < 0x0200;
    let is_documentation =
        (segments[0] == 0x2001 && segments[1] == 0x0db8) || (segments[0] == 0x3fff && segments[1] < 0x1000);
    let is_6to4 = segments[0] == 0x2002;
    is_global && !is_protocol_assignment && !is_documentation && !is_6to4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_allowed_without_a_flag() {
        let allowed = AllowedNetworks::default();
        let allow = |address: &str| allowed.allow(address.parse().unwrap());
        for public in ["1.1.1.1", "100.128.0.1", "192.0.1.1", "203.0.114.1", "2606:4700::1111", "2a00::1"] {
            assert!(allow(public), "{public}");
        }
        for other in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.2.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "::7f00:1",
            "64:ff9b::a00:1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:a00:1::",
        ] {
            assert!(!allow(other), "{other}");
        }
    }

    #[test]
    fn a_flag_allows_a_network_also_in_its_mapped_form() {
        let allowed = AllowedNetworks::new(vec!["10.1.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()]);
        let allow = |address: &str| allowed.allow(address.parse().unwrap());
        assert!(allow("10.1.2.3") && allow("::ffff:10.1.2.3") && allow("fd12::1"));
        assert!(!allow("10.2.0.1") && !allow("127.0.0.1"));
    }
}
