//! Checks of the server over HTTP, and of the workers that it lists.

use std::cmp::Ordering;
use std::time::Duration;

use reqwest::Response;
use serde_json::Value;
use server::doctor::Finding;

use crate::api::Api;
use crate::args::ServerArgs;
use crate::failure::{Exit, Failure, exit_of};
use crate::{screen, version_order};

/// The version of this program.
const OURS: &str = env!("CARGO_PKG_VERSION");
/// Time limit of each request.
const TIMEOUT: Duration = Duration::from_secs(4);
/// A `Date` header has whole seconds, and the response takes time.
const SKEW_MAX_SECONDS: i64 = 3;

/// The place that names the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedBy {
    Flag,
    SettingsFile,
    /// It is the default: a missing server is only a warning.
    Nothing,
}

/// Checks the server.
pub(super) async fn check(server_args: &ServerArgs, named_by: NamedBy) -> Vec<Finding> {
    let api = match Api::new(server_args) {
        Ok(api) => api,
        Err(error) => {
            let next = match named_by {
                NamedBy::SettingsFile => "check the server and its files in the settings, and --token-file",
                NamedBy::Flag | NamedBy::Nothing => "check --server and --token-file",
            };
            return vec![Finding::fail("server", format!("{error:#}"), next)];
        }
    };
    let version = match ask(&api, &["version"]).await {
        Ok(response) => response,
        Err(error) if exit_of(&error) == Exit::Auth => {
            return without_token(&api, server_args, &error).await;
        }
        Err(error) => {
            if let Some(finding) = refused_connection(&error) {
                return vec![finding];
            }
            let text = format!("{error:#}");
            return vec![match named_by {
                NamedBy::Flag => {
                    Finding::fail("server", text, "start it, or give another address with --server")
                }
                NamedBy::SettingsFile => {
                    Finding::fail("server", text, "start it, or correct its address in the settings")
                }
                NamedBy::Nothing => {
                    Finding::warn("server", text, "if it runs elsewhere, give its address with --server")
                }
            }];
        }
    };
    let date = date_of(&version);
    let about: Value = api.decode(version).await.unwrap_or_default();
    // A proxy may put its own time into the header.
    let time = about["time"].as_str().and_then(|time| time.parse().ok());
    let mut findings = vec![clock(time.or(date))];
    let version = about["version"].as_str();
    findings.push(judge_version(version));
    match ask(&api, &["readyz"]).await {
        Ok(answer) => findings.extend(readiness(answer).await),
        Err(error) => findings.push(not_ready(&error)),
    }
    findings.extend(workers(&api, version).await);
    findings.extend(secrets(&api).await);
    findings
}

/// The finding about a server that runs and cannot be talked to, as by its certificate. `None` if it may not run.
pub(crate) fn refused_connection(error: &anyhow::Error) -> Option<Finding> {
    let failure = error.downcast_ref::<Failure>()?;
    Some(Finding::fail("server", failure.text(), failure.remedy()?))
}

/// The findings that anybody may know, on a server that wants another token, or one at all.
async fn without_token(api: &Api, server_args: &ServerArgs, refusal: &anyhow::Error) -> Vec<Finding> {
    let answers = match &server_args.token_file {
        Some(_) => {
            let next = "give a valid token with --token-file, of the role viewer or a stronger one";
            Finding::fail("server", format!("{refusal:#}"), next)
        }
        None => {
            let text = "answers, and tells its version and its workers only with a token";
            Finding::warn("server", text, "give one of the role viewer with --token-file to see them")
        }
    };
    let mut findings = vec![answers];
    match ask(api, &["readyz"]).await {
        Ok(answer) => {
            findings.push(clock(date_of(&answer)));
            findings.extend(readiness(answer).await);
        }
        Err(error) => findings.push(not_ready(&error)),
    }
    findings
}

async fn readiness(answer: Response) -> Vec<Finding> {
    let text = answer.text().await.unwrap_or_default();
    let warnings = text.lines().filter_map(|line| line.strip_prefix("warning: "));
    let warnings = warnings.map(|warning| Finding::warn("ready", warning, "check the server's log"));
    std::iter::once(Finding::ok("ready", "accepts jobs")).chain(warnings).collect()
}

