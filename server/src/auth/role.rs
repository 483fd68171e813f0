//! Roles of tokens, and the permission that a request needs.

use std::fmt;

use axum::http::Method;

/// The role of a token's holder. Each role above [`Role::Worker`] may do what the one before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Connects as a worker, and nothing else.
    Worker,
    /// Reads everything except for tokens and the audit log.
    Viewer,
    /// Submits, changes, cancels and retries jobs, and acknowledges failures.
    Submitter,
    /// Releases jobs, operates workers, pauses jobs and schedules, reloads the definitions, and replaces them where deploys are allowed.
    Operator,
    /// Manages tokens and reads the audit log.
    Admin,
}

impl Role {
    /// Every role, the weakest first.
    pub const ALL: [Self; 5] = [Self::Worker, Self::Viewer, Self::Submitter, Self::Operator, Self::Admin];

    /// The name in the API, the CLI and the store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Viewer => "viewer",
            Self::Submitter => "submitter",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// The requests that the role allows, for people: after "may".
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Worker => "connect as a worker",
            Self::Viewer => "read everything except for tokens and the audit log",
            Self::Submitter => "read, submit, change, cancel and retry jobs, and acknowledge failures",
            Self::Operator => {
                "do what a submitter may, and release jobs, operate workers, pause jobs and schedules, and reload or deploy jobs.yaml"
            }
            Self::Admin => "do everything, and make tokens",
        }
    }

    /// Finds a role by its name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// Returns true if the role includes a permission.
    #[must_use]
    pub const fn allows(self, permission: Permission) -> bool {
        match permission {
            Permission::Open => true,
            Permission::Connect => matches!(self, Self::Worker),
            Permission::Read => !matches!(self, Self::Worker),
            Permission::Submit => matches!(self, Self::Submitter | Self::Operator | Self::Admin),
            Permission::Operate => matches!(self, Self::Operator | Self::Admin),
            Permission::Administer => matches!(self, Self::Admin),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The permission that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Needs no token.
    Open,
    /// Read anything except for tokens and the audit log.
    Read,
    /// Submit, change, cancel and retry jobs, and acknowledge failures.
    Submit,
    /// Release jobs, operate workers, pause jobs and schedules, reload and deploy definitions.
    Operate,
    /// Manage tokens, read the audit log.
    Administer,
    /// Connect as a worker.
    Connect,
}

impl Permission {
    /// The permission that a request needs by its method and path. Handlers that do several things check again.
    #[must_use]
    pub fn needed(method: &Method, path: &str) -> Self {
        match path {
            "/healthz" | "/readyz" | "/login" => return Self::Open,
            "/api/workers/connect" => return Self::Connect,
            "/logout" => return Self::Read,
            _ if path.starts_with("/static/") || path.starts_with("/problems/") => return Self::Open,
            _ if ADMINISTRATION.iter().any(|area| is_within(path, area)) => return Self::Administer,
            _ if method.is_safe() => return Self::Read,
            _ => {}
        }
        let makes_jobs = path.strip_prefix("/definitions/").is_some_and(|rest| rest.ends_with("/run"))
            || path.strip_prefix("/api/definitions/").is_some_and(|rest| rest.ends_with("/backfill"));
        let is_on_jobs = JOBS.iter().any(|area| is_within(path, area));
        if makes_jobs || is_on_jobs { Self::Submit } else { Self::Operate }
    }

    /// The weakest role that has the permission.
    pub(crate) fn weakest_role(self) -> Role {
        Role::ALL.into_iter().find(|role| role.allows(self)).unwrap_or(Role::Admin)
    }
}

/// Paths that only administrators use.
const ADMINISTRATION: [&str; 3] = ["/api/tokens", "/api/audit", "/audit"];

/// Paths that act on jobs.
const JOBS: [&str; 4] = ["/api/jobs", "/api/batches", "/jobs", "/batches"];

fn is_within(path: &str, area: &str) -> bool {
    path.strip_prefix(area).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_may_do_what_the_weaker_ones_may() {
        let permissions = [Permission::Read, Permission::Submit, Permission::Operate, Permission::Administer];
        let counts = Role::ALL.map(|role| permissions.iter().filter(|it| role.allows(**it)).count());
        assert_eq!(counts, [0, 1, 2, 3, 4]);
        assert!(Role::ALL.into_iter().all(|role| role.allows(Permission::Connect) == (role == Role::Worker)));
    }

    #[test]
    fn requests_need_the_permission_of_their_effect() {
        for (method, path, permission) in [
            (Method::GET, "/healthz", Permission::Open),
            (Method::GET, "/problems/forbidden", Permission::Open),
            (Method::GET, "/api/workers/connect", Permission::Connect),
            (Method::GET, "/api/jobs", Permission::Read),
            (Method::GET, "/metrics", Permission::Read),
            (Method::POST, "/logout", Permission::Read),
            (Method::POST, "/api/jobs/resize", Permission::Submit),
            (Method::PATCH, "/api/jobs/12", Permission::Submit),
            (Method::POST, "/api/batches/12/cancel", Permission::Submit),
            (Method::POST, "/batches/12/retry", Permission::Submit),
            (Method::POST, "/definitions/resize/run", Permission::Submit),
            (Method::POST, "/api/definitions/resize/backfill", Permission::Submit),
            (Method::POST, "/api/definitions/resize/pause", Permission::Operate),
            (Method::POST, "/api/definitions/reload", Permission::Operate),
            (Method::POST, "/api/definitions/plan", Permission::Operate),
            (Method::PUT, "/api/definitions", Permission::Operate),
            (Method::POST, "/api/workers/1/drain", Permission::Operate),
            (Method::POST, "/api/notifications/7/send", Permission::Operate),
            (Method::POST, "/notifications/send", Permission::Operate),
            (Method::POST, "/jobsx", Permission::Operate),
            (Method::GET, "/api/tokens", Permission::Administer),
            (Method::POST, "/api/tokens/ci/revoke", Permission::Administer),
            (Method::GET, "/audit", Permission::Administer),
            (Method::POST, "/not/known", Permission::Operate),
        ] {
            assert_eq!(Permission::needed(&method, path), permission, "{method} {path}");
        }
    }
}
