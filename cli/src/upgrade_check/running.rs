//! The running server and its workers: whether an upgrade is one step ahead, and whether workers keep their connection.

use std::cmp::Ordering;
use std::time::Duration;

use serde_json::Value;
use server::doctor::Finding;
use server::http::present::shapes::{Version, Worker};

use crate::api::{Api, parse};
use crate::args::ServerArgs;
use crate::doctor::refused_connection;
use crate::version_order;

/// Checks the server at this address.
pub(super) async fn check(server_args: &ServerArgs) -> Vec<Finding> {
    let api = match Api::new(server_args) {
        Ok(api) => api,
        Err(error) => {
            return vec![Finding::fail("server", format!("{error:#}"), "check --server and --token-file")];
        }
    };
    let version: Version = match ask(&api, &["version"]).await {
        Ok(version) => version,
        Err(error) => {
            if let Some(finding) = refused_connection(&error) {
                return vec![finding];
            }
            let next = "start it, give another address with --server, or leave --server out";
            return vec![Finding::fail("server", format!("{error:#}"), next)];
        }
    };
    let mut findings = vec![judge_version(&version.version)];
    match ask::<Vec<Worker>>(&api, &["api", "workers"]).await {
        Ok(workers) => findings.extend(judge_workers(&workers, version.wire_format)),
        Err(error) => findings.push(Finding::fail("workers", format!("{error:#}"), "see --token-file")),
    }
    findings
}

async fn ask<T: serde::de::DeserializeOwned>(api: &Api, path: &[&str]) -> anyhow::Result<T> {
    let json: Value = api.json(api.get(path).timeout(TIMEOUT)).await?;
    parse(api, &json)
}

fn judge_version(theirs: &str) -> Finding {
    let text = format!("runs version {theirs}; this program is {OURS}");
    match version_order::compare(theirs, OURS) {
        Some(Ordering::Greater) => {
            Finding::fail("server", text, "take a program that is not older than the server")
        }
        Some(Ordering::Less | Ordering::Equal) => Finding::ok("server", text),
        None => Finding::warn("server", text, "check that this is a Longshore server"),
    }
}

/// Connected workers speak the wire format of their server, because it refuses all others.
fn judge_workers(workers: &[Worker], theirs: u16) -> Vec<Finding> {
    let connected: Vec<&Worker> = workers.iter().filter(|worker| worker.connected).collect();
    if connected.is_empty() {
        return vec![Finding::ok("workers", "none is connected")];
    }
    let count = connected.len();
    let mut findings = vec![match theirs {
        protocol::WIRE_FORMAT => Finding::ok(
            "workers",
            format!(
                "{count} connected, with wire format {theirs}, which this program speaks: they may be upgraded later"
            ),
        ),
        0 => Finding::warn(
            "workers",
            format!("{count} connected; the server is too old to say their wire format"),
            "upgrade all workers right after the server: until then it may refuse them, while their jobs continue",
        ),
        _ => Finding::warn(
            "workers",
            format!(
                "{count} connected, with wire format {theirs}; this program speaks {} and refuses them",
                protocol::WIRE_FORMAT
            ),
            "upgrade all workers within the lost_after of their jobs: their jobs continue, and count as lost after that time",
        ),
    }];
    let older: Vec<&str> =
        connected.iter().filter(|worker| worker.version != OURS).map(|worker| worker.name.as_str()).collect();
    if !older.is_empty() {
        let named = older.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ");
        let more = if older.len() > NAMES_MAX {
            format!(" and {} more", older.len() - NAMES_MAX)
        } else {
            String::new()
        };
        findings.push(Finding::warn(
            "workers",
            format!("of another version than {OURS}: {named}{more}"),
            "upgrade them after the server",
        ));
    }
    findings
}

/// The version of this program.
const OURS: &str = env!("CARGO_PKG_VERSION");
/// Time limit of each request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Workers that are named; 'longshore workers' lists all.
const NAMES_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use server::doctor::CheckStatus;

    use super::*;

    #[test]
    fn an_older_program_does_not_take_over() {
        let verdict = |theirs: &str| judge_version(theirs).verdict;
        assert_eq!(verdict(OURS), CheckStatus::Ok);
        assert_eq!(verdict("0.0.9"), CheckStatus::Ok);
        assert_eq!(verdict("0.10.0"), CheckStatus::Fail, "numbers are compared, not texts");
        assert_eq!(verdict("banana"), CheckStatus::Warn);
    }

    #[test]
    fn workers_with_another_wire_format_are_a_warning() {
        let worker = |version: &str| Worker {
            name: "anna".to_owned(),
            connected: true,
            version: version.to_owned(),
            ..Worker::default()
        };
        let worst = |workers: &[Worker], format: u16| {
            judge_workers(workers, format).iter().map(|finding| finding.verdict).max().unwrap()
        };
        assert_eq!(worst(&[worker(OURS)], protocol::WIRE_FORMAT), CheckStatus::Ok);
        assert_eq!(worst(&[worker("0.0.9")], protocol::WIRE_FORMAT), CheckStatus::Warn);
        assert_eq!(worst(&[worker(OURS)], protocol::WIRE_FORMAT - 1), CheckStatus::Warn);
        assert_eq!(worst(&[worker(OURS)], 0), CheckStatus::Warn);
        assert_eq!(worst(&[], 0), CheckStatus::Ok);
    }
}
