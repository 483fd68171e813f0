//! What is asked of the engine beside running jobs: short calls with a time limit. Each tells whether the engine is there.

use std::sync::Arc;
use std::time::Duration;

use protocol::ClusterId;

use super::Shared;
use super::cli::{Answer, CallError};
use super::container::{self, Container};
use super::remove::tells_gone;

impl Shared {
    /// Asks an engine that does not answer until it does.
    pub(super) async fn ask_again(self: Arc<Self>) {
        loop {
            self.health.wait_until_down().await;
            tokio::time::sleep(ASK_EVERY).await;
            // Its answer is noted; nobody else needs it.
            let _ = self.ping().await;
        }
    }

    /// Every container of the cluster on this engine.
    pub(super) async fn list(&self, cluster: ClusterId) -> Result<Vec<Container>, CallError> {
        let filter = format!("label=longshore.cluster={cluster}");
        // Not by their names: a container to which others have links has more than one.
        let answer =
            self.call(["ps", "-a", "--no-trunc", "--filter", &filter, "--format", "{{.ID}}"]).await?;
        if !answer.ok {
            return Err(CallError::Unreachable(answer.complaint()));
        }
        let ids: Vec<&str> = answer.stdout.lines().collect();
        let mut containers = Vec::with_capacity(ids.len());
        for ids in ids.chunks(INSPECT_MAX) {
            containers.extend(self.inspect(ids).await?);
        }
        Ok(containers)
    }

    /// What the engine says of these names or ids, without those that it says it does not have.
    ///
    /// # Errors
    /// It does not answer, or not about all of them.
    pub(super) async fn inspect<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<Container>, CallError> {
        let args = ["inspect", "--type", "container", "-f", container::FORMAT, "--"];
        let answer = self.call(args.into_iter().chain(names.iter().map(AsRef::as_ref))).await?;
        told_of(&answer, names)
    }

    /// Removes a container whatever its state; its absence is success.
    pub(super) async fn remove_now(&self, name: &str) {
        if let Err(error) = self.call(["rm", "-f", "-v", "--", name]).await {
            tracing::warn!(container = name, %error, "cannot be removed");
        }
    }

    /// Removes a container that was made and never started; returns whether it is gone. The engine refuses if it is starting it at this
    /// moment, or has, for a command that has since died: then it has to be looked at again. Only one that has also ended since it was
    /// looked at goes unseen.
    pub(super) async fn remove_unstarted(&self, name: &str) -> bool {
        match self.call(["rm", "-v", "--", name]).await {
            Ok(answer) if answer.ok || tells_gone(&answer, name) => return true,
            Ok(answer) => {
                tracing::warn!(container = name, complaint = answer.complaint(), "is not removed")
            }
            Err(error) => tracing::warn!(container = name, %error, "cannot be removed"),
        }
        false
    }

    pub(super) async fn ping(&self) -> Result<(), CallError> {
        let answer = self.cli.call(["version", "--format", "{{.Server.Version}}"], PING_LIMIT).await;
        let answer =
            answer.and_then(|it| if it.ok { Ok(()) } else { Err(CallError::Unreachable(it.complaint())) });
        match &answer {
            Ok(()) => self.health.up(),
            Err(error) => self.note(error),
        }
        answer
    }

    /// An auxiliary call. Learns from it whether the engine is there.
    pub(super) async fn call<S: AsRef<std::ffi::OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Answer, CallError> {
        let answer = self.cli.call(args, CALL_LIMIT).await;
        match &answer {
            Ok(_) => self.health.up(),
            // One container may hang while the engine is well.
            Err(CallError::Slow(_)) => drop(self.ping().await),
            Err(error) => self.note(error),
        }
        answer
    }

    /// The engine did not answer: from now on it is asked until it does.
    pub(super) fn note(&self, error: &CallError) {
        if self.health.down(&error.told()) {
            tracing::warn!(error = error.told(), "the engine cannot be used");
        }
    }
}

/// What an answer says of these. That one is absent has to be said: a program that was killed, or whose answer cannot be understood, has
/// said nothing of it.
fn told_of<S: AsRef<str>>(answer: &Answer, names: &[S]) -> Result<Vec<Container>, CallError> {
    let lines = answer.stdout.lines().filter(|it| !it.trim().is_empty());
    let found: Vec<Container> = lines.filter_map(Container::parse).collect();
    let is_told =
        |name: &str| found.iter().any(|it| it.name() == name || it.id == name) || answer.tells_absent(name);
    match names.iter().map(AsRef::as_ref).find(|name| !is_told(name)) {
        None => Ok(found),
        Some(name) => Err(CallError::Unreachable(format!(
            "`docker inspect` says neither what {name} is nor that there is none: {}",
            answer.complaint()
        ))),
    }
}

/// An engine that answers does so within milliseconds; under load within a second or two.
const CALL_LIMIT: Duration = Duration::from_secs(10);
const PING_LIMIT: Duration = Duration::from_secs(5);

/// Between two questions to an engine that does not answer.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// Containers asked for by one call.
const INSPECT_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(ok: bool, stdout: &str, stderr: &str) -> Answer {
        Answer { ok, stdout: stdout.into(), stderr: stderr.into() }
    }

    fn line(id: &str, name: &str) -> String {
        format!(
            r#"{{"Id":"{id}","Name":"/{name}","Created":"2026-01-01T00:00:00Z","State":{{"Status":"running","ExitCode":0,"StartedAt":"2026-01-01T00:00:00Z","FinishedAt":""}},"Labels":null,"Image":"app"}}"#
        )
    }

    #[test]
    fn a_container_is_absent_only_where_that_was_said() {
        let names = ["job-1", "job-12"];
        let both = format!("{}\n{}\n", line("a", "job-1"), line("b", "job-12"));
        assert_eq!(told_of(&answer(true, &both, ""), &names).map(|it| it.len()).ok(), Some(2));
        assert_eq!(told_of(&answer(true, &both, ""), &["a", "b"]).map(|it| it.len()).ok(), Some(2));
        for absent in [
            "Error: No such container: job-1\nError response from daemon: No such container: job-12\n",
            "Error: no such object: \"job-1\"\nError: no such container job-12\nWARNING: old\n",
        ] {
            assert_eq!(told_of(&answer(false, "\n", absent), &names).map(|it| it.len()).ok(), Some(0));
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
                let told = told_of(&answer(ok, stdout, stderr), &names);
                assert!(matches!(told, Err(CallError::Unreachable(_))), "{stdout} {stderr}");
            }
        }
    }
}
