//! Where the server is: `host[:port][/path]`, or a URL.

use std::fmt;

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// A name or an IP address, without brackets.
    host: String,
    port: u16,
    /// What stands before `/api`: empty, or a path that begins with a slash and does not end with one.
    base: String,
}

/// An address that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// `https` or `wss`.
    #[error(
        "`{0}`: TLS is not built in yet; use http:// in a trusted network, or a proxy that speaks TLS to the outside"
    )]
    Tls(String),
    /// Some other scheme.
    #[error("`{0}` is not a scheme of a server: write host:port, http://host:port or ws://host:port")]
    Scheme(String),
    /// No host.
    #[error("`{0}` names no host: write host:port or http://host:port")]
    Host(String),
    /// The port is none.
    #[error("`{0}` is not a port: 1 to 65535")]
    Port(String),
    /// A user or password in front of the host, which is not repeated here.
    #[error(
        "an address takes no user and no password: put the token into a file and name it with --token-file"
    )]
    Credentials,
    /// A question mark or a hash behind the path.
    #[error("`{0}` goes on behind its path: an address takes no `?` and no `#`")]
    Tail(String),
}

impl Address {
    /// Reads `host[:port][/path]` (port 8080 if absent) or an `http://` or `ws://` URL (port 80 if absent).
    ///
    /// # Errors
    /// It is none of them; the text says what to write.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        let (scheme, rest) =
            text.split_once("://").map_or((None, text), |(scheme, rest)| (Some(scheme), rest));
        // First of all: what stands there may be a secret, and is not shown again.
        if rest.contains('@') {
            return Err(AddressError::Credentials);
        }
        if let Some((plain, _)) = rest.split_once(['?', '#']) {
            return Err(AddressError::Tail(shown(plain)));
        }
        let port_by_default = match scheme {
            None => PORT,
            Some("http" | "ws") => HTTP_PORT,
            Some("https" | "wss") => return Err(AddressError::Tls(shown(text))),
            Some(scheme) => return Err(AddressError::Scheme(shown(scheme))),
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = split(authority);
        if host.is_empty()
            || host.contains(|it: char| it.is_whitespace() || it.is_control() || "\\[]".contains(it))
        {
            return Err(AddressError::Host(shown(text)));
        }
        let port = match port {
            None => port_by_default,
            Some(port) => {
                port.parse().ok().filter(|it| *it != 0).ok_or_else(|| AddressError::Port(shown(port)))?
            }
        };
        let path = path.trim_end_matches('/');
        let base = path.strip_suffix(CONNECT_PATH).unwrap_or(path).to_owned();
        Ok(Self { host: host.to_owned(), port, base })
    }

    /// What paths are appended to: `http://host:port`, with the base path behind it.
    #[must_use]
    pub fn http_url(&self) -> String {
        format!("http://{self}")
    }

    /// The host, for a resolver.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the upgrade.
    pub(crate) fn connect_url(&self) -> String {
        format!("ws://{self}{CONNECT_PATH}")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}{}", self.host, self.port, self.base)
        } else {
            write!(f, "{}:{}{}", self.host, self.port, self.base)
        }
    }
}

/// Host and port; a bare IPv6 address has no port.
fn split(authority: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = authority.strip_prefix('[').and_then(|it| it.split_once(']')) {
        return (host, rest.strip_prefix(':'));
    }
    match authority.split_once(':') {
        Some((_, rest)) if rest.contains(':') => (authority, None),
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    }
}

/// A part of what was typed, short and harmless on a terminal.
fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

const CONNECT_PATH: &str = "/api/workers/connect";
/// Longshore's own.
const PORT: u16 = 8080;
const HTTP_PORT: u16 = 80;

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> String {
        Address::parse(text).expect("an address").connect_url()
    }

    #[test]
    fn what_people_write_is_understood() {
        assert_eq!(url("server:8080"), "ws://server:8080/api/workers/connect");
        assert_eq!(url("server"), "ws://server:8080/api/workers/connect");
        assert_eq!(url("http://server/"), "ws://server:80/api/workers/connect");
        assert_eq!(url("ws://server:9/jobs/"), "ws://server:9/jobs/api/workers/connect");
        assert_eq!(url("server:9/jobs/api/workers/connect"), "ws://server:9/jobs/api/workers/connect");
        assert_eq!(url("[::1]:9"), "ws://[::1]:9/api/workers/connect");
        assert_eq!(url("::1"), "ws://[::1]:8080/api/workers/connect");
        assert_eq!(Address::parse("[::1]:9").expect("an address").host(), "::1");
        assert_eq!(Address::parse("ws://[::1]:9/a/").expect("an address").http_url(), "http://[::1]:9/a");
    }

    #[test]
    fn what_cannot_be_an_address_is_refused_with_a_hint() {
        let error = |text: &str| Address::parse(text).expect_err(text).to_string();
        assert!(error("https://server").contains("TLS is not built in yet"));
        assert!(error("wss://server").contains("TLS is not built in yet"));
        assert!(error("htp://server").contains("host:port"));
        assert!(error("").contains("names no host"));
        assert!(error(":80").contains("names no host"));
        assert!(error("server:0").contains("not a port"));
        assert!(error("server:99999").contains("not a port"));
        for server in
            ["http://user:hunter2@server", "https://user:hunter2@server", "x://user:hunt/er2@server/?x#y"]
        {
            assert!(error(server).contains("no user and no password") && !error(server).contains("er2"));
        }
        assert!(error("server/jobs?token=s3cret").contains("`server/jobs` goes on behind its path"));
        assert!(!error("server/jobs?token=s3cret").contains("s3cret"));
    }
}
