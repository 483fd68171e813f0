//! Parsing of the listen address, allowed host names and the base path.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;

use super::SettingsError;
use crate::notifications::addresses::AllowedNetworks;

/// The path under which everything is served: empty, or `/a/b` without a slash at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BasePath(String);

impl BasePath {
    /// Parses `a/b`, `/a/b` and `/a/b/` as the same path; `/` is the empty path.
    ///
    /// # Errors
    /// The path holds characters that need escaping, or `.` and `..`.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let parts: Vec<_> = text.trim().trim_matches('/').split('/').collect();
        if parts == [""] {
            return Ok(Self::default());
        }
        let is_part = |part: &&str| {
            !matches!(*part, "" | "." | "..")
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte))
        };
        if !parts.iter().all(is_part) {
            let reason = format!(
                "{text:?} is not a path of letters, digits, '.', '_', '~' and '-', such as /longshore"
            );
            return Err(SettingsError::Value {
                flag: "--base-path",
                variable: "LONGSHORE_BASE_PATH",
                reason,
            });
        }
        Ok(Self(format!("/{}", parts.join("/"))))
    }

    /// The path as text: empty, or with a leading slash.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses `address:port`, where the address may be `localhost`. Other names are refused, because their addresses may change.
pub(super) fn listen(text: &str) -> Result<SocketAddr, SettingsError> {
    let wrong = |reason| SettingsError::Listen { address: text.to_owned(), reason };
    let text = text.trim();
    let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("it has no port; write 127.0.0.1:8080"))?;
    let port = port.parse().map_err(|_| wrong("the port is not a number from 0 to 65535"))?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let ip = match host {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        host => host.parse().map_err(|_| wrong("the host is not an IP address; write 127.0.0.1:8080"))?,
    };
    Ok(SocketAddr::new(ip, port))
}

/// The URL of the server for people, without a slash at its end.
pub(super) fn public_url(text: &str) -> Result<String, SettingsError> {
    let url = reqwest::Url::parse(text.trim()).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.host_str().is_some()
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
    });
    let Some(url) = url else {
        let reason = format!("{text:?} is not a URL such as https://jobs.example/longshore");
        return Err(SettingsError::Value { flag: "--public-url", variable: "LONGSHORE_PUBLIC_URL", reason });
    };
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// Networks in the form `10.0.0.0/8`; an address alone is a network of one.
pub(super) fn networks(texts: &[String]) -> Result<AllowedNetworks, SettingsError> {
    let network = |text: &String| {
        let text = text.trim();
        let parsed = text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        parsed.ok_or_else(|| SettingsError::Value {
            flag: "--allow-webhook",
            variable: "LONGSHORE_ALLOW_WEBHOOK",
            reason: format!("{text:?} is not a network such as 10.0.0.0/8, or an address"),
        })
    };
    texts.iter().map(network).collect::<Result<_, _>>().map(AllowedNetworks::new)
}

/// A host name, with or without a port.
pub(super) fn host(text: &str) -> Result<String, SettingsError> {
    let host = text.trim().to_ascii_lowercase();
    let fits = !host.is_empty()
        && host.len() <= HOST_BYTES_MAX
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte));
    if fits {
        return Ok(host);
    }
    Err(SettingsError::Value {
        flag: "--allow-host",
        variable: "LONGSHORE_ALLOW_HOST",
        reason: format!("{text:?} is not the name of a host, such as jobs.example.org"),
    })
}

/// The longest name that DNS knows, and a port.
const HOST_BYTES_MAX: usize = 253 + 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_paths_are_brought_into_one_form() {
        for text in ["a/b", "/a/b", "/a/b/"] {
            assert_eq!(BasePath::parse(text).expect(text).as_str(), "/a/b");
        }
        for text in ["", "/", " "] {
            assert_eq!(BasePath::parse(text).expect(text).as_str(), "");
        }
        for text in ["/a//b", "/../a", "/a b", "/%2e", "/a?b"] {
            assert!(BasePath::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_are_numbers_or_localhost() {
        assert_eq!(listen("localhost:0").expect("localhost").to_string(), "127.0.0.1:0");
        assert_eq!(listen("[::1]:80").expect("IPv6").to_string(), "[::1]:80");
        for text in ["8080", ":8080", "example.org:80", "127.0.0.1", ""] {
            assert!(listen(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_are_names() {
        assert_eq!(host(" Jobs.Example.org ").expect("a name"), "jobs.example.org");
        for text in ["", "http://a", "a b", "a/b"] {
            assert!(host(text).is_err(), "{text}");
        }
    }
}
