//! Follows the output files of one attempt, also if they cannot be opened at first.
//!
//! A process may run out of file descriptors at the start of a job. The output is in files by then, so it is not lost: opening them is tried
//! again until the end of the attempt, and once more before the end is reported.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::Token;
use protocol::container::ContainerSpec;
use protocol::report::OutputLengths;
use tokio::time::sleep;

use super::Logs;
use crate::attempt_dir::AttemptDir;
use crate::error_chain::error_chain;

/// The output of one attempt on its way into [`Logs`]. A cheap handle.
#[derive(Clone)]
pub(crate) struct OutputFollower {
    attempt: Arc<FollowedAttempt>,
}

struct FollowedAttempt {
    logs: Logs,
    token: Token,
    dir: AttemptDir,
    /// The definition, with the rules for its output.
    spec: Arc<ContainerSpec>,
    /// Locked over each call of [`Logs`], so that the files are never followed again after the end.
    state: Mutex<FollowState>,
}

/// State of the following of an attempt's output files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FollowState {
    New,
    /// The files could not be opened; it is tried again.
    Failing,
    Followed,
    Finished,
}

impl OutputFollower {
    pub(crate) fn new(logs: Logs, token: Token, dir: AttemptDir, spec: Arc<ContainerSpec>) -> Self {
        Self {
            attempt: Arc::new(FollowedAttempt {
                logs,
                token,
                dir,
                spec,
                state: Mutex::new(FollowState::New),
            }),
        }
    }

    /// Starts to follow the files. If they cannot be opened, that is tried again in the background. It opens files, so it is called on a
    /// blocking thread of a tokio runtime.
    pub(crate) fn start(&self) {
        if !self.try_follow() {
            let follower = self.clone();
            drop(tokio::spawn(async move {
                while !follower.on_blocking_thread(Self::try_follow).await {
                    sleep(TRY_AGAIN).await;
                }
            }));
        }
    }

    /// Marks the output as complete. Files that should be followed and could not be opened are tried a few more times before.
    pub(crate) async fn finish(&self, lengths: OutputLengths) {
        for _ in 0..LAST_TRIES {
            if self.on_blocking_thread(|it| *it.state() != FollowState::Failing || it.try_follow()).await {
                break;
            }
            sleep(TRY_AGAIN).await;
        }
        self.on_blocking_thread(move |it| it.finish_now(lengths)).await;
    }

    /// Runs this on a blocking thread, because another caller may hold the state while the disk is slow.
    async fn on_blocking_thread<T: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> T {
        let follower = self.clone();
        // It fails only if the runtime shuts down.
        tokio::task::spawn_blocking(move || work(&follower)).await.unwrap_or_default()
    }

    /// As [`OutputFollower::finish`], without waiting for it. To be called on a blocking thread.
    pub(crate) fn finish_soon(&self, lengths: OutputLengths) {
        if *self.state() == FollowState::Failing {
            let follower = self.clone();
            drop(tokio::spawn(async move { follower.finish(lengths).await }));
        } else {
            self.finish_now(lengths);
        }
    }

    fn finish_now(&self, lengths: OutputLengths) {
        let mut state = self.state();
        *state = FollowState::Finished;
        self.attempt.logs.finish(self.attempt.token, lengths);
    }

    /// `false` if the files cannot be opened now.
    fn try_follow(&self) -> bool {
        let mut state = self.state();
        if matches!(*state, FollowState::Followed | FollowState::Finished) {
            return true;
        }
        let FollowedAttempt { logs, token, dir, spec, .. } = &*self.attempt;
        match logs.follow(*token, dir, spec.log_bytes_max, &spec.log_mask) {
            Ok(()) => *state = FollowState::Followed,
            Err(error) => {
                if *state == FollowState::New {
                    tracing::warn!(attempt = %token, error = error_chain(&error), "cannot open the output files; trying again");
                }
                *state = FollowState::Failing;
            }
        }
        *state == FollowState::Followed
    }

    fn state(&self) -> MutexGuard<'_, FollowState> {
        self.attempt.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pause between two tries to open the files.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// Tries before an end is reported without its output: five seconds.
const LAST_TRIES: u32 = 10;

#[cfg(test)]
mod tests {
    use protocol::report::{ChunkData, Stream};
    use protocol::{ContainerSpec, JobId, Revision};
    use std::io::Write as _;
    use std::path::Path;
    use worker::step::Launch;

    use super::*;
    use crate::attempt_dir::{AttemptStore, OutputProgress};
    use crate::logs::files::{AttemptFiles, KeepLimits};

    fn attempt(state: &Path) -> (Token, AttemptDir) {
        let store = AttemptStore::open(state).expect("a store");
        let token = Token { job: JobId(1), ..Token::default() };
        let launch = Launch {
            token,
            revision: Revision::default(),
            name: "test".into(),
            spec: ContainerSpec::default().into(),
            overrides: None,
            time_left: None,
            secrets: Default::default(),
        };
        (token, store.create(&launch).expect("made"))
    }

    #[tokio::test]
    async fn output_is_not_lost_if_its_files_cannot_be_opened_at_the_start() {
        let state = tempfile::tempdir().expect("a directory");
        let (token, dir) = attempt(state.path());
        dir.output(Stream::Stdout).expect("opened").write_all(b"hello\n").expect("written");
        let (file, aside) = (dir.path().join("stderr"), dir.path().join("aside"));
        std::fs::rename(&file, &aside).expect("gone for a while");

        let (logs, _done) = Logs::new();
        let follower = OutputFollower::new(logs.clone(), token, dir, Arc::default());
        follower.start();
        std::fs::rename(&aside, &file).expect("back");
        follower.finish(OutputLengths { stdout: 6, stderr: 0 }).await;

        let chunks = logs.next().await;
        assert_eq!(chunks[0].data, ChunkData::Bytes(b"hello\n".to_vec()));
    }

    #[tokio::test]
    async fn growth_before_the_queue_knows_the_attempt_is_sent_without_another_growth() {
        let state = tempfile::tempdir().expect("a directory");
        let (token, dir) = attempt(state.path());
        let files = Arc::new(AttemptFiles::open(dir.clone(), &[]).expect("opened"));
        let lengths = files.lengths();
        dir.output(Stream::Stdout).expect("opened").write_all(b"a line\n").expect("written");

        let (logs, _done) = Logs::new();
        logs.state.watch.add(&logs.state, token, &files);
        let limits = KeepLimits::new(0, OutputProgress::default(), None);
        logs.begin_to_send(token, files, limits, OutputProgress::default(), lengths);

        let chunks = tokio::time::timeout(Duration::from_secs(10), logs.next()).await.expect("it is sent");
        assert_eq!(chunks[0].data, ChunkData::Bytes(b"a line\n".to_vec()));
    }
}