fn not_ready(error: &anyhow::Error) -> Finding {
    Finding::fail("ready", format!("{error:#}"), "check the server's log")
}

async fn ask(api: &Api, path: &[&str]) -> anyhow::Result<Response> {
    api.send(api.get(path).timeout(TIMEOUT)).await
}

fn date_of(answer: &Response) -> Option<jiff::Timestamp> {
    let date = answer.headers().get("date").and_then(|date| date.to_str().ok());
    date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()).map(|date| date.timestamp())
}

/// Compares the server's time with that of this machine.
fn clock(there: Option<jiff::Timestamp>) -> Finding {
    let Some(there) = there else {
        return Finding::warn("clock", "the response has no Date header", "a proxy may remove it");
    };
    judge_skew(there.as_second() - jiff::Timestamp::now().as_second())
}

/// Judges the seconds by which the server's clock is ahead of this machine's; negative: behind.
fn judge_skew(ahead: i64) -> Finding {
    if ahead.abs() <= SKEW_MAX_SECONDS {
        return Finding::ok("clock", "same as on this machine");
    }
    let (seconds, side) = (ahead.abs(), if ahead > 0 { "ahead of" } else { "behind" });
    Finding::warn(
        "clock",
        format!("the server's clock is {seconds} s {side} this machine's"),
        "leases are not affected, but times in lists and schedules are: run NTP on both",
    )
}

fn judge_version(theirs: Option<&str>) -> Finding {
    let Some(theirs) = theirs else {
        return Finding::fail("server", "the response is not from a Longshore server", "check --server");
    };
    if theirs == OURS {
        return Finding::ok("server", format!("answers, version {theirs}"));
    }
    let next = match version_order::compare(theirs, OURS) {
        Some(Ordering::Greater) => "upgrade this program",
        Some(Ordering::Less) => "upgrade the server first, then everything else",
        Some(Ordering::Equal) | None => "install the same version everywhere",
    };
    Finding::warn("server", format!("answers, version {theirs}; this program is {OURS}"), next)
}

/// The definitions whose secrets the server does not have.
async fn secrets(api: &Api) -> Vec<Finding> {
    let answer = match ask(api, &["api", "definitions"]).await {
        Ok(response) => api.decode::<Vec<Value>>(response).await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(definitions) => definitions.iter().filter_map(missing_secret).collect(),
        Err(error) => vec![Finding::fail("definitions", format!("{error:#}"), "see --token-file")],
    }
}

fn missing_secret(definition: &Value) -> Option<Finding> {
    let name = definition["name"].as_str().unwrap_or_default();
    let reason = definition["missing_secret"].as_str()?;
    let text = format!("jobs of {name} wait: {reason}");
    Some(Finding::warn("secrets", text, "they go on by themselves within seconds"))
}

/// Findings about all workers of a server of this version, if it is known.
async fn workers(api: &Api, server: Option<&str>) -> Vec<Finding> {
    let answer = match ask(api, &["api", "workers"]).await {
        Ok(response) => api.decode::<Vec<Value>>(response).await,
        Err(error) => Err(error),
    };
    let workers = match answer {
        Ok(workers) => workers,
        Err(error) => return vec![Finding::fail("workers", format!("{error:#}"), "see --token-file")],
    };
    let mut findings = vec![if workers.is_empty() {
        Finding::warn("workers", "none is connected", "start one: longshore worker --server ADDRESS")
    } else {
        Finding::ok("workers", format!("{} connected or with jobs", workers.len()))
    }];
    findings.extend(workers.iter().flat_map(|it| worker(it, server)));
    findings
}

