//! Who may ask for what: two bearer tokens (one for the interface, one for workers), and the guards against web pages of other
//! sites, which need no token to do harm on loopback.
//!
//! Tokens are compared as SHA-256 in constant time. A request with a valid token skips the check of `Host`, because a page that was
//! led here by a forged DNS answer has none.

mod failures;

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use axum::http::{HeaderMap, Request, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use failures::Failures;

/// What a request asks for, as far as permission goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Needs no token.
    Open,
    /// The interface for people and programs.
    Api,
    /// The socket of workers.
    Worker,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Open | Self::Api => "API",
            Self::Worker => "worker",
        }
    }
}

/// How a request passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// It has shown a valid token.
    ByToken,
    /// What it asks for needs none.
    Freely,
}

/// Why a request is turned away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// It has no token.
    #[error("this request needs a valid token")]
    NoToken,
    /// Its token is unknown. The text is the same, so that it tells nothing.
    #[error("this request needs a valid token")]
    InvalidToken,
    /// Its token is valid for something else.
    #[error("this is the {given} token; what is asked for needs the {needed} token")]
    WrongRole {
        /// Whose token it is.
        given: &'static str,
        /// Whose token would do.
        needed: &'static str,
    },
    /// Too many requests from its address had no valid token.
    #[error("too many requests from this address had no valid token")]
    TooManyFailures {
        /// When the next one is looked at.
        retry_after_s: u64,
    },
    /// It carries a token in its address.
    #[error("a token must not be part of an address")]
    TokenInUrl,
    /// It asks for a host that this server is not.
    #[error("this server does not answer to the host \"{0}\"")]
    Host(String),
    /// A page of another site sends it.
    #[error("the header {field} says that a page of another site sends this request")]
    CrossSite {
        /// The header that tells.
        field: &'static str,
    },
}

/// Who may ask for what.
#[derive(Debug)]
pub struct Access {
    api: Option<Hash>,
    worker: Option<Hash>,
    hosts: Vec<String>,
    listen: SocketAddr,
    failures: Failures,
}

impl Access {
    /// No tokens: whoever reaches `listen` may do everything; `Host` and `Origin` are checked.
    #[must_use]
    pub fn open(listen: SocketAddr) -> Self {
        Self { api: None, worker: None, hosts: Vec::new(), listen, failures: Failures::default() }
    }

    /// Asks for this token from everybody but workers.
    #[must_use]
    pub fn api_token(mut self, token: &str) -> Self {
        self.api = Some(hash(token.as_bytes()));
        self
    }

    /// Asks for this token from workers.
    #[must_use]
    pub fn worker_token(mut self, token: &str) -> Self {
        self.worker = Some(hash(token.as_bytes()));
        self
    }

    /// Answers to these host names too; a port in them is ignored.
    #[must_use]
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = String>) -> Self {
        self.hosts.extend(hosts.into_iter().map(|host| host_name(&host).to_ascii_lowercase()));
        self
    }

    /// Lets a request pass, or says why not.
    ///
    /// # Errors
    /// See [`Denial`].
    pub fn check<B>(&self, role: Role, request: &Request<B>, peer: Option<IpAddr>) -> Result<Pass, Denial> {
        if request.uri().query().is_some_and(has_token) {
            return Err(Denial::TokenInUrl);
        }
        let pass = self.check_token(role, request.headers(), peer)?;
        // Workers are no browsers, and a browser cannot open a socket without naming its origin.
        if role == Role::Worker && request.headers().contains_key(header::ORIGIN) {
            return Err(Denial::CrossSite { field: "Origin" });
        }
        // Whoever probes the server may call it as they like: they learn nothing and change nothing.
        if pass == Pass::Freely && role != Role::Open {
            self.check_host(request)?;
        }
        check_site(request)?;
        Ok(pass)
    }

    fn check_token(&self, role: Role, headers: &HeaderMap, peer: Option<IpAddr>) -> Result<Pass, Denial> {
        let (wanted, other, other_role) = match role {
            Role::Open => return Ok(Pass::Freely),
            Role::Api => (self.api.as_ref(), self.worker.as_ref(), Role::Worker),
            Role::Worker => (self.worker.as_ref(), self.api.as_ref(), Role::Api),
        };
        let Some(wanted) = wanted else { return Ok(Pass::Freely) };
        let given = headers.get(header::AUTHORIZATION).map(|value| bearer(value.as_bytes()));
        let denial = match given {
            None => Denial::NoToken,
            Some(None) => Denial::InvalidToken,
            Some(Some(token)) => {
                let given = hash(token);
                if bool::from(given.ct_eq(wanted)) {
                    return Ok(Pass::ByToken);
                }
                match other.is_some_and(|other| bool::from(given.ct_eq(other))) {
                    true => return Err(Denial::WrongRole { given: other_role.name(), needed: role.name() }),
                    false => Denial::InvalidToken,
                }
            }
        };
        match peer.and_then(|peer| self.failures.note(peer, Instant::now())) {
            Some(wait) => Err(Denial::TooManyFailures { retry_after_s: wait.as_secs() + 1 }),
            None => Err(denial),
        }
    }

    fn check_host<B>(&self, request: &Request<B>) -> Result<(), Denial> {
        let given = requested_host(request);
        match given {
            Some(host) if self.answers_to(host_name(host)) => Ok(()),
            _ => Err(Denial::Host(super::http::problem::shown(given.unwrap_or_default()))),
        }
    }

    fn answers_to(&self, name: &str) -> bool {
        if name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|host| name.eq_ignore_ascii_case(host))
        {
            return true;
        }
        let unbracketed = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let Ok(ip) = unbracketed.parse::<IpAddr>() else { return false };
        // Whoever listens on every address answers to each of them: a bare address cannot be forged by DNS.
        ip.is_loopback() || ip == self.listen.ip() || self.listen.ip().is_unspecified()
    }
}

