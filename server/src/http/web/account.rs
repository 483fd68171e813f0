//! `/account`: who is signed in, and what the token allows.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::format::{self, Moment};
use super::page::{Frame, render};
use crate::auth::actor::Actor;
use crate::clock;
use crate::http::middleware::problem::Problem;
use crate::http::present::caller::caller;
use crate::http::present::shapes::Caller;
use crate::http::state::AppState;

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage {
    frame: Frame,
    caller: Caller,
    /// The role in words.
    may: &'static str,
    expires: Option<Moment>,
}

/// `GET /account`
pub(crate) async fn show(State(state): State<Arc<AppState>>) -> Result<Response, Problem> {
    let actor = Actor::current();
    let caller = caller(&actor, clock::now().utc);
    render(&AccountPage {
        frame: Frame::new(&state, "", "Account"),
        may: actor.role.in_words(),
        expires: caller.expires_at.map(format::moment),
        caller,
    })
}
