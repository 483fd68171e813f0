//! The actor of a request: the holder of its token, with what the token allows.

use std::sync::Arc;

use protocol::{Timestamp, WorkerId};
use scheduler::input::JoinPermit;
use tokio_util::sync::CancellationToken;

use super::Denial;
use super::role::{Permission, Role};
use super::sessions::Session;
use crate::wildcard;

/// The definitions whose jobs a token may submit, change, cancel, retry and acknowledge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope(Vec<String>);

impl Scope {
    /// A scope of these names, in which `*` stands for any letters. No name: every definition.
    #[must_use]
    pub const fn new(patterns: Vec<String>) -> Self {
        Self(patterns)
    }

    /// The names and patterns; none means every definition.
    #[must_use]
    pub fn patterns(&self) -> &[String] {
        &self.0
    }

    /// Returns true if a definition is within the scope.
    #[must_use]
    pub fn includes(&self, definition: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|pattern| wildcard::matches(pattern, definition))
    }
}

/// The sender of a request.
#[derive(Clone, Debug)]
pub struct Actor {
    /// The name of the token; absent for requests without one.
    pub token: Option<Arc<str>>,
    /// The role of the token. Without token: the role of an administrator.
    pub role: Role,
    /// The definitions on whose jobs the actor may act.
    pub scope: Scope,
    /// From when the token is no longer valid; absent: it does not expire.
    pub expires_at: Option<Timestamp>,
    /// The right of a worker to join that connects as this actor.
    pub join: JoinPermit,
    /// Cancelled when the token is revoked or expires: open streams and sockets end.
    pub revoked: CancellationToken,
    /// The session of the dashboard whose cookie the request has.
    pub session: Option<Arc<Session>>,
}

impl Actor {
    /// The actor of requests to a server, or to a path, that needs no token.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            token: None,
            role: Role::Admin,
            scope: Scope::default(),
            expires_at: None,
            join: JoinPermit::default(),
            revoked: CancellationToken::new(),
            session: None,
        }
    }

    /// The actor of a connection that has shown the secret of this worker.
    pub(super) fn of_worker(worker: WorkerId) -> Self {
        Self { role: Role::Worker, join: JoinPermit::OnlyAs(worker), ..Self::anonymous() }
    }

    /// The actor of a request with a token that may do everything of its role.
    #[must_use]
    pub fn with_token(name: impl Into<Arc<str>>, role: Role) -> Self {
        Self { token: Some(name.into()), role, ..Self::anonymous() }
    }

    /// The same actor in a session of the dashboard.
    pub(super) fn in_session(&self, session: Arc<Session>) -> Self {
        Self { session: Some(session), ..self.clone() }
    }

    /// Waits until open streams of the actor must end: the token is revoked or has expired, or the session has ended.
    pub async fn ended(&self) {
        let session_ended = async {
            match &self.session {
                Some(session) => session.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.revoked.cancelled() => {}
            () = session_ended => {}
        }
    }

    /// True for a user whom a proxy has signed in, and whom this server therefore cannot sign out.
    #[must_use]
    pub fn is_of_proxy(&self) -> bool {
        self.token.as_ref().is_some_and(|name| name.starts_with(PROXY_PREFIX))
    }

    /// Returns the actor of the request that this task serves; the anonymous one outside of a request.
    #[must_use]
    pub fn current() -> Arc<Self> {
        CURRENT.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Self::anonymous()))
    }

    /// Runs the handler of a request as this actor.
    pub(crate) async fn serve<F: Future>(self: Arc<Self>, handler: F) -> F::Output {
        CURRENT.scope(self, handler).await
    }

    /// Refuses what the role does not allow.
    ///
    /// # Errors
    /// [`Denial::WrongRole`].
    pub fn check(&self, permission: Permission) -> Result<(), Denial> {
        match self.role.allows(permission) {
            true => Ok(()),
            false => Err(Denial::WrongRole { given: self.role, needed: permission.weakest_role() }),
        }
    }

    /// Refuses to act on jobs of a definition outside of the scope.
    ///
    /// # Errors
    /// [`Denial::OutOfScope`].
    pub fn check_scope(&self, definition: &str) -> Result<(), Denial> {
        match self.scope.includes(definition) {
            true => Ok(()),
            false => Err(Denial::OutOfScope { allowed: self.scope.patterns().to_vec() }),
        }
    }

    /// True if the actor may act on jobs of every definition.
    #[must_use]
    pub fn has_whole_scope(&self) -> bool {
        self.scope.patterns().is_empty()
    }

    /// Refuses to act on what concerns jobs of every definition: workers, the file, pauses of everything.
    ///
    /// # Errors
    /// [`Denial::NeedsWholeScope`].
    pub fn check_whole_scope(&self) -> Result<(), Denial> {
        match self.has_whole_scope() {
            true => Ok(()),
            false => Err(Denial::NeedsWholeScope { allowed: self.scope.patterns().to_vec() }),
        }
    }
}

tokio::task_local! {
    /// The actor of the request that a task serves. Handlers and pages ask it at one place each, so it is not a parameter of all of them.
    static CURRENT: Arc<Actor>;
}

/// Stands before the names of users whom a proxy has signed in. No token has a colon in its name.
pub(super) const PROXY_PREFIX: &str = "proxy:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_names_definitions_and_families_of_them() {
        let scope = Scope::new(vec!["report".to_owned(), "nightly-*".to_owned()]);
        assert!(scope.includes("report") && scope.includes("nightly-2"));
        assert!(!scope.includes("reports") && !scope.includes("other"));
        assert!(Scope::default().includes("anything"));
    }

    #[tokio::test]
    async fn an_actor_is_known_within_its_request_only() {
        assert_eq!(Actor::current().token, None);
        let actor = Arc::new(Actor::with_token("ci", Role::Viewer));
        let name = actor.serve(async { Actor::current().token.clone() }).await;
        assert_eq!(name.as_deref(), Some("ci"));
    }

    #[test]
    fn a_refusal_names_the_role_that_is_needed() {
        let viewer = Actor::with_token("ci", Role::Viewer);
        assert!(viewer.check(Permission::Read).is_ok());
        let denial = viewer.check(Permission::Submit).unwrap_err();
        assert_eq!(denial, Denial::WrongRole { given: Role::Viewer, needed: Role::Submitter });
    }
}
