//! Network namespaces: each worker has its own, connected to the server by a bridge. Needs root, `ip` and `iptables`. The kernel drops the
//! packets, so real TCP retransmissions, timeouts and resets are tested.

use std::process::Command;

use super::{Direction, LinkState};

/// The bridge of a round; its address is the server's.
#[derive(Debug)]
pub struct Network {
    bridge: String,
    net: u8,
    port: u16,
}

/// A namespace on that bridge.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    server: String,
}

impl Network {
    /// Creates the bridge for the server on this port.
    #[must_use]
    pub fn new(port: u16) -> Self {
        let network = Self { bridge: format!("lsc{port}"), net: (port % 250) as u8 + 1, port };
        ip(&["link", "add", &network.bridge, "type", "bridge"]);
        ip(&["address", "add", &format!("{}/24", network.host()), "dev", &network.bridge]);
        ip(&["link", "set", &network.bridge, "up"]);
        network
    }

    /// The address of the bridge, which the server listens on. It is not reachable from outside of this machine.
    #[must_use]
    pub fn host(&self) -> String {
        format!("{}.{}.1", PREFIX, self.net)
    }

    /// Creates the namespace of the worker with this number.
    #[must_use]
    pub fn namespace(&self, n: u32) -> Namespace {
        let name = format!("{}w{n}", self.bridge);
        let address = format!("{}.{}.{}/24", PREFIX, self.net, 10 + n);
        let (outside, inside) = (name.as_str(), "eth0");
        ip(&["netns", "add", &name]);
        ip(&["link", "add", outside, "type", "veth", "peer", "name", inside, "netns", &name]);
        ip(&["link", "set", outside, "master", &self.bridge, "up"]);
        ip(&["-n", &name, "address", "add", &address, "dev", inside]);
        ip(&["-n", &name, "link", "set", inside, "up"]);
        ip(&["-n", &name, "link", "set", "lo", "up"]);
        Namespace { name, server: format!("{}:{}", self.host(), self.port) }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        try_ip(&["link", "delete", &self.bridge]);
    }
}

impl Namespace {
    pub(super) fn address(&self) -> String {
        self.server.clone()
    }

    pub(super) fn command_prefix(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(str::to_owned).into()
    }

    /// Sets the rules inside of the namespace: OUTPUT is the worker's data, INPUT the server's.
    pub(super) fn set_state(&self, state: LinkState) {
        self.iptables(&["--flush"]);
        for (direction, chain) in [(Direction::Up, "OUTPUT"), (Direction::Down, "INPUT")] {
            match state {
                LinkState::Broken => {
                    self.iptables(&["-A", chain, "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset"]);
                }
                _ if state.passes(direction) => {}
                _ => self.iptables(&["-A", chain, "-j", "DROP"]),
            }
        }
    }

    fn iptables(&self, rule: &[&str]) {
        let mut words = vec!["netns", "exec", &self.name, "iptables"];
        words.extend(rule);
        ip(&words);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        try_ip(&["netns", "delete", &self.name]);
    }
}

fn ip(words: &[&str]) {
    assert!(try_ip(words), "ip {} failed: root is needed", words.join(" "));
}

fn try_ip(words: &[&str]) -> bool {
    Command::new("ip").args(words).status().is_ok_and(|status| status.success())
}

/// From the range for network benchmarks (RFC 2544), which is not routed.
const PREFIX: &str = "198.18";
