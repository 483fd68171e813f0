//! Check of the Docker engine on this machine: it answers, and it can limit what jobs use.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use server::doctor::Finding;
use tokio::process::Command;
use tokio::time::timeout;

/// An engine that takes longer counts as hanging.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Members of `docker info` that are false if the engine cannot set a limit, with the limit's name.
const LIMITS: [(&str, &str); 3] = [("PidsLimit", "pids"), ("MemoryLimit", "memory"), ("CpuCfsQuota", "cpus")];

/// Asks this program, as a worker would run it.
pub(super) async fn check(program: &Path) -> Finding {
    match info(program).await {
        Ok(info) => assess(&info),
        Err(why) => Finding::warn(
            "docker",
            why,
            "needed on worker machines only: start the engine, and give the worker's user access to its socket",
        ),
    }
}

async fn info(program: &Path) -> Result<Value, String> {
    let mut command = Command::new(program);
    command.args(["info", "--format", "{{json .}}"]).stdin(Stdio::null()).kill_on_drop(true);
    let done = match timeout(TIMEOUT, command.output()).await {
        Ok(done) => done.map_err(|error| format!("cannot run {}: {error}", program.display()))?,
        Err(_) => return Err(format!("docker has not answered within {} s", TIMEOUT.as_secs())),
    };
    let said = String::from_utf8_lossy(&done.stderr);
    serde_json::from_slice(&done.stdout).map_err(|_| format!("docker does not answer: {}", said.trim()))
}

fn assess(info: &Value) -> Finding {
    let text = |key: &str| info[key].as_str().unwrap_or("unknown").to_owned();
    // Without an engine, `docker info` still prints JSON about the command itself.
    if let Some(error) = info["ServerErrors"].as_array().and_then(|errors| errors.first()) {
        let why = format!("the engine does not answer: {}", error.as_str().unwrap_or_default());
        return Finding::warn("docker", why, "needed on worker machines only: start the engine");
    }
    let seen = format!(
        "engine {}, cgroups v{} ({})",
        text("ServerVersion"),
        text("CgroupVersion"),
        text("CgroupDriver")
    );
    let lacking: Vec<&str> =
        LIMITS.iter().filter(|(key, _)| info[*key] == false).map(|(_, name)| *name).collect();
    if lacking.is_empty() {
        Finding::ok("docker", seen)
    } else {
        let text = format!("{seen}; it cannot limit {}", lacking.join(", "));
        Finding::warn(
            "docker",
            text,
            "enable these cgroup controllers in the kernel: a job could take all of the machine",
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use server::doctor::CheckStatus;

    use super::*;

    #[test]
    fn an_engine_that_cannot_limit_jobs_is_told() {
        let good = json!({ "ServerVersion": "28.0", "CgroupVersion": "2", "CgroupDriver": "systemd",
            "PidsLimit": true, "MemoryLimit": true, "CpuCfsQuota": true });
        assert_eq!(assess(&good), Finding::ok("docker", "engine 28.0, cgroups v2 (systemd)"));
        let mut bad = good;
        (bad["PidsLimit"], bad["MemoryLimit"]) = (false.into(), false.into());
        let finding = assess(&bad);
        assert_eq!(finding.verdict, CheckStatus::Warn);
        assert!(finding.text.ends_with("it cannot limit pids, memory"), "{}", finding.text);
    }

    #[tokio::test]
    async fn the_given_program_is_asked() {
        let finding = check(Path::new("/nonexistent/podman")).await;
        assert_eq!(finding.verdict, CheckStatus::Warn);
        assert!(finding.text.starts_with("cannot run /nonexistent/podman: "), "{}", finding.text);
    }

    #[test]
    fn a_command_without_an_engine_is_told() {
        let finding = assess(&json!({ "ServerErrors": ["Cannot connect to the Docker daemon"] }));
        assert_eq!(finding.verdict, CheckStatus::Warn);
        assert!(finding.text.contains("Cannot connect"), "{}", finding.text);
    }
}
