//! Protection against web pages of other sites: checks of `Host`, `Origin` and `Sec-Fetch-Site`.

use std::net::{IpAddr, SocketAddr};

use axum::http::{Request, header};

use super::Denial;
use crate::excerpt::excerpt;

/// The names that the server answers to.
#[derive(Debug)]
pub(super) struct Hosts {
    listen: SocketAddr,
    names: Vec<String>,
}

impl Hosts {
    /// The loopback names, and the address on which the server listens.
    pub(super) const fn new(listen: SocketAddr) -> Self {
        Self { listen, names: Vec::new() }
    }

    /// Adds names; a port in them is ignored.
    pub(super) fn add(&mut self, hosts: impl IntoIterator<Item = String>) {
        self.names.extend(hosts.into_iter().map(|host| host_name(&host).to_ascii_lowercase()));
    }

    /// Refuses a request for another host.
    ///
    /// # Errors
    /// [`Denial::Host`].
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<(), Denial> {
        let given = requested_host(request);
        match given {
            Some(host) if self.include(host_name(host)) => Ok(()),
            _ => Err(Denial::Host(excerpt(given.unwrap_or_default()))),
        }
    }

    fn include(&self, name: &str) -> bool {
        if name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|host| name.eq_ignore_ascii_case(host))
        {
            return true;
        }
        let unbracketed = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let Ok(ip) = unbracketed.parse::<IpAddr>() else { return false };
        // A server on all addresses accepts every IP address as host: DNS rebinding needs a name.
        ip.is_loopback() || ip == self.listen.ip() || self.listen.ip().is_unspecified()
    }
}

/// Refuses unsafe requests that a browser marks as coming from another site.
///
/// # Errors
/// [`Denial::CrossSite`].
pub(super) fn check<B>(request: &Request<B>) -> Result<(), Denial> {
    let upgrades = request.headers().contains_key(header::UPGRADE);
    if request.method().is_safe() && !upgrades {
        return Ok(());
    }
    if let Some(site) = request.headers().get("sec-fetch-site")
        && site != "same-origin"
        && site != "none"
    {
        return Err(Denial::CrossSite { field: "Sec-Fetch-Site" });
    }
    if let Some(origin) = request.headers().get(header::ORIGIN) {
        let same =
            origin.to_str().ok().and_then(|origin| origin.split_once("://")).is_some_and(|(_, from)| {
                requested_host(request).is_some_and(|host| host.eq_ignore_ascii_case(from))
            });
        if !same {
            return Err(Denial::CrossSite { field: "Origin" });
        }
    }
    Ok(())
}

/// The host that the client wanted to reach, with its port.
fn requested_host<B>(request: &Request<B>) -> Option<&str> {
    match request.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => request.headers().get(header::HOST).and_then(|host| host.to_str().ok()),
    }
}

/// A host without its port.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}
