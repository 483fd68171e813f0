//! Access control: two bearer tokens (API and workers), and checks of `Host` and `Origin` against requests from web pages of other sites,
//! which can do harm on loopback without a token.
//!
//! Tokens are compared as SHA-256 in constant time. A request with a valid token skips the check of `Host`: a page that reaches the server
//! by DNS rebinding has no token.

pub(crate) mod failures;
pub(crate) mod sessions;

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use axum::http::{HeaderMap, HeaderValue, Request, header};

use crate::excerpt::excerpt;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use failures::FailureLimiter;
use sessions::Sessions;

/// The permission that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Needs no token.
    Open,
    /// The HTTP API for people and programs.
    Api,
    /// The WebSocket endpoint of workers.
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

/// The ground on which a request was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It has shown a valid token.
    ByToken,
    /// The request needs no token.
    WithoutToken,
}

/// The reason for which a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The request has no token.
    #[error("this request needs a valid token")]
    NoToken,
    /// The token is unknown. The text equals that of [`Denial::NoToken`], so that a guesser learns nothing.
    #[error("this request needs a valid token")]
    InvalidToken,
    /// The token is valid, but for another role.
    #[error("this is the {given} token; what is asked for needs the {needed} token")]
    WrongRole {
        /// The role of the token that was given.
        given: &'static str,
        /// The role that the request needs.
        needed: &'static str,
    },
    /// Too many requests from its address had no valid token.
    #[error("too many requests from this address had no valid token")]
    TooManyFailures {
        /// Seconds until the server checks a token of this address again.
        retry_after_s: u64,
    },
    /// The request carries a token in its URL.
    #[error("a token must not be part of an address")]
    TokenInUrl,
    /// The `Host` of the request is not a name of this server.
    #[error("this server does not answer to the host \"{0}\"")]
    Host(String),
    /// A web page of another site sent the request.
    #[error("the header {field} says that a page of another site sends this request")]
    CrossSite {
        /// The header that shows it.
        field: &'static str,
    },
}

/// The tokens, host names and failure limits of one server.
#[derive(Debug)]
pub struct Access {
    api: Option<Hash>,
    worker: Option<Hash>,
    hosts: Vec<String>,
    listen: SocketAddr,
    failures: FailureLimiter,
    sessions: Sessions,
}

impl Access {
    /// No tokens: every client that reaches `listen` may do everything; `Host` and `Origin` are checked.
    #[must_use]
    pub fn open(listen: SocketAddr) -> Self {
        Self {
            api: None,
            worker: None,
            hosts: Vec::new(),
            listen,
            failures: FailureLimiter::default(),
            sessions: Sessions::default(),
        }
    }

    /// Requires this token for all requests but those of workers.
    #[must_use]
    pub fn api_token(mut self, token: &str) -> Self {
        self.api = Some(hash(token.as_bytes()));
        self
    }

    /// Requires this token from workers.
    #[must_use]
    pub fn worker_token(mut self, token: &str) -> Self {
        self.worker = Some(hash(token.as_bytes()));
        self
    }

    /// True if the API wants a token.
    #[must_use]
    pub const fn has_api_token(&self) -> bool {
        self.api.is_some()
    }