/// Findings about one worker of a server of this version, if it is known.
fn worker(worker: &Value, server: Option<&str>) -> Vec<Finding> {
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
    if let (Some(version), Some(server)) = (worker["version"].as_str(), server)
        && version != server
    {
        let next = match version_order::compare(version, server) {
            Some(Ordering::Greater) => "upgrade the server",
            Some(Ordering::Less) => "upgrade it when it is idle",
            Some(Ordering::Equal) | None => "install the server's version when it is idle",
        };
        let text = format!("{name} is version {version}; the server is {server}");
        findings.push(Finding::warn("worker", text, next));
    }
    for runtime in worker["runtimes"].as_array().into_iter().flatten().filter(|it| it["available"] == false) {
        let (kind, why) = (&runtime["name"], &runtime["reason"]);
        let text = format!(
            "{name} cannot use {}: {}",
            kind.as_str().unwrap_or_default(),
            why.as_str().unwrap_or_default()
        );
        let next = "its log tells more; run 'longshore doctor --config FILE' on its machine";
        findings.push(Finding::warn("worker", text, next));
    }
    if let Some(free) = worker["disk_free_bytes"].as_u64().filter(|free| *free < DISK_IS_LOW) {
        let text = format!("{name} has {} of free disk for output and records of jobs", screen::size(free));
        findings.push(Finding::warn("worker", text, "make room where its state directory is"));
    }
    findings
}

/// Less than this is little on a disk of any size. A worker goes by a share of its disk, whose size the server does not know.
const DISK_IS_LOW: u64 = 128 << 20;

#[cfg(test)]
mod tests {
    use serde_json::json;
    use server::doctor::CheckStatus;

    use super::*;

    #[test]
    fn the_older_side_is_to_be_upgraded() {
        assert_eq!(judge_version(Some(OURS)).verdict, CheckStatus::Ok);
        assert_eq!(judge_version(None).verdict, CheckStatus::Fail);
        let next = |theirs: &str| judge_version(Some(theirs)).next;
        assert_eq!(next("999.0.0"), "upgrade this program");
        assert_eq!(next("0.0.1"), "upgrade the server first, then everything else");
        assert_eq!(next("banana"), "install the same version everywhere");
    }

    #[test]
    fn a_worker_that_can_start_nothing_is_told_with_the_reason() {
        let why = "the worker cannot write to its state directory /w: No space left on device (os error 28)";
        let runtimes = json!([
            {"name": "docker", "available": false, "reason": why},
            {"name": "process", "available": true},
        ]);
        let findings = worker(&json!({"name": "anna", "runtimes": runtimes, "disk_free_bytes": 4096}), None);
        let texts: Vec<_> = findings.iter().map(|finding| (finding.verdict, finding.text.as_str())).collect();
        let expected = [
            format!("anna cannot use docker: {why}"),
            "anna has 4.0 KiB of free disk for output and records of jobs".to_owned(),
        ];
        assert_eq!(texts, expected.each_ref().map(|it| (CheckStatus::Warn, it.as_str())));
        assert_eq!(worker(&json!({"name": "anna", "disk_free_bytes": DISK_IS_LOW}), None), []);
    }

    #[test]
    fn workers_are_compared_with_the_server() {
        let about = |version: &str, server| {
            let findings = worker(&json!({"name": "anna", "version": version}), server);
            findings.into_iter().map(|finding| (finding.text, finding.next)).collect::<Vec<_>>()
        };
        assert_eq!(about("999.1.0", Some("999.1.0")), []);
        assert_eq!(about(OURS, None), []);
        let expected = |version: &str, next: &str| {
            [(format!("anna is version {version}; the server is 999.1.0"), next.to_owned())]
        };
        assert_eq!(about("999.0.1", Some("999.1.0")), expected("999.0.1", "upgrade it when it is idle"));
        assert_eq!(about("999.2.0", Some("999.1.0")), expected("999.2.0", "upgrade the server"));
    }

    #[test]
    fn a_clock_is_ahead_or_behind() {
        assert_eq!(judge_skew(-3).verdict, CheckStatus::Ok);
        assert_eq!(judge_skew(5).text, "the server's clock is 5 s ahead of this machine's");
        assert_eq!(judge_skew(-5).text, "the server's clock is 5 s behind this machine's");
    }
}
