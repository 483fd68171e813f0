//! The start of an attempt's container: reported once, by the first task that sees it, and before anything that follows from it.

use std::sync::Arc;
use std::time::Duration;

use protocol::Uptime;
use tokio::time::{Instant, sleep};
use worker::input::{RuntimeEvent, StartFailure};

use super::Attempt;
use super::conclude::{CliExit, Conclusion};
use super::outcome::{AttemptOutcome, Hang, not_started};
use crate::logs::OutputFollower;
use crate::runtime::blocking::run_blocking;
use crate::runtime::docker::container::Container;
use crate::runtime::docker::{Config, DockerState, usage};

impl Attempt {
    /// The start of the container. A recorded one is preferred, because the engine's clock may have been set since.
    pub(in crate::runtime::docker) async fn start_of(
        &self,
        docker: &DockerState,
        container: &Container,
    ) -> Uptime {
        let dir = self.dir.clone();
        let recorded = run_blocking(move || Ok(dir.start())).await.flatten();
        recorded.unwrap_or_else(|| container.started_at(docker.engine.now()))
    }

    /// Reports the start, once. From here on the output is the job's own.
    ///
    /// # Cancel safety
    /// A cancelled call has reported nothing, and another one reports the start.
    pub(in crate::runtime::docker) async fn report_start(
        &self,
        docker: &DockerState,
        container: &str,
        at: Uptime,
    ) {
        let tell = || {
            docker.send_event(RuntimeEvent::Started { token: self.token(), container: container.into(), at });
        };
        self.report_start_once(docker, container, Some(at), tell).await;
    }

    /// Like [`Attempt::report_start`], for a start that the state machine learns in another way.
    pub(in crate::runtime::docker) async fn mark_started(&self, docker: &DockerState, container: &str) {
        self.report_start_once(docker, container, None, || {}).await;
    }

    /// A second caller waits until the first is done, so its reports come after the start, and the output is followed. The files are opened
    /// on a blocking thread: while the disk hangs, only this attempt waits.
    async fn report_start_once(
        &self,
        docker: &DockerState,
        container: &str,
        at: Option<Uptime>,
        tell: impl FnOnce(),
    ) {
        let start = async {
            let (output, dir) = (self.output(docker).clone(), self.dir.clone());
            let measure = usage::measure(docker, self, container);
            let work = move || {
                output.start();
                measure();
                if let Some(at) = at {
                    dir.record_start(at);
                }
                Ok(())
            };
            run_blocking(work).await;
            tell();
            container.into()
        };
        self.started.get_or_init(|| start).await;
    }

    /// The output of this attempt on its way to the server.
    pub(in crate::runtime::docker) fn output(&self, docker: &DockerState) -> &OutputFollower {
        self.output.get_or_init(|| {
            let (logs, dir) = (docker.logs.clone(), self.dir.clone());
            OutputFollower::new(logs, self.token(), dir, self.launch.spec.clone())
        })
    }

    /// Id of the container, once its start was seen.
    pub(in crate::runtime::docker) fn container(&self) -> Option<&str> {
        self.started.get().map(String::as_str).filter(|id| !id.is_empty())
    }

    /// Polls for the start. Events report it faster, but need not come. Returns if the CLI hangs: if the engine has answered without a
    /// break that there is no container for [`Config::create_timeout`], or that its container is not started for
    /// [`Config::start_timeout`].
    ///
    /// # Cancel safety
    /// A cancelled poll has no effect.
    pub(super) async fn poll_for_start(&self, docker: &DockerState) -> Hang {
        let mut pending: Option<(Hang, Instant)> = None;
        while self.started.get().is_none() {
            sleep(START_POLL_INTERVAL).await;
            docker.engine.health.wait_until_up().await;
            // An engine that is busy with the start mostly answers nothing about the container, so a slow start of a plugin is no hang.
            let found = docker.engine.inspect(&[&self.name]).await;
            let hang = match found.as_deref() {
                Ok([]) => Some(Hang::Create),
                Ok([container, ..]) if container.started().is_none() && self.owns(container) => {
                    Some(Hang::Start)
                }
                _ => None,
            };
            pending = hang.map(|hang| match pending {
                Some((before, since)) if before == hang => (hang, since),
                _ => (hang, Instant::now()),
            });
            if let Some((hang, since)) = pending {
                let pending_for = since.elapsed();
                if docker.engine.health.was_down_within(pending_for) {
                    pending = None;
                } else if pending_for >= hang.limit(&docker.config) {
                    return hang;
                }
            }
            let Ok(found) = found else { continue };
            if let Some(container) = found.first().filter(|it| it.started().is_some() && self.owns(it)) {
                let at = self.start_of(docker, container).await;
                self.report_start(docker, &container.id, at).await;
            }
        }
        std::future::pending().await
    }

