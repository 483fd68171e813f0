//! The server as its clients see it, and its workers as it sees them.

use std::time::Duration;

use reqwest::Response;
use serde_json::Value;
use server::doctor::Finding;

use crate::api::{Api, Door};

/// A person waits for the answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// A `Date` header has whole seconds, and an answer takes its time.
const SKEW_MAX_SECONDS: i64 = 3;

/// Asks the server; one that nobody has named need not be there.
pub(super) async fn examine(door: &Door, is_named: bool) -> Vec<Finding> {
    let api = match Api::new(door) {
        Ok(api) => api,
        Err(error) => {
            return vec![Finding::fail("server", format!("{error:#}"), "see --server and --token-file")];
        }
    };
    let version = match ask(&api, &["version"]).await {
        Ok(response) => response,
        Err(error) if is_named => {
            return vec![Finding::fail("server", error, "start it, or name another with --server")];
        }
        Err(error) => {
            return vec![Finding::warn("server", error, "if it is elsewhere, name it with --server")];
        }
    };
    let mut findings = vec![clock(&version)];
    findings.push(own_version(api.decode(version).await.unwrap_or_default()));
    findings.push(match ask(&api, &["readyz"]).await {
        Ok(_) => Finding::ok("ready", "it takes jobs"),
        Err(error) => Finding::fail("ready", error, "look into its log"),
    });
    findings.extend(workers(&api).await);
    findings
}

async fn ask(api: &Api, path: &[&str]) -> Result<Response, String> {
    api.send(api.fetch(path).timeout(PATIENCE)).await.map_err(|error| format!("{error:#}"))
}

fn clock(answer: &Response) -> Finding {
    let date = answer.headers().get("date").and_then(|date| date.to_str().ok());
    let there = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()).map(|date| date.timestamp());
    let Some(there) = there else {
        return Finding::warn("clock", "the server does not tell its time", "is there a proxy between?");
    };
    let ahead = there.as_second() - jiff::Timestamp::now().as_second();
    if ahead.abs() <= SKEW_MAX_SECONDS {
        Finding::ok("clock", "the server's is the same as here")
    } else {
        let text = format!("the server's is {ahead} s ahead of this machine's");
        Finding::warn(
            "clock",
            text,
            "leases do not mind, but times in lists and schedules do: run NTP on both",
        )
    }
}

fn own_version(answer: Value) -> Finding {
    let ours = env!("CARGO_PKG_VERSION");
    match answer["version"].as_str() {
        Some(theirs) if theirs == ours => Finding::ok("server", format!("answers, version {theirs}")),
        Some(theirs) => Finding::warn(
            "server",
            format!("answers, version {theirs}; this program is {ours}"),
            "upgrade the server first, then everything else",
        ),
        None => Finding::fail("server", "what answers is no Longshore", "check --server"),
    }
}

async fn workers(api: &Api) -> Vec<Finding> {
    let answer = match ask(api, &["api", "workers"]).await {
        Ok(response) => api.decode::<Vec<Value>>(response).await.map_err(|error| format!("{error:#}")),
        Err(error) => Err(error),
    };
    let workers = match answer {
        Ok(workers) => workers,
        Err(error) => return vec![Finding::fail("workers", error, "see --token-file")],
    };
    let mut findings = vec![if workers.is_empty() {
        Finding::warn("workers", "none is connected", "start one: longshore worker --server ADDRESS")
    } else {
        Finding::ok("workers", format!("{} connected or with jobs", workers.len()))
    }];
    findings.extend(workers.iter().flat_map(worker));
    findings
}

/// What is not well with a worker.
fn worker(worker: &Value) -> Vec<Finding> {
    let name = worker["name"].as_str().unwrap_or_default();
    let mut findings = Vec::new();
    let unmanaged = worker["unmanaged"].as_array().map_or(0, Vec::len);
    if unmanaged > 0 {
        let text = format!("{name} has {unmanaged} attempts that this server never gave");
        let next =
            "was a backup restored? Let them end, or docker rm -f what 'longshore workers -o json' shows";
        findings.push(Finding::fail("worker", text, next));
    }
    if worker["state"] == "cloned" {
        let from: Vec<&str> =
            worker["copies"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let text = format!("several processes say that they are {name}, from {}", from.join(" and "));
        let next =
            "one state directory is a copy of the other: stop the copy, remove its directory, start it again";
        findings.push(Finding::fail("worker", text, next));
    }
    if worker["state"] == "unreachable" {
        let text = format!("{name} is silent, and has jobs");
        findings.push(Finding::warn("worker", text, "look at its machine; its jobs wait for lost_after"));
    }
    if let Some(version) = worker["version"].as_str().filter(|version| *version != env!("CARGO_PKG_VERSION"))
    {
        let text = format!("{name} is version {version}; this program is {}", env!("CARGO_PKG_VERSION"));
        findings.push(Finding::warn("worker", text, "upgrade it when it is idle"));
    }
    for runtime in worker["runtimes"].as_array().into_iter().flatten().filter(|it| it["available"] == false) {
        let (kind, why) = (&runtime["name"], &runtime["reason"]);
        let text = format!(
            "{name} cannot use {}: {}",
            kind.as_str().unwrap_or_default(),
            why.as_str().unwrap_or_default()
        );
        findings.push(Finding::warn("worker", text, "run 'longshore doctor' on its machine"));
    }
    findings
}