    /// Begins a session of the dashboard for the API token, and returns the value of its cookie.
    ///
    /// # Errors
    /// Those of a wrong token; an address with too many of them is locked out.
    pub fn sign_in(&self, token: &str, peer: Option<IpAddr>) -> Result<String, Denial> {
        let value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| Denial::InvalidToken)?;
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
        self.check_token(Role::Api, &headers, peer)?;
        Ok(self.sessions.begin(Instant::now()))
    }

    /// Ends the session of a request, if it has one.
    pub fn sign_out(&self, headers: &HeaderMap) {
        self.sessions.end(headers);
    }

    /// Accepts these host names as well; a port in them is ignored.
    #[must_use]
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = String>) -> Self {
        self.hosts.extend(hosts.into_iter().map(|host| host_name(&host).to_ascii_lowercase()));
        self
    }

    /// Admits a request or says why not.
    ///
    /// # Errors
    /// See [`Denial`].
    pub fn check<B>(
        &self,
        role: Role,
        request: &Request<B>,
        peer: Option<IpAddr>,
    ) -> Result<Admission, Denial> {
        if request.uri().query().is_some_and(has_token) {
            return Err(Denial::TokenInUrl);
        }
        let admission = self.check_token(role, request.headers(), peer)?;
        // Workers are not browsers, and a browser always sends `Origin` when it opens a WebSocket.
        if role == Role::Worker && request.headers().contains_key(header::ORIGIN) {
            return Err(Denial::CrossSite { field: "Origin" });
        }
        // Health checks may use any host name: they read no data and change nothing.
        if admission == Admission::WithoutToken && role != Role::Open {
            self.check_host(request)?;
        }
        check_site(request)?;
        Ok(admission)
    }

    fn check_token(
        &self,
        role: Role,
        headers: &HeaderMap,
        peer: Option<IpAddr>,
    ) -> Result<Admission, Denial> {
        let (required, other, other_role) = match role {
            Role::Open => return Ok(Admission::WithoutToken),
            Role::Api => (self.api.as_ref(), self.worker.as_ref(), Role::Worker),
            Role::Worker => (self.worker.as_ref(), self.api.as_ref(), Role::Api),
        };
        let Some(required) = required else { return Ok(Admission::WithoutToken) };
        // A session was begun with the token. Its cookie cannot be guessed, so a wrong one is an old one, and no failure.
        if role == Role::Api
            && sessions::cookie(headers).is_some()
            && !headers.contains_key(header::AUTHORIZATION)
        {
            return match self.sessions.has(headers, Instant::now()) {
                true => Ok(Admission::ByToken),
                false => Err(Denial::NoToken),
            };
        }
        // The lock-out comes before the comparison: a guesser learns nothing about the tokens of a locked-out address.
        let now = Instant::now();
        if let Some(wait) = peer.and_then(|peer| self.failures.lock_out(peer, now)) {
            return Err(Denial::TooManyFailures { retry_after_s: wait.as_secs() + 1 });
        }
        let given = headers.get(header::AUTHORIZATION).map(|value| bearer(value.as_bytes()));
        let denial = match given {
            None => Denial::NoToken,
            Some(None) => Denial::InvalidToken,
            Some(Some(token)) => {
                let given = hash(token);
                if bool::from(given.ct_eq(required)) {
                    return Ok(Admission::ByToken);
                }
                match other.is_some_and(|other| bool::from(given.ct_eq(other))) {
                    true => return Err(Denial::WrongRole { given: other_role.name(), needed: role.name() }),
                    false => Denial::InvalidToken,
                }
            }
        };
        if let Some(peer) = peer {
            self.failures.record(peer, now);
        }
        Err(denial)
    }

    fn check_host<B>(&self, request: &Request<B>) -> Result<(), Denial> {
        let given = requested_host(request);
        match given {
            Some(host) if self.answers_to(host_name(host)) => Ok(()),
            _ => Err(Denial::Host(excerpt(given.unwrap_or_default()))),
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
        // A server on all addresses accepts every IP address as host: DNS rebinding needs a name.
        ip.is_loopback() || ip == self.listen.ip() || self.listen.ip().is_unspecified()
    }
}

/// Refuses unsafe requests that a browser marks as coming from another site.
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

/// Names under which people put tokens into URLs.
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
    fn a_server_on_all_addresses_accepts_any_ip_as_host_but_no_name() {
        let access = Access::open("0.0.0.0:80".parse().unwrap());
        assert!(access.answers_to("192.168.7.7"));
        assert!(!access.answers_to("rebound.example"));
    }

    #[test]
    fn a_valid_token_passes_with_any_host() {
        let access = access().api_token("secret").worker_token("other");
        let with = |role, token: &str| {
            let value = format!("bearer {token}");
            access.check(role, &parts("GET", "/", &[("host", "x.example"), ("authorization", &value)]), None)
        };
        assert_eq!(with(Role::Api, "secret"), Ok(Admission::ByToken));
        assert_eq!(with(Role::Worker, "other"), Ok(Admission::ByToken));
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
        assert_eq!(post(&[]), Ok(Admission::WithoutToken));
        assert_eq!(
            post(&[("origin", "http://localhost:8080"), ("sec-fetch-site", "same-origin")]),
            Ok(Admission::WithoutToken)
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
        assert_eq!(knock(&access(), "127.0.0.1:9", ""), Ok(Admission::WithoutToken));
        let named = access().hosts(["server".to_owned()]);
        assert_eq!(knock(&named, "server:8080", ""), Ok(Admission::WithoutToken));
        let guarded = access().worker_token("machines");
        assert_eq!(knock(&guarded, "any.example", "Bearer machines"), Ok(Admission::ByToken));
    }

    #[test]
    fn a_token_in_the_address_is_refused_even_where_none_is_needed() {
        let request = parts("GET", "/healthz?x=1&Token=abc", &[("host", "localhost")]);
        assert_eq!(access().check(Role::Open, &request, None), Err(Denial::TokenInUrl));
    }
}
