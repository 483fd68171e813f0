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
        let answer =
            self.call(["ps", "-a", "--no-trunc", "--filter", &filter, "--format", "{{.Names}}"]).await?;
        if !answer.ok {
            return Err(CallError::Unreachable(answer.complaint()));
        }
        let names: Vec<&str> = answer.stdout.lines().collect();
        let mut containers = Vec::with_capacity(names.len());
        for names in names.chunks(INSPECT_MAX) {
            containers.extend(self.inspect(names).await?);
        }
        Ok(containers)
    }

    /// What the engine says of these, without those that it does not know.
    pub(super) async fn inspect<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<Container>, CallError> {
        let args = ["inspect", "--type", "container", "-f", container::FORMAT, "--"];
        let answer = self.call(args.into_iter().chain(names.iter().map(AsRef::as_ref))).await?;
        let unknown =
            |line: &str| line.to_lowercase().contains("no such container") || line.trim().is_empty();
        if !answer.ok && !answer.stderr.lines().all(unknown) {
            return Err(CallError::Unreachable(answer.complaint()));
        }
        Ok(answer.stdout.lines().filter(|it| !it.trim().is_empty()).filter_map(Container::parse).collect())
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

/// An engine that answers does so within milliseconds; under load within a second or two.
const CALL_LIMIT: Duration = Duration::from_secs(10);
const PING_LIMIT: Duration = Duration::from_secs(5);

/// Between two questions to an engine that does not answer.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// Containers asked for by one call.
const INSPECT_MAX: usize = 100;
