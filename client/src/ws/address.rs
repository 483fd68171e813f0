//! Address of the server: `host[:port][/path]`, or a URL.

use std::fmt;

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// A name or an IP address, without brackets.
    host: String,
    port: u16,
    is_tls: bool,
    /// The base path before `/api`: empty, or a path with a leading and without a trailing slash.
    base: String,
}

/// An invalid address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The scheme is unknown.
    #[error("`{0}` is not a scheme of a server: write host:port, http://host:port or https://host:port")]
    Scheme(String),
    /// The host is missing.
    #[error("`{0}` has no host: write host:port or https://host:port")]
    Host(String),
    /// The port is invalid.
    #[error("`{0}` is not a port: 1 to 65535")]
    Port(String),
    /// A user or password stands before the host; the message does not repeat it.
    #[error(
        "an address takes no user and no password: put the token into a file and name it with --token-file"
    )]
    Credentials,
    /// A query or a fragment stands after the path.
    #[error("after `{0}` stands a `?` or `#`: an address takes neither query nor fragment")]
    QueryOrFragment(String),
}

impl Address {
    /// Reads `host[:port][/path]` or a URL. Without a port it is 8080, after `http://` or `ws://` 80, and with TLS (`https://` or `wss://`) 443.
    /// If the path ends with that of the WebSocket upgrade, this end is left out.
    ///
    /// # Errors
    /// The text has none of these forms; the message says which part is wrong.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let text = text.trim();
        let (scheme, rest) =
            text.split_once("://").map_or((None, text), |(scheme, rest)| (Some(scheme), rest));
        // Checked first: this part may be a secret, and no message shows it.
        if rest.contains('@') {
            return Err(AddressError::Credentials);
        }
        if let Some((plain, _)) = rest.split_once(['?', '#']) {
            return Err(AddressError::QueryOrFragment(shown(plain)));
        }
        let (is_tls, port_by_default) = match scheme {
            None => (false, PORT),
            Some("http" | "ws") => (false, HTTP_PORT),
            Some("https" | "wss") => (true, HTTPS_PORT),
            Some(scheme) => return Err(AddressError::Scheme(shown(scheme))),
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) = split(authority)?;
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
        Ok(Self { host: host.to_owned(), port, is_tls, base })
    }

    /// The URL that API paths are appended to: `http://host:port` or `https://host:port`, and the base path.
    #[must_use]
    pub fn http_url(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{self}")
    }

    /// True if connections to the server use TLS.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// The same server with TLS.
    pub(super) fn with_tls(mut self) -> Self {
        self.is_tls = true;
        self
    }

    /// The host for the resolver.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the WebSocket upgrade.
    pub(crate) fn connect_url(&self) -> String {
        let scheme = if self.is_tls { "wss" } else { "ws" };
        format!("{scheme}://{self}{CONNECT_PATH}")
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
///
/// # Errors
/// Something else than `:port` stands after the brackets of an IPv6 address.
fn split(authority: &str) -> Result<(&str, Option<&str>), AddressError> {
    if let Some((host, rest)) = authority.strip_prefix('[').and_then(|it| it.split_once(']')) {
        return match rest.strip_prefix(':') {
            None if !rest.is_empty() => Err(AddressError::Port(shown(rest))),
            port => Ok((host, port)),
        };
    }
    Ok(match authority.split_once(':') {
        Some((_, rest)) if rest.contains(':') => (authority, None),
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    })
}

/// A part of the input, shortened and escaped for a terminal.
fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

const CONNECT_PATH: &str = "/api/workers/connect";
/// The default port of the server.
const PORT: u16 = 8080;
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> String {
        Address::parse(text).expect("an address").connect_url()
    }

    #[test]
    fn usual_addresses_are_parsed() {
        assert_eq!(url("server:8080"), "ws://server:8080/api/workers/connect");
        assert_eq!(url("server"), "ws://server:8080/api/workers/connect");
        assert_eq!(url("http://server/"), "ws://server:80/api/workers/connect");
        assert_eq!(url("https://server"), "wss://server:443/api/workers/connect");
        assert_eq!(url("wss://server:8443/jobs"), "wss://server:8443/jobs/api/workers/connect");
        assert_eq!(Address::parse("wss://server").expect("an address").http_url(), "https://server:443");
        assert_eq!(url("ws://server:9/jobs/"), "ws://server:9/jobs/api/workers/connect");
        assert_eq!(url("server:9/jobs/api/workers/connect"), "ws://server:9/jobs/api/workers/connect");
        assert_eq!(url("[::1]:9"), "ws://[::1]:9/api/workers/connect");
        assert_eq!(url("::1"), "ws://[::1]:8080/api/workers/connect");
        assert_eq!(Address::parse("[::1]:9").expect("an address").host(), "::1");
        assert_eq!(Address::parse("ws://[::1]:9/a/").expect("an address").http_url(), "http://[::1]:9/a");
    }

    #[test]
    fn an_invalid_address_is_refused_with_a_hint() {
        let error = |text: &str| Address::parse(text).expect_err(text).to_string();
        assert!(error("htp://server").contains("host:port"));
        assert!(error("").contains("has no host"));
        assert!(error(":80").contains("has no host"));
        assert!(error("server:0").contains("not a port"));
        assert!(error("server:99999").contains("not a port"));
        assert!(error("[::1]8443").contains("`8443` is not a port"));
        assert!(error("[::1]x:9").contains("`x:9` is not a port"));
        assert!(error("https://[::1]8443/jobs").contains("`8443` is not a port"));
        for server in
            ["http://user:hunter2@server", "https://user:hunter2@server", "x://user:hunt/er2@server/?x#y"]
        {
            assert!(error(server).contains("no user and no password") && !error(server).contains("er2"));
        }
        assert!(error("server/jobs?token=s3cret").contains("after `server/jobs` stands a `?`"));
        assert!(!error("server/jobs?token=s3cret").contains("s3cret"));
    }
}
