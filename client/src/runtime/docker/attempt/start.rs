//! That an attempt's container has started: seen by whoever looks first, told once, and only then anything that comes after it.

use std::time::Duration;

use protocol::Uptime;
use tokio::time::sleep;
use worker::input::RuntimeEvent;

use super::Attempt;
use crate::attempt_dir::describe;
use crate::runtime::docker::Shared;
use crate::runtime::docker::container::Container;

impl Attempt {
    /// When its container started: the engine's clock may have been set since somebody saw it.
    pub(in crate::runtime::docker) fn start_of(&self, shared: &Shared, container: &Container) -> Uptime {
        self.dir.start().unwrap_or_else(|| container.started_at(shared.engine_now()))
    }

    /// Its container has started: told once. From here on what it wrote is its own.
    pub(in crate::runtime::docker) fn saw_start(&self, shared: &Shared, container: &str, at: Uptime) {
        self.begin(shared, container, || {
            self.dir.note_start(at);
            shared.tell(RuntimeEvent::Started { token: self.token(), container: container.into(), at });
        });
    }

    /// As [`Attempt::saw_start`], for a start that the brain learns in another way.
    pub(in crate::runtime::docker) fn adopt_start(&self, shared: &Shared, container: &str) {
        self.begin(shared, container, || {});
    }

    /// Whoever comes second waits until the first is done: an end that he tells comes after the start, and finds the output followed.
    fn begin(&self, shared: &Shared, container: &str, tell: impl FnOnce()) {
        self.started.get_or_init(|| {
            let followed = shared.logs.follow(self.token(), &self.dir, self.launch.spec.log_bytes_max);
            if let Err(error) = followed {
                tracing::error!(attempt = %self.token(), error = describe(&error), "output cannot be read");
            }
            tell();
            container.into()
        });
    }

    /// The id of its container, once that has been seen to have started.
    pub(in crate::runtime::docker) fn container(&self) -> Option<&str> {
        self.started.get().map(String::as_str).filter(|id| !id.is_empty())
    }

    /// Looks for its start for ever: the engine's events tell a start at once, but they need not.
    ///
    /// # Cancel safety
    /// What was not seen counts as not looked for.
    pub(super) async fn look_for_start(&self, shared: &Shared) {
        while self.started.get().is_none() {
            sleep(LOOK_FOR_START).await;
            shared.health.wait_until_up().await;
            let Ok(found) = shared.inspect(&[&self.name]).await else { continue };
            if let Some(container) = found.first().filter(|it| it.started().is_some() && self.owns(it)) {
                self.saw_start(shared, &container.id, self.start_of(shared, container));
            }
        }
        std::future::pending().await
    }
}

/// When a start is looked for because no event told it. A look costs 12 ms of CPU.
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
    use crate::attempt_dir::Ledger;
    use crate::logs::Logs;
    use crate::runtime::Membership;
    use crate::runtime::docker::{Config, Docker};

    /// Whoever opens it to read gets nothing before there is somebody who writes.
    fn pipe(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    }

    #[tokio::test]
    async fn who_sees_a_start_second_goes_on_when_the_first_is_done() {
        let state = tempfile::tempdir().expect("a directory");
        let ledger = Ledger::open(state.path()).expect("a ledger");
        let launch = Launch {
            token: Token::default(),
            revision: Revision::default(),
            name: "test".into(),
            spec: ContainerSpec::default().into(),
            body: None,
            time_left: None,
        };
        let dir = ledger.create(&launch).expect("made");
        let ((logs, mut done), (events, mut told)) = (Logs::new(), tokio::sync::mpsc::unbounded_channel());
        let docker = Docker::new(Config::default(), ledger, logs, events);
        let membership = Membership { cluster: ClusterId(1), worker: WorkerId(1) };
        let attempt = Arc::new(Attempt::new(launch, membership, dir.clone(), None));

        let see = |before: Box<dyn FnOnce() + Send>| {
            let (shared, attempt) = (Arc::clone(&docker.shared), Arc::clone(&attempt));
            let runtime = tokio::runtime::Handle::current();
            thread::spawn(move || {
                let _guard = runtime.enter();
                before();
                attempt.saw_start(&shared, "abc", Uptime(1));
                // As one who has seen the end, too.
                shared.logs.finish(attempt.token(), OutputLengths::default());
                shared.tell(RuntimeEvent::Prepared(attempt.token()));
            })
        };
        // The first gets no further than to the file that says what the server has.
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
