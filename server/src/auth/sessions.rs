//! Sessions of the dashboard: a cookie stands for a token for some hours.
//!
//! Sessions are kept in memory only: after a restart of the server people sign in again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use data_encoding::HEXLOWER;
use protocol::ClusterId;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::Access;
use crate::store::TokenId;

/// The name of the cookie, or its beginning: browsers send a cookie to all ports of a host.
const COOKIE: &str = "longshore_session";

/// How long a session lasts: a working day.
pub(crate) const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// Sessions at once: more than people look at one server. The oldest ends for a new one.
const SESSIONS_MAX: usize = 10_000;

/// Sessions of one token at once: its oldest ends for a new one, so that the holder of a token signs nobody else out.
const SESSIONS_OF_TOKEN_MAX: usize = 100;

/// The token that a session stands for. It is checked at each request: a session ends with its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionToken {
    /// The one of the server's file.
    OfFile,
    /// One of the store.
    Stored(TokenId),
}

/// A session of the dashboard.
#[derive(Debug)]
pub struct Session {
    pub(super) token: SessionToken,
    end: Instant,
    /// Cancelled if it ends before its time.
    ended_early: CancellationToken,
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        self.end <= now || self.ended_early.is_cancelled()
    }

    /// Waits until the session has ended.
    pub(super) async fn ended(&self) {
        tokio::select! {
            () = self.ended_early.cancelled() => {}
            () = tokio::time::sleep_until(self.end.into()) => {}
        }
    }
}

/// The hashes of the cookies' values, with their sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    cookie: String,
    open: Mutex<OpenSessions>,
}

type OpenSessions = HashMap<[u8; 32], Arc<Session>>;

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
        if open.values().filter(|session| session.token == token).count() >= SESSIONS_OF_TOKEN_MAX {
            end_oldest(&mut open, |session| session.token == token);
        }
        if open.len() >= SESSIONS_MAX {
            open.retain(|_, session| !session.is_over(now));
        }
        if open.len() >= SESSIONS_MAX {
            end_oldest(&mut open, |_| true);
        }
        let session = Session { token, end: now + LIFETIME, ended_early: CancellationToken::new() };
        open.insert(hash(&value), Arc::new(session));
        value
    }

    /// Finds the session that the cookie of a request stands for.
    pub(super) fn find(&self, headers: &HeaderMap, now: Instant) -> Option<Arc<Session>> {
        let session = self.entries().get(&hash(self.cookie(headers)?)).map(Arc::clone)?;
        (!session.is_over(now)).then_some(session)
    }

    /// Ends the session of a request, with everything that it has open.
    pub(super) fn end(&self, headers: &HeaderMap) {
        if let Some(value) = self.cookie(headers)
            && let Some(session) = self.entries().remove(&hash(value))
        {
            session.ended_early.cancel();
        }
    }

    /// The value of the session's cookie, if a request has one.
    pub(super) fn cookie<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == self.cookie).map(|(_, value)| value)
    }

    fn entries(&self) -> MutexGuard<'_, OpenSessions> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the oldest of some sessions, with everything that it has open.
fn end_oldest(open: &mut OpenSessions, among: impl Fn(&Session) -> bool) {
    let oldest = open.iter().filter(|(_, session)| among(session)).min_by_key(|(_, session)| session.end);
    if let Some(hash) = oldest.map(|(hash, _)| *hash)
        && let Some(session) = open.remove(&hash)
    {
        session.ended_early.cancel();
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

    fn token_of(sessions: &Sessions, headers: &HeaderMap, now: Instant) -> Option<SessionToken> {
        sessions.find(headers, now).map(|session| session.token)
    }

    fn with(value: &str) -> HeaderMap {
        let text = format!("theme=dark; {COOKIE}={value}");
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::try_from(text).unwrap())])
    }

    #[test]
    fn a_session_lasts_until_its_end_or_the_sign_out() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let cookie = sessions.begin(FILE, now);
        assert_eq!(token_of(&sessions, &with(&cookie), now), Some(FILE));
        assert_eq!(token_of(&sessions, &with("other"), now), None);
        assert_eq!(token_of(&sessions, &HeaderMap::new(), now), None);
        assert_eq!(token_of(&sessions, &with(&cookie), now + LIFETIME), None);
        sessions.end(&with(&cookie));
        assert_eq!(token_of(&sessions, &with(&cookie), now), None);
    }

    #[test]
    fn the_oldest_session_ends_when_there_are_too_many() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let first = sessions.begin(FILE, now);
        for second in 1..=u64::try_from(SESSIONS_MAX).unwrap() {
            sessions.begin(SessionToken::Stored(TokenId(second / 50)), now + Duration::from_millis(second));
        }
        assert_eq!(token_of(&sessions, &with(&first), now), None);
        assert_eq!(sessions.entries().len(), SESSIONS_MAX);
    }

    #[test]
    fn the_holder_of_a_token_ends_only_own_sessions_by_signing_in() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let others = sessions.begin(FILE, now);
        let own = SessionToken::Stored(TokenId(7));
        let first = sessions.begin(own, now + Duration::from_millis(1));
        let open = sessions.find(&with(&first), now).unwrap();
        for second in 2..=u64::try_from(SESSIONS_OF_TOKEN_MAX).unwrap() {
            sessions.begin(own, now + Duration::from_millis(second));
        }
        assert!(!open.is_over(now));
        sessions.begin(own, now + Duration::from_secs(1));
        assert!(open.is_over(now), "what it has open ends");
        assert_eq!(token_of(&sessions, &with(&first), now), None);
        assert_eq!(token_of(&sessions, &with(&others), now), Some(FILE));
        assert_eq!(sessions.entries().len(), SESSIONS_OF_TOKEN_MAX + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_session_has_open_ends_at_the_sign_out_or_at_its_end() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let (left, kept) = (sessions.begin(FILE, now), sessions.begin(FILE, now));
        let [left_open, kept_open] = [&left, &kept].map(|it| sessions.find(&with(it), now).unwrap());
        sessions.end(&with(&left));
        left_open.ended().await;
        let began = tokio::time::Instant::now();
        kept_open.ended().await;
        // The clock runs ahead by itself while nothing else can happen.
        assert!(began.elapsed() > LIFETIME / 2);
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
            assert_eq!(token_of(&access.sessions, &headers, Instant::now()), Some(FILE));
        }
    }
}
