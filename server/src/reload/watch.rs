//! Reloads jobs.yaml when the file changes, or a directory of jobs files when one of them is new, has changed or is gone.
//!
//! The files are looked at each second. Notifications of the kernel belong to directories and inodes: an editor that replaces the file, and a
//! ConfigMap whose symlink is swapped two directories above, would need further watches; network file systems send none at all.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::Reloader;
use super::audit::{Cause, NextReload};
use crate::config::jobs_file::listing::{FileIdentity, Fingerprint};

/// Decides when a file is read again.
#[derive(Debug, Default)]
struct Watch {
    /// The file or directory as it was read last; nothing before the first time.
    loaded: Option<Fingerprint>,
    /// The file or directory as it was found last.
    seen: Option<Fingerprint>,
    /// Looks until the same file is read again, because the last reload failed for another reason than the file.
    retry_in: Option<u32>,
    /// The number of looks that the last wait for such a retry took.
    retry_wait: u32,
}

impl Watch {
    /// Returns the cause of a reload that is due: the file differs from the loaded one and has not changed since the last look, so that its
    /// writer has finished; or the last reload is to be tried again. A file that a deploy has written is loaded already.
    fn look(&mut self, found: Option<Fingerprint>, deployed: Option<FileIdentity>) -> Option<Cause> {
        if let Some(deployed) = deployed.map(Fingerprint::File).filter(|it| found.as_ref() == Some(it)) {
            *self = Self { loaded: Some(deployed.clone()), seen: Some(deployed), ..Self::default() };
            return None;
        }
        let is_at_rest = found.is_some() && found == self.seen;
        self.seen = found;
        if !is_at_rest {
            return None;
        }
        if self.seen != self.loaded {
            (self.loaded, self.retry_in, self.retry_wait) = (self.seen.clone(), None, 0);
            return Some(Cause::Watch);
        }
        self.retry_in = self.retry_in?.checked_sub(1);
        self.retry_in.is_none().then_some(Cause::Retry)
    }

    /// Lets the same file be read again: after ten looks, and then after twice as many each time, up to [`RETRY_LOOKS_MAX`].
    fn retry(&mut self) {
        self.retry_wait = (self.retry_wait * 2).clamp(RETRY_LOOKS_FIRST, RETRY_LOOKS_MAX);
        self.retry_in = Some(self.retry_wait - 1);
    }
}

