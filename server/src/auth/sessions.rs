//! Sessions of the dashboard: a cookie stands for the API token for some hours.
//!
//! Sessions are kept in memory only: after a restart of the server people sign in again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// The name of the cookie.
pub(crate) const COOKIE: &str = "longshore_session";

/// How long a session lasts: a working day.
pub(crate) const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// Sessions at once: more than people look at one server. The oldest ends for a new one.
const SESSIONS_MAX: usize = 10_000;

/// The hashes of the cookies' values, with the time of each session's end.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    ends: Mutex<HashMap<[u8; 32], Instant>>,
}

impl Sessions {
    /// Begins a session and returns the value of its cookie.
    pub(super) fn begin(&self, now: Instant) -> String {
        let secret: [u8; 32] = rand::random();
        let value = HEXLOWER.encode(&secret);
        let mut ends = self.entries();
        if ends.len() >= SESSIONS_MAX {
            ends.retain(|_, end| *end > now);
        }
        if ends.len() >= SESSIONS_MAX
            && let Some(oldest) = ends.iter().min_by_key(|(_, end)| **end).map(|(hash, _)| *hash)
        {
            ends.remove(&oldest);
        }
        ends.insert(hash(&value), now + LIFETIME);
        value
    }

    /// True if the cookie of a request stands for a session.
    pub(super) fn has(&self, headers: &HeaderMap, now: Instant) -> bool {
        let Some(value) = cookie(headers) else { return false };
        self.entries().get(&hash(value)).is_some_and(|end| *end > now)
    }

    /// Ends the session of a request.
    pub(super) fn end(&self, headers: &HeaderMap) {
        if let Some(value) = cookie(headers) {
            self.entries().remove(&hash(value));
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<[u8; 32], Instant>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Only hashes are kept and looked up, so the time of a look-up tells nothing about a cookie.
fn hash(value: &str) -> [u8; 32] {
    Sha256::digest(value.as_bytes()).into()
}

/// The value of the session's cookie, if a request has one.
pub(super) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn with(value: &str) -> HeaderMap {
        let text = format!("theme=dark; {COOKIE}={value}");
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::try_from(text).unwrap())])
    }

    #[test]
    fn a_session_lasts_until_its_end_or_the_sign_out() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let cookie = sessions.begin(now);
        assert!(sessions.has(&with(&cookie), now));
        assert!(!sessions.has(&with("other"), now));
        assert!(!sessions.has(&HeaderMap::new(), now));
        assert!(!sessions.has(&with(&cookie), now + LIFETIME));
        sessions.end(&with(&cookie));
        assert!(!sessions.has(&with(&cookie), now));
    }

    #[test]
    fn the_oldest_session_ends_when_there_are_too_many() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let first = sessions.begin(now);
        for second in 1..=u64::try_from(SESSIONS_MAX).unwrap() {
            sessions.begin(now + Duration::from_millis(second));
        }
        assert!(!sessions.has(&with(&first), now));
        assert_eq!(sessions.entries().len(), SESSIONS_MAX);
    }
}
