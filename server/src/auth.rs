//! Access control: tokens with roles, and checks of `Host` and `Origin` against requests from web pages of other sites, which can do harm
//! on loopback without a token.
//!
//! Tokens come from files (one for the API, one for workers) and from the store. They are compared as SHA-256 in constant time. A request
//! with a valid token skips the check of `Host`: a page that reaches the server by DNS rebinding has no token.

pub mod actor;
pub mod audit;
mod denial;
pub(crate) mod failures;
pub mod first_token;
mod lock_out;
mod proof;
pub mod proxy;
pub mod records;
pub mod role;
pub(crate) mod sessions;
mod site;
pub mod tokens;
pub mod workers;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::http::{HeaderMap, HeaderValue, Request, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use actor::Actor;
use audit::AuditLog;
pub use denial::Denial;
use failures::{Failure, FailureLimiter, Fingerprint};
use lock_out::LockOutReport;
use proof::{WorkerProof, bearer, is_ours};
use proxy::ProxyLogin;
use role::{Permission, Role};
use sessions::{SessionToken, Sessions};
use site::Hosts;
use tokens::Tokens;
use workers::{SecretVerdict, WorkerRegistry};

use crate::metrics::Metrics;

/// The ground on which a request was admitted.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The sender of the request.
    pub actor: Arc<Actor>,
    /// The proof that the request has shown.
    pub proof: Proof,
}

/// The proof of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// None: this request needs none.
    None,
    /// A valid token or session.
    Token,
    /// The proxy that signs users in has sent it.
    Proxy,
}

impl Admission {
    const fn by_token(actor: Arc<Actor>) -> Self {
        Self { actor, proof: Proof::Token }
    }

    /// True if the sender is known.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.proof != Proof::None
    }

    /// Refuses what the role of the token does not allow.
    ///
    /// # Errors
    /// [`Denial::WrongRole`].
    pub fn check(&self, permission: Permission) -> Result<(), Denial> {
        if self.is_authenticated() { self.actor.check(permission) } else { Ok(()) }
    }
}

/// The tokens, host names and failure limits of one server.
#[derive(Debug)]
pub struct Access {
    api: Option<FileToken>,
    worker: Option<FileToken>,
    tokens: Arc<Tokens>,
    workers: Arc<WorkerRegistry>,
    /// True if requests need a token even if none was given in a file.
    requires_tokens: bool,
    /// The proxy that signs users in.
    proxy: Option<ProxyLogin>,
    hosts: Hosts,
    failures: FailureLimiter,
    /// The records of lock-outs.
    lock_outs: Option<LockOutReport>,
    sessions: Sessions,
    /// The actor of requests that need no token.
    anonymous: Arc<Actor>,
}

/// A token that the server was given in a file.
#[derive(Debug)]
struct FileToken {
    hash: Hash,
    actor: Arc<Actor>,
}

impl FileToken {
    fn new(name: &str, role: Role, token: &str) -> Self {
        Self { hash: hash(token.as_bytes()), actor: Arc::new(Actor::with_token(name, role)) }
    }
}

impl Access {
    /// No tokens: every client that reaches `listen` may do everything; `Host` and `Origin` are checked.
    #[must_use]
    pub fn open(listen: SocketAddr) -> Self {
        Self {
            api: None,
            worker: None,
            tokens: Arc::default(),
            workers: Arc::default(),
            requires_tokens: false,
            proxy: None,
            hosts: Hosts::new(listen),
            failures: FailureLimiter::default(),
            lock_outs: None,
            sessions: Sessions::default(),
            anonymous: Arc::new(Actor::anonymous()),
        }
    }

    /// Requires a token for all requests but those of workers; this one has the role of an administrator.
    #[must_use]
    pub fn api_token(mut self, token: &str) -> Self {
        self.api = Some(FileToken::new("api-token-file", Role::Admin, token));
        self
    }

    /// Requires a token from workers; this one has their role.
    #[must_use]
    pub fn worker_token(mut self, token: &str) -> Self {
        self.worker = Some(FileToken::new("worker-token-file", Role::Worker, token));
        self
    }

    /// Accepts these tokens as well, where a token is required.
    #[must_use]
    pub fn tokens(mut self, tokens: Arc<Tokens>) -> Self {
        self.tokens = tokens;
        self
    }

    /// Accepts the secrets of these workers as well, where workers need a token.
    #[must_use]
    pub fn workers(mut self, workers: Arc<WorkerRegistry>) -> Self {
        self.workers = workers;
        self
    }