impl Reloader {
    /// Reloads jobs.yaml after each change of the file or the directory, until `shutdown` is cancelled. A file with faults changes nothing, and
    /// is read again when it has changed. If something else prevents the reload, such as a fault of the policy, it is tried again after a while. Files
    /// that it names (`env_file`) are not watched.
    pub async fn watch(&self, shutdown: CancellationToken) {
        let look = || {
            let path = self.jobs_file.clone();
            async move { tokio::task::spawn_blocking(move || Fingerprint::of(&path)).await.ok().flatten() }
        };
        // The file may have changed between the start of the server, which has read it, and the first look: it is read once more.
        let mut watch = Watch::default();
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let watching = async {
            loop {
                ticks.tick().await;
                let found = look().await;
                // After the look: the file that was found may be that of a deploy which has ended meanwhile.
                let Some(cause) = watch.look(found, self.deployed_file()) else { continue };
                let reason = match cause {
                    Cause::Retry => "the last reload failed",
                    _ => "it is new or has changed",
                };
                tracing::info!(file = %self.jobs_file.display(), reason, "reading {} again", self.name());
                if self.reload_for(cause).await == NextReload::Retry {
                    watch.retry();
                }
            }
        };
        tokio::select! {
            () = watching => {}
            () = shutdown.cancelled() => {}
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
const RETRY_LOOKS_FIRST: u32 = 10;
/// Five minutes.
const RETRY_LOOKS_MAX: u32 = 300;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_read_again_once_it_is_at_rest() {
        let file = |number| Some(Fingerprint::File(FileIdentity(1, number, 10, 0)));
        let mut watch = Watch::default();
        let seen = [
            file(1),
            file(1),
            file(1),
            None,
            file(2),
            file(3),
            file(3),
            file(3),
            None,
            file(3),
            file(3),
            file(4),
            file(4),
        ];
        let read: Vec<bool> =
            seen.into_iter().map(|found| watch.look(found, None) == Some(Cause::Watch)).collect();
        assert_eq!(
            read,
            [false, true, false, false, false, false, true, false, false, false, false, false, true]
        );
    }

    #[test]
    fn a_reload_that_failed_for_another_reason_is_tried_again_after_longer_and_longer_waits() {
        let file = |number| Some(Fingerprint::File(FileIdentity(1, number, 10, 0)));
        let mut watch = Watch::default();
        let mut looks_until = |cause, number| {
            let looks = (1..1_000).find(|_| watch.look(file(number), None) == Some(cause));
            watch.retry();
            looks
        };
        assert_eq!(looks_until(Cause::Watch, 1), Some(2));
        for looks in [10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(looks_until(Cause::Retry, 1), Some(looks));
        }
        assert_eq!(looks_until(Cause::Watch, 2), Some(2), "a change counts at once");
        assert_eq!(looks_until(Cause::Retry, 2), Some(10));
    }

    #[test]
    fn the_file_of_a_deploy_is_not_read_again_and_a_later_change_is() {
        let identity = |number| FileIdentity(1, number, 10, 0);
        let mut watch = Watch::default();
        let mut look = |found, deployed: Option<u64>| {
            watch.look(Some(Fingerprint::File(identity(found))), deployed.map(identity))
        };
        assert_eq!([look(1, None), look(1, None)], [None, Some(Cause::Watch)]);
        assert_eq!([look(2, None), look(2, Some(2)), look(2, Some(2))], [None; 3]);
        assert_eq!([look(3, Some(2)), look(3, Some(2))], [None, Some(Cause::Watch)]);
    }

    #[test]
    fn a_swapped_symlink_two_levels_above_is_another_file() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for version in ["v1", "v2"] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("jobs.yaml"), "jobs: {}").unwrap();
        }
        let point_to = |version: &str| {
            symlink(version, at("new")).unwrap();
            fs::rename(at("new"), at("data")).unwrap();
        };
        point_to("v1");
        symlink("data/jobs.yaml", at("jobs.yaml")).unwrap();
        let before = Fingerprint::of(&at("jobs.yaml"));
        point_to("v2");
        assert!(before.is_some() && Fingerprint::of(&at("jobs.yaml")) != before);
        assert_eq!(Fingerprint::of(&at("missing")), None);
    }

    #[test]
    fn a_directory_is_another_one_when_a_file_is_new_gone_changed_or_swapped() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let mut last = Fingerprint::of(directory.path());
        assert_eq!(last, Some(Fingerprint::Directory(Vec::new())));
        let mut is_another = |change: &dyn Fn()| {
            change();
            let before = std::mem::replace(&mut last, Fingerprint::of(directory.path()));
            before != last
        };
        assert!(is_another(&|| fs::write(at("a.yaml"), "[]").unwrap()));
        assert!(is_another(&|| fs::write(at("a.yaml"), "# []").unwrap()));
        assert!(is_another(&|| fs::rename(at("a.yaml"), at("b.yml")).unwrap()));
        assert!(is_another(&|| symlink("..data/c.yaml", at("c.yaml")).unwrap()));
        fs::create_dir(at("..1")).unwrap();
        fs::write(at("..1/c.yaml"), "[]").unwrap();
        assert!(is_another(&|| symlink("..1", at("..data")).unwrap()));
        assert!(is_another(&|| fs::remove_file(at("b.yml")).unwrap()));
        assert!(!is_another(&|| fs::write(at("c.yaml~"), "[]").unwrap()));
        assert!(!is_another(&|| fs::create_dir(at("d.yaml")).unwrap()));
    }
}