/// A page may send requests to other sites, but a browser says so.
fn check_site<B>(request: &Request<B>) -> Result<(), Denial> {
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

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn has_token(query: &str) -> bool {
    query.split('&').any(|pair| {
        let name = pair.split('=').next().unwrap_or_default();
        TOKEN_NAMES.iter().any(|token| name.eq_ignore_ascii_case(token))
    })
}

fn hash(token: &[u8]) -> Hash {
    Sha256::digest(token).into()
}

type Hash = [u8; 32];

/// How people name a token in an address.
const TOKEN_NAMES: [&str; 5] = ["token", "access_token", "api_token", "auth", "authorization"];

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        Access::open("127.0.0.1:8080".parse().unwrap())
    }

    fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    #[test]
    fn loopback_names_the_listen_address_and_named_hosts_are_answered_to() {
        let access = Access::open("10.1.2.3:80".parse().unwrap()).hosts(["Jobs.Example:8080".into()]);
        let answers =
            |host| access.check(Role::Api, &parts("GET", "/api/jobs", &[("host", host)]), None).is_ok();
        for host in
            ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:80", "::1", "10.1.2.3", "jobs.example:99"]
        {
            assert!(answers(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "10.1.2.4", "", "127.0.0.1.evil.example:80"] {
            assert!(!answers(host), "{host}");
        }
    }

    #[test]
    fn whoever_listens_everywhere_answers_to_any_address_but_to_no_name() {
        let access = Access::open("0.0.0.0:80".parse().unwrap());
        assert!(access.answers_to("192.168.7.7"));
        assert!(!access.answers_to("rebound.example"));
    }

    #[test]
    fn a_valid_token_passes_whatever_the_host() {
        let access = access().api_token("secret").worker_token("other");
        let with = |role, token: &str| {
            let value = format!("bearer {token}");
            access.check(role, &parts("GET", "/", &[("host", "x.example"), ("authorization", &value)]), None)
        };
        assert_eq!(with(Role::Api, "secret"), Ok(Pass::ByToken));
        assert_eq!(with(Role::Worker, "other"), Ok(Pass::ByToken));
        assert_eq!(with(Role::Api, "other"), Err(Denial::WrongRole { given: "worker", needed: "API" }));
        assert_eq!(with(Role::Worker, "secret"), Err(Denial::WrongRole { given: "API", needed: "worker" }));
        assert_eq!(with(Role::Api, "secret2"), Err(Denial::InvalidToken));
        assert_eq!(with(Role::Api, ""), Err(Denial::InvalidToken));
    }

    #[test]
    fn missing_and_invalid_tokens_get_the_same_words() {
        assert_eq!(Denial::NoToken.to_string(), Denial::InvalidToken.to_string());
    }

    #[test]
    fn a_page_of_another_site_can_change_nothing() {
        let post = |headers: &[(&str, &str)]| {
            let mut all = vec![("host", "localhost:8080")];
            all.extend(headers);
            access().check(Role::Api, &parts("POST", "/api/jobs/x", &all), None)
        };
        assert_eq!(post(&[]), Ok(Pass::Freely));
        assert_eq!(
            post(&[("origin", "http://localhost:8080"), ("sec-fetch-site", "same-origin")]),
            Ok(Pass::Freely)
        );
        for origin in
            ["http://evil.example", "null", "http://localhost:9090", "http://localhost:8080.evil.example"]
        {
            assert_eq!(post(&[("origin", origin)]), Err(Denial::CrossSite { field: "Origin" }), "{origin}");
        }
        assert_eq!(
            post(&[("sec-fetch-site", "cross-site")]),
            Err(Denial::CrossSite { field: "Sec-Fetch-Site" })
        );
    }

    #[test]
    fn no_page_at_all_may_open_the_socket_of_workers() {
        let request = parts("GET", "/api/workers/connect", &[("origin", "http://localhost:8080")]);
        assert_eq!(access().check(Role::Worker, &request, None), Err(Denial::CrossSite { field: "Origin" }));
    }

    #[test]
    fn a_worker_without_token_has_to_call_the_server_by_its_name() {
        let knock = |access: &Access, host, token| {
            let headers = [("host", host), ("upgrade", "websocket"), ("authorization", token)];
            access.check(Role::Worker, &parts("GET", "/api/workers/connect", &headers), None)
        };
        assert_eq!(knock(&access(), "rebound.example", ""), Err(Denial::Host("rebound.example".to_owned())));
        assert_eq!(knock(&access(), "127.0.0.1:9", ""), Ok(Pass::Freely));
        let named = access().hosts(["server".to_owned()]);
        assert_eq!(knock(&named, "server:8080", ""), Ok(Pass::Freely));
        let guarded = access().worker_token("machines");
        assert_eq!(knock(&guarded, "any.example", "Bearer machines"), Ok(Pass::ByToken));
    }

    #[test]
    fn a_token_in_the_address_is_refused_even_where_none_is_needed() {
        let request = parts("GET", "/healthz?x=1&Token=abc", &[("host", "localhost")]);
        assert_eq!(access().check(Role::Open, &request, None), Err(Denial::TokenInUrl));
    }
}
