//! The server itself: whether it lives, whether it is ready, what it is, and the pages that explain its problems.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::code::Code;
use super::desk::Desk;
use super::path::Name;
use super::problem::{Problem, shown};
use super::view;

pub(super) async fn alive() -> &'static str {
    "ok\n"
}

pub(super) async fn ready(State(desk): State<Arc<Desk>>) -> Result<&'static str, Problem> {
    desk.must_stay()?;
    desk.must_keep_up()?;
    Ok("ready\n")
}

pub(super) async fn version() -> Json<view::Version> {
    Json(view::Version {
        name: "longshore".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        protocol_lowest: protocol::VERSIONS.lowest,
        protocol_highest: protocol::VERSIONS.highest,
    })
}

pub(super) async fn problem(Name(name): Name) -> Result<Response, Problem> {
    let Some(code) = Code::find(&name) else {
        return Err(Problem::new(Code::NotFound, format!("there is no problem \"{}\"", shown(&name))));
    };
    Ok(([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], code.page()).into_response())
}

pub(super) async fn nothing_here() -> Problem {
    Problem::new(Code::NotFound, "there is nothing at this address")
}