    /// Requires a token for all requests, also if none was given in a file.
    #[must_use]
    pub const fn require_tokens(mut self) -> Self {
        self.requires_tokens = true;
        self
    }

    /// Accepts the users that this proxy has signed in. All requests need a token or such a user from now on.
    #[must_use]
    pub fn proxy(mut self, proxy: ProxyLogin) -> Self {
        self.requires_tokens = true;
        self.proxy = Some(proxy);
        self
    }

    /// Records lock-outs of addresses in the audit log and in the metrics.
    #[must_use]
    pub fn report_lock_outs(mut self, audit: Arc<AuditLog>, metrics: Arc<Metrics>) -> Self {
        self.lock_outs = Some(LockOutReport { audit, metrics });
        self
    }

    /// Accepts these host names as well; a port in them is ignored.
    #[must_use]
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = String>) -> Self {
        self.hosts.add(hosts);
        self
    }

    /// True if the API wants a token.
    #[must_use]
    pub const fn needs_token(&self) -> bool {
        self.requires_tokens || self.api.is_some()
    }

    /// Begins a session of the dashboard for a token, and returns the value of its cookie, and the holder of the token.
    ///
    /// # Errors
    /// Those of a wrong token; an address with too many of them is locked out.
    pub fn sign_in(&self, token: &str, peer: Option<IpAddr>) -> Result<(String, Arc<Actor>), Denial> {
        let now = Instant::now();
        let valid = self.check_given(Some(token.as_bytes()), peer, now)?;
        valid.actor.check(Permission::Read)?;
        Ok((self.sessions.begin(valid.token, now), valid.actor))
    }

    /// Ends the session of a request, if it has one.
    pub fn sign_out(&self, headers: &HeaderMap) {
        self.sessions.end(headers);
    }

    /// Finds out who sends a request, if it needs a token, and refuses it where that fails. What the role allows is checked by
    /// [`Admission::check`].
    ///
    /// # Errors
    /// See [`Denial`].
    pub fn check<B>(
        &self,
        permission: Permission,
        request: &Request<B>,
        peer: Option<IpAddr>,
    ) -> Result<Admission, Denial> {
        if request.uri().query().is_some_and(has_token) {
            return Err(Denial::TokenInUrl);
        }
        let admission = self.check_token(permission, request.headers(), peer)?;
        // Workers are not browsers, and a browser always sends `Origin` when it opens a WebSocket.
        if permission == Permission::Connect && request.headers().contains_key(header::ORIGIN) {
            return Err(Denial::CrossSite { field: "Origin" });
        }
        // Health checks may use any host name: they read no data and change nothing. A user of a proxy is no secret that a page lacks.
        if admission.proof != Proof::Token && permission != Permission::Open {
            self.hosts.check(request)?;
        }
        site::check(request)?;
        Ok(admission)
    }

    fn check_token(
        &self,
        permission: Permission,
        headers: &HeaderMap,
        peer: Option<IpAddr>,
    ) -> Result<Admission, Denial> {
        let is_required = match permission {
            Permission::Open => false,
            Permission::Connect => self.requires_tokens || self.worker.is_some(),
            _ => self.needs_token(),
        };
        if !is_required {
            return Ok(Admission { actor: Arc::clone(&self.anonymous), proof: Proof::None });
        }
        let now = Instant::now();
        let mut given = headers.get_all(header::AUTHORIZATION).iter().map(HeaderValue::as_bytes);
        let given = given.find(|it| is_ours(it));
        if permission == Permission::Connect
            && let Some(proof) = given.and_then(WorkerProof::parse)
        {
            return self.check_worker(&proof, peer, now).map(Admission::by_token);
        }
        // A token goes before the user of the proxy, and the user before a session of the dashboard.
        if permission != Permission::Connect
            && given.and_then(bearer).is_none()
            && let Some(proxy) = &self.proxy
            && let Some(actor) = proxy.user(headers, peer)?
        {
            return Ok(Admission { actor, proof: Proof::Proxy });
        }
        let is_by_cookie = given.is_none() && self.sessions.cookie(headers).is_some();
        let actor = match permission != Permission::Connect && is_by_cookie {
            // A session was begun with a token. Its cookie cannot be guessed, so a wrong one is an old one, and no failure.
            true => self.holder_of_session(headers, now)?,
            false => self.check_given(given.map(|value| bearer(value).unwrap_or_default()), peer, now)?.actor,
        };
        Ok(Admission::by_token(actor))
    }

    fn holder_of_session(&self, headers: &HeaderMap, now: Instant) -> Result<Arc<Actor>, Denial> {
        let session = self.sessions.find(headers, now).ok_or(Denial::NoToken)?;
        let holder = match session.token {
            SessionToken::Stored(id) => self.tokens.holder(id, crate::clock::now().utc)?,
            SessionToken::OfFile => Arc::clone(&self.api.as_ref().ok_or(Denial::NoToken)?.actor),
        };
        Ok(Arc::new(holder.in_session(session)))
    }

    /// Checks the proof of a worker that has joined: its own secret, and the token for the case that the server does not know it, or has
    /// revoked it. With the token it can only join anew.
    fn check_worker(
        &self,
        proof: &WorkerProof,
        peer: Option<IpAddr>,
        now: Instant,
    ) -> Result<Arc<Actor>, Denial> {
        self.check_lock_out(peer, now)?;
        let verdict = self.workers.check(proof.worker, &hash(&proof.secret));
        if verdict == SecretVerdict::Valid {
            return Ok(Arc::new(Actor::of_worker(proof.worker)));
        }
        let by_token = proof.token.as_deref().and_then(|token| self.find(token));
        match (verdict, by_token) {
            (_, Some(Ok(valid))) => Ok(valid.actor),
            (SecretVerdict::Revoked, _) => Err(Denial::WorkerRevoked),
            (_, Some(Err(denial))) => Err(denial),
            (_, None) => {
                let token = proof.token.as_deref().unwrap_or_default();
                let shown = [&proof.worker.0.to_le_bytes()[..], &proof.secret, token];
                self.record_failure(&shown, peer, now);
                Err(Denial::InvalidToken)
            }
        }
    }

    /// Counts a wrong token against its address, which may lock it out.
    fn record_failure(&self, shown: &[&[u8]], peer: Option<IpAddr>, now: Instant) {
        let Some(peer) = peer else { return };
        let Failure::LocksOut { wait, is_news } = self.failures.record(peer, Fingerprint::of(shown), now)
        else {
            return;
        };
        if is_news {
            lock_out::log(peer, wait);
        }
        if let Some(report) = &self.lock_outs {
            report.record(peer);
        }
    }

    /// The lock-out comes before the comparison: a guesser learns nothing about the tokens of a locked-out address.
    fn check_lock_out(&self, peer: Option<IpAddr>, now: Instant) -> Result<(), Denial> {
        match peer.and_then(|peer| self.failures.lock_out(peer, now)) {
            Some(wait) => Err(Denial::TooManyFailures { retry_after_s: wait.as_secs() + 1 }),
            None => Ok(()),
        }
    }

    /// Checks the token that was given; `None`: none was. That is no guess.
    fn check_given(
        &self,
        given: Option<&[u8]>,
        peer: Option<IpAddr>,
        now: Instant,
    ) -> Result<ValidToken, Denial> {
        self.check_lock_out(peer, now)?;
        let Some(token) = given else { return Err(Denial::NoToken) };
        self.find(token).unwrap_or_else(|| {
            self.record_failure(&[token], peer, now);
            Err(Denial::InvalidToken)
        })
    }

    /// Finds the token among those of the files and of the store; `None` if no such token was ever made.
    fn find(&self, token: &[u8]) -> Option<Result<ValidToken, Denial>> {
        let given = hash(token);
        let of_files = [&self.api, &self.worker].into_iter().flatten();
        for known in of_files {
            if bool::from(given.ct_eq(&known.hash)) {
                let actor = Arc::clone(&known.actor);
                return Some(Ok(ValidToken { actor, token: SessionToken::OfFile }));
            }
        }
        let id = tokens::id_of(token)?;
        let found = self.tokens.find(id, &given, crate::clock::now().utc)?;
        Some(found.map(|actor| ValidToken { actor, token: SessionToken::Stored(id) }))
    }
}

/// A token that is valid now.
struct ValidToken {
    /// Its holder.
    actor: Arc<Actor>,
    /// The token, for the session that is begun with it.
    token: SessionToken,
}

fn has_token(query: &str) -> bool {
    query.split('&').any(|pair| {
        let name = pair.split('=').next().unwrap_or_default();
        TOKEN_NAMES.iter().any(|token| name.eq_ignore_ascii_case(token))
    })
}

/// The SHA-256 of a token's text.
fn hash(token: &[u8]) -> Hash {
    Sha256::digest(token).into()
}

type Hash = [u8; 32];

/// Names under which people put tokens into URLs.
const TOKEN_NAMES: [&str; 5] = ["token", "access_token", "api_token", "auth", "authorization"];

#[cfg(test)]
mod tests;
