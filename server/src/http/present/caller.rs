//! Fills the JSON of the sender of a request, with a warning before its token expires.

use std::time::Duration;

use protocol::Timestamp;

use crate::auth::actor::Actor;
use crate::http::present::shapes::{self, Reason, Time};
use crate::http::present::span::span;

/// The sender of a request, and what it may do.
pub(crate) fn caller(actor: &Actor, now: Timestamp) -> shapes::Caller {
    let login = match actor.token {
        Some(_) if actor.is_of_proxy() => "proxy",
        Some(_) => "token",
        None => "none",
    };
    let warning = remaining(actor, now).map(|left| Reason {
        code: "token_expires".into(),
        text: format!("the token expires in {}; an administrator can make another one", span(left)).into(),
    });
    shapes::Caller {
        token: actor.token.as_deref().map(str::to_owned),
        login: login.into(),
        role: actor.role.name().into(),
        definitions: actor.scope.patterns().to_vec(),
        expires_at: actor.expires_at.map(Time),
        warning,
    }
}

/// How long the token is still valid, if its holder should be warned.
pub(crate) fn remaining(actor: &Actor, now: Timestamp) -> Option<Duration> {
    actor.expires_at.map(|end| end.since(now)).filter(|left| *left < WARN_BEFORE)
}

/// Time for an administrator to make another token, also during holidays.
const WARN_BEFORE: Duration = Duration::from_secs(14 * 24 * 3_600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::role::Role;

    #[test]
    fn a_holder_is_warned_two_weeks_before_the_end() {
        let day = 86_400_000;
        let of = |expires_at| Actor { expires_at, ..Actor::with_token("ci", Role::Submitter) };
        let text = |end: i64| caller(&of(Some(Timestamp(end * day))), Timestamp(0)).warning.map(|it| it.text);
        assert_eq!(text(14), None);
        let warning = text(13).unwrap();
        assert!(warning.starts_with("the token expires in 13d 0h"), "{warning}");
        assert_eq!(caller(&of(None), Timestamp(0)).warning, None);
        assert_eq!(caller(&Actor::anonymous(), Timestamp(0)).login, "none");
    }
}
