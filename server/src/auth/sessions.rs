//! Sessions of the dashboard: a cookie stands for a token for some hours.
//!
//! Sessions are kept in memory only: after a restart of the server people sign in again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use data_encoding::HEXLOWER;
use protocol::ClusterId;
use sha2::{Digest, Sha256};

use super::Access;
use crate::store::TokenId;

/// The name of the cookie, or its beginning: browsers send a cookie to all ports of a host.
const COOKIE: &str = "longshore_session";

/// How long a session lasts: a working day.
pub(crate) const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// Sessions at once: more than people look at one server. The oldest ends for a new one.
const SESSIONS_MAX: usize = 10_000;

/// The token that a session stands for. It is checked at each request: a session ends with its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionToken {
    /// The one of the server's file.
    OfFile,
    /// One of the store.
    Stored(TokenId),
}

/// The hashes of the cookies' values, with the token and the end of each session.
#[derive(Debug)]
pub(super) struct Sessions {
    cookie: String,
    open: Mutex<HashMap<[u8; 32], (SessionToken, Instant)>>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { cookie: COOKIE.to_owned(), open: Mutex::default() }
    }
}

impl Access {
    /// Names the cookie of sessions after this cluster, so that servers on one host do not sign people out of each other.
    #[must_use]
    pub fn cluster(mut self, cluster: ClusterId) -> Self {
        self.sessions.cookie = format!("{COOKIE}_{cluster}");
        self
    }

    /// The name of the cookie of sessions.
    #[must_use]
    pub fn session_cookie(&self) -> &str {
        &self.sessions.cookie
    }
}

impl Sessions {
    /// Begins a session and returns the value of its cookie.
    pub(super) fn begin(&self, token: SessionToken, now: Instant) -> String {
        let secret: [u8; 32] = rand::random();
        let value = HEXLOWER.encode(&secret);
        let mut open = self.entries();
        if open.len() >= SESSIONS_MAX {
            open.retain(|_, (_, end)| *end > now);
        }
        if open.len() >= SESSIONS_MAX
            && let Some(oldest) = open.iter().min_by_key(|(_, (_, end))| *end).map(|(hash, _)| *hash)
        {
            open.remove(&oldest);
        }
        open.insert(hash(&value), (token, now + LIFETIME));
        value
    }

    /// Finds the token that the cookie of a request stands for.
    pub(super) fn find(&self, headers: &HeaderMap, now: Instant) -> Option<SessionToken> {
        let (token, end) = *self.entries().get(&hash(self.cookie(headers)?))?;
        (end > now).then_some(token)
    }

    /// Ends the session of a request.
    pub(super) fn end(&self, headers: &HeaderMap) {
        if let Some(value) = self.cookie(headers) {
            self.entries().remove(&hash(value));
        }
    }

    /// The value of the session's cookie, if a request has one.
    pub(super) fn cookie<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == self.cookie).map(|(_, value)| value)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<[u8; 32], (SessionToken, Instant)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Only hashes are kept and looked up, so the time of a look-up tells nothing about a cookie.
fn hash(value: &str) -> [u8; 32] {
    Sha256::digest(value.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const FILE: SessionToken = SessionToken::OfFile;

    fn with(value: &str) -> HeaderMap {
        let text = format!("theme=dark; {COOKIE}={value}");
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::try_from(text).unwrap())])
    }

    #[test]
    fn a_session_lasts_until_its_end_or_the_sign_out() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let cookie = sessions.begin(FILE, now);
        assert_eq!(sessions.find(&with(&cookie), now), Some(FILE));
        assert_eq!(sessions.find(&with("other"), now), None);
        assert_eq!(sessions.find(&HeaderMap::new(), now), None);
        assert_eq!(sessions.find(&with(&cookie), now + LIFETIME), None);
        sessions.end(&with(&cookie));
        assert_eq!(sessions.find(&with(&cookie), now), None);
    }

    #[test]
    fn the_oldest_session_ends_when_there_are_too_many() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let first = sessions.begin(FILE, now);
        for second in 1..=u64::try_from(SESSIONS_MAX).unwrap() {
            sessions.begin(FILE, now + Duration::from_millis(second));
        }
        assert_eq!(sessions.find(&with(&first), now), None);
        assert_eq!(sessions.entries().len(), SESSIONS_MAX);
    }

    #[test]
    fn servers_of_other_clusters_on_the_same_host_have_other_cookies() {
        let access = |cluster| {
            Access::open("127.0.0.1:80".parse().unwrap()).api_token("secret").cluster(ClusterId(cluster))
        };
        let (one, other) = (access(1), access(2));
        assert_ne!(one.session_cookie(), other.session_cookie());
        let sign_in = |access: &Access| {
            format!("{}={}", access.session_cookie(), access.sign_in("secret", None).unwrap().0)
        };
        let both = format!("{}; {}", sign_in(&one), sign_in(&other));
        let headers = HeaderMap::from_iter([(header::COOKIE, HeaderValue::try_from(both).unwrap())]);
        for access in [one, other] {
            assert_eq!(access.sessions.find(&headers, Instant::now()), Some(FILE));
        }
    }
}
