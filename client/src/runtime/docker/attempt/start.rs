//! The start of an attempt's container: reported once, by the first task that sees it, and before anything that follows from it.

use std::time::Duration;

use protocol::Uptime;
use tokio::time::sleep;
use worker::input::RuntimeEvent;

use super::Attempt;
use crate::logs::OutputFollower;
use crate::runtime::docker::DockerContext;
use crate::runtime::docker::container::Container;

impl Attempt {
    /// The start of the container. A recorded one is preferred, because the engine's clock may have been set since.
    pub(in crate::runtime::docker) fn start_of(
        &self,
        shared: &DockerContext,
        container: &Container,
    ) -> Uptime {
        self.dir.start().unwrap_or_else(|| container.started_at(shared.engine.now()))
    }

    /// Reports the start, once. From here on the output is the job's own.
    pub(in crate::runtime::docker) fn report_start(
        &self,
        shared: &DockerContext,
        container: &str,
        at: Uptime,
    ) {
        self.start_once(shared, container, || {
            self.dir.record_start(at);
            shared.send_event(RuntimeEvent::Started { token: self.token(), container: container.into(), at });
        });
    }

    /// Like [`Attempt::report_start`], for a start that the state machine learns in another way.
    pub(in crate::runtime::docker) fn mark_started(&self, shared: &DockerContext, container: &str) {
        self.start_once(shared, container, || {});
    }

    /// A second caller waits until the first is done, so its reports come after the start, and the output is followed.
    fn start_once(&self, shared: &DockerContext, container: &str, tell: impl FnOnce()) {
        self.started.get_or_init(|| {
            self.output(shared).start();
            tell();
            container.into()
        });
    }

    /// The output of this attempt on its way to the server.
    pub(in crate::runtime::docker) fn output(&self, shared: &DockerContext) -> &OutputFollower {
        self.output.get_or_init(|| {
            let (logs, dir) = (shared.logs.clone(), self.dir.clone());
            OutputFollower::new(logs, self.token(), dir, self.launch.spec.log_bytes_max)
        })
    }

    /// Id of the container, once its start was seen.
    pub(in crate::runtime::docker) fn container(&self) -> Option<&str> {
        self.started.get().map(String::as_str).filter(|id| !id.is_empty())
    }

    /// Polls for the start for ever. Events report it faster, but need not come.
    ///
    /// # Cancel safety
    /// A cancelled poll has no effect.
    pub(super) async fn look_for_start(&self, shared: &DockerContext) {
        while self.started.get().is_none() {
            sleep(LOOK_FOR_START).await;
            shared.engine.health.wait_until_up().await;
            let Ok(found) = shared.engine.inspect(&[&self.name]).await else { continue };
            if let Some(container) = found.first().filter(|it| it.started().is_some() && self.owns(it)) {
                self.report_start(shared, &container.id, self.start_of(shared, container));
            }
        }
        std::future::pending().await
    }
}

/// Interval of the polls for a start. A poll costs 12 ms of CPU.
const LOOK_FOR_START: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::path::Path;
    use std::sync::{Arc, mpsc};
    use std::thread;

    use protocol::report::OutputLengths;
    use protocol::{ClusterId, ContainerSpec, Revision, Token, WorkerId};
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use worker::step::Launch;

    use super::*;
    use crate::attempt_dir::AttemptStore;
    use crate::logs::Logs;
    use crate::runtime::Membership;
    use crate::runtime::docker::{Config, Docker};

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
            body: None,
            time_left: None,
            secrets: Default::default(),
        };
        let dir = store.create(&launch).expect("made");
        let ((logs, mut done), (events, mut told)) = (Logs::new(), tokio::sync::mpsc::unbounded_channel());
        let docker = Docker::new(Config::default(), store, logs, events);
        let membership = Membership { cluster: ClusterId(1), worker: WorkerId(1) };
        let attempt = Arc::new(Attempt::new(launch, membership, dir.clone(), None));

        let see = |before: Box<dyn FnOnce() + Send>| {
            let (shared, attempt) = (Arc::clone(&docker.shared), Arc::clone(&attempt));
            let runtime = tokio::runtime::Handle::current();
            thread::spawn(move || {
                let _guard = runtime.enter();
                before();
                attempt.report_start(&shared, "abc", Uptime(1));
                // Like a caller that has also seen the end.
                shared.logs.finish(attempt.token(), OutputLengths::default());
                shared.send_event(RuntimeEvent::Prepared(attempt.token()));
            })
        };
        // The first caller blocks at the file of acknowledged output.
        let file = dir.path().join("acknowledged");
        pipe(&file);
        let first = see(Box::new(|| {}));
        let held = OpenOptions::new().write(true).open(&file).expect("somebody reads");
        fs::remove_file(&file).expect("gone");
        let (comes, second_comes) = mpsc::channel();
        let second = see(Box::new(move || comes.send(()).expect("heard")));
        second_comes.recv().expect("it comes");
        drop(held);
        first.join().and_then(|()| second.join()).expect("both are done");

        let token = attempt.token();
        assert!(matches!(told.recv().await, Some(RuntimeEvent::Started { .. })));
        assert_eq!(told.recv().await, Some(RuntimeEvent::Prepared(token)));
        assert_eq!(done.recv().await, Some(token));
    }
}
