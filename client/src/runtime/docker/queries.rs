//! Short calls of the engine beside running jobs. Each one updates the state of the engine.

use std::sync::Arc;
use std::time::Duration;

use protocol::ClusterId;

use super::cli::{CallError, CallOutput};
use super::container::{self, Container};
use super::engine::EngineClient;
use super::remove::confirms_removal;

impl EngineClient {
    /// Pings an unreachable engine until it answers.
    pub(super) async fn ping_until_up(self: Arc<Self>) {
        loop {
            self.health.wait_until_down().await;
            tokio::time::sleep(CLOCK_POLL_INTERVAL).await;
            // The call updates the state; its result is not needed.
            let _ = self.ping().await;
        }
    }

    /// Every container of the cluster on this engine.
    pub(super) async fn list(&self, cluster: ClusterId) -> Result<Vec<Container>, CallError> {
        let filter = format!("label=longshore.cluster={cluster}");
        // Not by names: a container to which others have links has several.
        let answer =
            self.call(["ps", "-a", "--no-trunc", "--filter", &filter, "--format", "{{.ID}}"]).await?;
        if !answer.ok {
            return Err(CallError::Unreachable(answer.error_line()));
        }
        let ids: Vec<&str> = answer.stdout.lines().collect();
        let mut containers = Vec::with_capacity(ids.len());
        for ids in ids.chunks(INSPECT_MAX) {
            containers.extend(self.inspect(ids).await?);
        }
        Ok(containers)
    }

    /// Inspects these names or ids. Containers that the engine says do not exist are left out.
    ///
    /// # Errors
    /// The engine does not answer about all of them.
    pub(super) async fn inspect<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<Container>, CallError> {
        let args = ["inspect", "--type", "container", "-f", container::FORMAT, "--"];
        let answer = self.call(args.into_iter().chain(names.iter().map(AsRef::as_ref))).await?;
        parse_inspected(&answer, names)
    }

    /// Removes a container in any state; the log says if it cannot be. A missing container is success.
    pub(super) async fn remove_now(&self, name: &str) {
        let error = match self.call(["rm", "-f", "-v", "--", name]).await {
            Ok(answer) if answer.ok || confirms_removal(&answer, name) => return,
            Ok(answer) => answer.error_line(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(container = name, error, "cannot remove a container");
    }

    /// Removes a container that was made and never started; returns `true` if it is gone. The engine refuses if it starts the
    /// container at this moment, or has started it; then the caller looks again. Only a container that has also ended since the last
    /// look goes unnoticed.
    pub(super) async fn remove_unstarted(&self, name: &str) -> bool {
        match self.call(["rm", "-v", "--", name]).await {
            Ok(answer) if answer.ok || confirms_removal(&answer, name) => return true,
            Ok(answer) => {
                tracing::warn!(
                    container = name,
                    error = answer.error_line(),
                    "the engine refuses to remove a container"
                )
            }
            Err(error) => tracing::warn!(container = name, %error, "cannot remove a container"),
        }
        false
    }

    pub(super) async fn ping(&self) -> Result<(), CallError> {
        let answer = self.cli.call(["version", "--format", "{{.Server.Version}}"], PING_LIMIT).await;
        let answer =
            answer.and_then(|it| if it.ok { Ok(()) } else { Err(CallError::Unreachable(it.error_line())) });
        match &answer {
            Ok(()) => self.health.set_up(),
            Err(error) => self.mark_unreachable(error),
        }
        answer
    }

    /// Runs an auxiliary call, and updates the state of the engine by its result.
    pub(super) async fn call<S: AsRef<std::ffi::OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<CallOutput, CallError> {
        let answer = self.cli.call(args, CALL_LIMIT).await;
        match &answer {
            Ok(_) => self.health.set_up(),
            // One container may hang while the engine works.
            Err(CallError::Slow(_)) => drop(self.ping().await),
            Err(error) => self.mark_unreachable(error),
        }
        answer
    }

    /// Marks the engine as unreachable; it is pinged until it answers.
    pub(super) fn mark_unreachable(&self, error: &CallError) {
        if self.health.set_down(&error.with_remedy()) {
            tracing::warn!(
                error = error.with_remedy(),
                "the container engine is unreachable; no jobs are started until it answers"
            );
        }
    }
}

/// Parses the answer. Each absence must be stated: a killed program, or an incomprehensible answer, proves nothing.
fn parse_inspected<S: AsRef<str>>(answer: &CallOutput, names: &[S]) -> Result<Vec<Container>, CallError> {
    let lines = answer.stdout.lines().filter(|it| !it.trim().is_empty());
    let found: Vec<Container> = lines.filter_map(Container::parse).collect();
    let is_told =
        |name: &str| found.iter().any(|it| it.name() == name || it.id == name) || answer.says_absent(name);
    match names.iter().map(AsRef::as_ref).find(|name| !is_told(name)) {
        None => Ok(found),
        Some(name) => Err(CallError::Unreachable(format!(
            "`docker inspect` says neither what {name} is nor that there is none: {}",
            answer.error_line()
        ))),
    }
}

/// An engine answers within milliseconds; under load within a second or two.
const CALL_LIMIT: Duration = Duration::from_secs(10);
const PING_LIMIT: Duration = Duration::from_secs(5);

/// Pause between two pings of an unreachable engine.
const CLOCK_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Number of containers in one call.
const INSPECT_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(ok: bool, stdout: &str, stderr: &str) -> CallOutput {
        CallOutput { ok, stdout: stdout.into(), stderr: stderr.into() }
    }

    fn line(id: &str, name: &str) -> String {
        format!(
            r#"{{"Id":"{id}","Name":"/{name}","Created":"2026-01-01T00:00:00Z","State":{{"Status":"running","ExitCode":0,"StartedAt":"2026-01-01T00:00:00Z","FinishedAt":""}},"Labels":null,"Image":"app"}}"#
        )
    }

    #[test]
    fn a_container_is_absent_only_if_the_engine_says_so() {
        let names = ["job-1", "job-12"];
        let both = format!("{}\n{}\n", line("a", "job-1"), line("b", "job-12"));
        assert_eq!(parse_inspected(&answer(true, &both, ""), &names).map(|it| it.len()).ok(), Some(2));
        assert_eq!(parse_inspected(&answer(true, &both, ""), &["a", "b"]).map(|it| it.len()).ok(), Some(2));
        for absent in [
            "Error: No such container: job-1\nError response from daemon: No such container: job-12\n",
            "Error: no such object: \"job-1\"\nError: no such container job-12\nWARNING: old\n",
        ] {
            assert_eq!(
                parse_inspected(&answer(false, "\n", absent), &names).map(|it| it.len()).ok(),
                Some(0)
            );
        }
        let one = line("a", "job-1");
        for (stdout, stderr) in [
            ("", ""),
            (one.as_str(), ""),
            (one.as_str(), "Error: No such container: job-1\n"),
            (&both[..both.len() - 9], ""),
            ("{}", "Error: No such container: job-1\n"),
            ("", "Error: No such container: job-1\nError response from daemon: i/o timeout\n"),
        ] {
            for ok in [true, false] {
                let told = parse_inspected(&answer(ok, stdout, stderr), &names);
                assert!(matches!(told, Err(CallError::Unreachable(_))), "{stdout} {stderr}");
            }
        }
    }
}
