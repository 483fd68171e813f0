//! Network namespaces: a worker in its own, and a bridge to the server. Needs root, `ip` and `iptables`. What passes is the kernel's to
//! decide, so that TCP itself meets the trouble: retransmissions, time-outs, resets.

use std::process::Command;

use super::{Way, Weather};

/// A bridge of a round's own; its address is the server's.
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
    /// Makes one for the server on this port.
    #[must_use]
    pub fn new(port: u16) -> Self {
        let network = Self { bridge: format!("lsc{port}"), net: (port % 250) as u8 + 1, port };
        ip(&["link", "add", &network.bridge, "type", "bridge"]);
        ip(&["address", "add", &format!("{}/24", network.host()), "dev", &network.bridge]);
        ip(&["link", "set", &network.bridge, "up"]);
        network
    }

    /// The server's address: nobody beyond the bridge reaches it.
    #[must_use]
    pub fn host(&self) -> String {
        format!("{}.{}.1", PREFIX, self.net)
    }

    /// Makes the namespace of the worker with this number.
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

    pub(super) fn through(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(str::to_owned).into()
    }

    /// Rules are set inside: the worker's own words go out there, and the server's come in.
    pub(super) fn turn(&self, weather: Weather) {
        self.iptables(&["--flush"]);
        for (way, chain) in [(Way::Up, "OUTPUT"), (Way::Down, "INPUT")] {
            match weather {
                Weather::Broken => {
                    self.iptables(&["-A", chain, "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset"]);
                }
                _ if weather.passes(way) => {}
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
    assert!(try_ip(words), "ip {} failed: is this root?", words.join(" "));
}

fn try_ip(words: &[&str]) -> bool {
    Command::new("ip").args(words).status().is_ok_and(|status| status.success())
}

/// From the range for benchmarks of networks (RFC 2544), which nobody routes.
const PREFIX: &str = "198.18";