    /// The end of an attempt whose CLI hung and is killed. The container may be made or started at the last moment, so the engine is asked
    /// once more. One that is not started is removed by its id first; until the engine confirms that, there is no end.
    pub(super) async fn end_of_hanging_cli(&self, docker: &Arc<DockerState>, hang: Hang) -> AttemptOutcome {
        let limit = hang.limit(&docker.config);
        tracing::warn!(attempt = %self.token(), ?hang, ?limit, "docker run hangs: it is killed, and its job is tried again");
        match self.determine_end(docker, CliExit::Hung).await {
            Conclusion::Ended(end) => end,
            Conclusion::NeverStarted(_) | Conclusion::NameTaken(_) | Conclusion::Retry(_) => {
                let missing = match hang {
                    Hang::Create => "it made no container",
                    Hang::Start => "it did not start its container",
                };
                let why = format!(
                    "docker run hung: {missing} within {} s, although the engine answered",
                    limit.as_secs()
                );
                not_started(StartFailure::Host, why)
            }
        }
    }
}

impl Hang {
    fn limit(self, config: &Config) -> Duration {
        match self {
            Self::Create => config.create_timeout,
            Self::Start => config.start_timeout,
        }
    }
}

/// Interval of the polls for a start. A poll costs 12 ms of CPU.
const START_POLL_INTERVAL: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::path::Path;

    use protocol::report::OutputLengths;
    use protocol::{ClusterId, ContainerSpec, Revision, Token, WorkerId};
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use worker::step::Launch;

    use super::*;
    use crate::attempt_dir::AttemptStore;
    use crate::logs::Logs;
    use crate::runtime::Membership;
    use crate::runtime::docker::Docker;

    /// A reader of the file blocks until there is a writer.
    fn pipe(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    }

    #[tokio::test]
    async fn a_second_report_of_a_start_waits_for_the_first() {
        let state = tempfile::tempdir().expect("a directory");
        let store = AttemptStore::open(state.path()).expect("a store");
        let launch = Launch {
            token: Token::default(),
            revision: Revision::default(),
            name: "test".into(),
            spec: ContainerSpec::default().into(),
            overrides: None,
            time_left: None,
            secrets: Default::default(),
        };
        let dir = store.create(&launch).expect("made");
        let ((logs, mut done), (events, mut told)) = (Logs::new(), tokio::sync::mpsc::unbounded_channel());
        let docker = Docker::new(Config::default(), store, logs, events);
        let membership = Membership { cluster: ClusterId(1), worker: WorkerId(1) };
        let attempt = Arc::new(Attempt::new(launch, membership, dir.clone(), None));

        let see = || {
            let (docker, attempt) = (Arc::clone(&docker.docker), Arc::clone(&attempt));
            tokio::spawn(async move {
                attempt.report_start(&docker, "abc", Uptime(1)).await;
                // Like a caller that has also seen the end.
                docker.logs.finish(attempt.token(), OutputLengths::default());
                docker.send_event(RuntimeEvent::Prepared(attempt.token()));
            })
        };
        // The first caller hangs at the file of acknowledged output. All tasks of this test share one thread, which stays free.
        let file = dir.path().join("acknowledged");
        pipe(&file);
        let first = see();
        let opened = file.clone();
        let open = move || OpenOptions::new().write(true).open(opened).expect("somebody reads");
        let held = tokio::task::spawn_blocking(open).await.expect("it is opened");
        fs::remove_file(&file).expect("gone");
        let second = see();
        tokio::task::yield_now().await;
        drop(held);
        first.await.and(second.await).expect("both are done");

        let token = attempt.token();
        assert!(matches!(told.recv().await, Some(RuntimeEvent::Started { .. })));
        assert_eq!(told.recv().await, Some(RuntimeEvent::Prepared(token)));
        assert_eq!(done.recv().await, Some(token));
    }
}
