//! Checks of the server over HTTP, and of the workers that it lists.

use std::time::Duration;

use reqwest::Response;
use serde_json::Value;
use server::doctor::Finding;

use crate::api::Api;
use crate::args::ServerArgs;

/// Time limit of each request.
const TIMEOUT: Duration = Duration::from_secs(4);
/// A `Date` header has whole seconds, and the response takes time.
const SKEW_MAX_SECONDS: i64 = 3;

/// Checks the server. If no address was given, a missing server is only a warning.
pub(super) async fn check(server_args: &ServerArgs, is_given: bool) -> Vec<Finding> {
    let api = match Api::new(server_args) {
        Ok(api) => api,
        Err(error) => {
            return vec![Finding::fail("server", format!("{error:#}"), "check --server and --token-file")];
        }
    };
    let version = match ask(&api, &["version"]).await {
        Ok(response) => response,
        Err(error) if is_given => {
            return vec![Finding::fail("server", error, "start it, or give another address with --server")];
        }
        Err(error) => {
            return vec![Finding::warn(
                "server",
                error,
                "if it runs elsewhere, give its address with --server",
            )];
        }
    };
    let mut findings = vec![clock(&version)];
    findings.push(own_version(api.decode(version).await.unwrap_or_default()));
    match ask(&api, &["readyz"]).await {
        Ok(answer) => {
            findings.push(Finding::ok("ready", "accepts jobs"));
            let text = answer.text().await.unwrap_or_default();
            let warnings = text.lines().filter_map(|line| line.strip_prefix("warning: "));
            findings
                .extend(warnings.map(|warning| Finding::warn("ready", warning, "check the server's log")));
        }
        Err(error) => findings.push(Finding::fail("ready", error, "check the server's log")),
    }
    findings.extend(workers(&api).await);
    findings
}

async fn ask(api: &Api, path: &[&str]) -> Result<Response, String> {
    api.send(api.get(path).timeout(TIMEOUT)).await.map_err(|error| format!("{error:#}"))
}

fn clock(answer: &Response) -> Finding {
    let date = answer.headers().get("date").and_then(|date| date.to_str().ok());
    let there = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()).map(|date| date.timestamp());
    let Some(there) = there else {
        return Finding::warn("clock", "the response has no Date header", "a proxy may remove it");
    };
    let ahead = there.as_second() - jiff::Timestamp::now().as_second();
    if ahead.abs() <= SKEW_MAX_SECONDS {
        Finding::ok("clock", "same as on this machine")
    } else {
        let text = format!("the server's clock is {ahead} s ahead of this machine's");
        Finding::warn(
            "clock",
            text,
            "leases are not affected, but times in lists and schedules are: run NTP on both",
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
        None => Finding::fail("server", "the response is not from a Longshore server", "check --server"),
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

/// Findings about one worker.
fn worker(worker: &Value) -> Vec<Finding> {
    let name = worker["name"].as_str().unwrap_or_default();
    let mut findings = Vec::new();
    let unmanaged = worker["unmanaged"].as_array().map_or(0, Vec::len);
    if unmanaged > 0 {
        let text = format!("{name} has {unmanaged} attempts that this server did not assign");
        let next =
            "expected after a restored backup; let them end, or stop them with: longshore stop-unmanaged";
        findings.push(Finding::fail("worker", text, next));
    }
    if worker["state"] == "cloned" {
        let from: Vec<&str> =
            worker["copies"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let text = format!("several processes use the identity of {name}, from {}", from.join(" and "));
        let next =
            "one state directory is a copy of the other: stop the copy, remove its directory, start it again";
        findings.push(Finding::fail("worker", text, next));
    }
    if worker["state"] == "unreachable" {
        let text = format!("{name} is unreachable and has jobs");
        findings.push(Finding::warn(
            "worker",
            text,
            "check its machine and network; its jobs wait for lost_after",
        ));
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
