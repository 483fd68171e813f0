//! Liveness, readiness, version, and the pages that explain problem codes.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use jiff::fmt::rfc2822::DateTimePrinter;
use scheduler::snapshot::Snapshot;

use crate::clock;
use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{self, Time};
use crate::http::request::path::Name;
use crate::http::state::AppState;

pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

pub(crate) async fn ready(State(state): State<Arc<AppState>>) -> Result<Response, Problem> {
    state.check_not_draining()?;
    state.check_not_stalled()?;
    let mut text = "ready\n".to_owned();
    for warning in warnings(&state) {
        text.push_str(&format!("warning: {warning}\n"));
    }
    Ok((date(), text).into_response())
}

/// The header `Date`. The one that hyper adds is never set back, so after a correction of the clock it may be days ahead.
fn date() -> AppendHeaders<Option<(HeaderName, String)>> {
    let now = jiff::Timestamp::from_millisecond(clock::now().utc.0).ok();
    let text = now.and_then(|now| DateTimePrinter::new().timestamp_to_rfc9110_string(&now).ok());
    AppendHeaders(text.map(|text| (header::DATE, text)))
}

/// Warnings for an operator: about the server itself, and counts of missed expectations and of definitions without their secrets.
fn warnings(state: &AppState) -> Vec<String> {
    let missed = missed(&state.services.engine.snapshot());
    server_warnings(state).into_iter().chain(missing_secrets(state)).chain(missed).collect()
}

/// Warnings about the server itself.
pub(crate) fn server_warnings(state: &AppState) -> Vec<String> {
    let storage = state.services.storage.is_low();
    let storage = storage.then(|| "storage: the disk is nearly full, submissions are refused".to_owned());
    let refused = state.services.reloader.refusal().map(|refusal| {
        let at = Time(refusal.at);
        let restart = if refusal.blocks_start { "; a restart would fail" } else { "" };
        let name = state.services.reloader.name();
        format!("{name}: it was refused at {at}, the definitions before it are in force{restart}: see longshore validate")
    });
    let others = state.services.engine.health().warnings();
    let now = clock::now().utc;
    let tls = state.services.tls.as_ref().map(|tls| tls.warnings(now)).unwrap_or_default();
    let silent = state.services.engine.snapshot().slots_decided_until(now).map(|until| {
        let until = Time(until);
        format!("schedules: the clock was set back, and slots up to {until} are decided: some schedules fire nothing until then; see longshore schedules")
    });
    storage
        .into_iter()
        .chain(tls)
        .chain(silent)
        .chain(refused)
        .chain(others.into_iter().map(|warning| warning.to_string()))
        .collect()
}

/// Counts definitions whose secrets are missing. Names are for callers with a token.
fn missing_secrets(state: &AppState) -> Option<String> {
    let found = state.services.missing_secrets.found();
    let names: BTreeSet<&str> = found.values().map(|missing| missing.definition.as_str()).collect();
    let (noun, verb) = if names.len() == 1 { ("definition", "waits") } else { ("definitions", "wait") };
    (!names.is_empty()).then(|| {
        let count = names.len();
        format!("secrets: {count} {noun} {verb} for secrets that the server does not have; see longshore definitions")
    })
}

/// Counts what is not as expected. Names are for callers with a token.
fn missed(snapshot: &Snapshot) -> Option<String> {
    let stale = snapshot.missed.iter().filter(|row| row.stale_since.is_some()).count();
    let slow = snapshot.missed.iter().filter(|row| row.slow.is_some()).count();
    (stale + slow > 0).then(|| {
        let noun = if stale == 1 { "definition is" } else { "definitions are" };
        let verb = if slow == 1 { "is" } else { "are" };
        format!("expectations: {stale} {noun} stale, {slow} {verb} slow; see longshore definitions")
    })
}

pub(crate) async fn version() -> impl IntoResponse {
    let version = Json(shapes::Version {
        name: "longshore".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        protocol_lowest: protocol::VERSIONS.lowest,
        protocol_highest: protocol::VERSIONS.highest,
        wire_format: protocol::WIRE_FORMAT,
        time: Some(Time(clock::now().utc)),
    });
    (date(), version)
}

pub(crate) async fn problem(Name(name): Name) -> Result<Response, Problem> {
    let Some(code) = ProblemCode::find(&name) else {
        return Err(Problem::new(
            ProblemCode::NotFound,
            format!("there is no problem \"{}\"", excerpt(&name)),
        ));
    };
    Ok(([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], code.page()).into_response())
}

pub(crate) async fn nothing_here() -> Problem {
    Problem::new(ProblemCode::NotFound, "there is nothing at this address")
        .hint("GET /openapi.json lists the addresses of the API, and GET / is the dashboard; both are below the server's base path")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_date_is_read_from_the_clock_for_each_answer() {
        let answer = version().await.into_response();
        let date = answer.headers()[header::DATE].to_str().unwrap();
        let date = jiff::fmt::rfc2822::parse(date).unwrap().timestamp().as_second();
        assert!((clock::now().utc.0 / 1_000 - date).abs() <= 60, "{date}");
    }
}
