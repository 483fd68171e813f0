//! Whether something may run here, where that depends on what is on this machine's disks: where the path of a bind mount really leads.
//!
//! To find that out may take for ever, on a share whose server is gone. So it is done elsewhere, given up in time, and no more than a few
//! lookups hang at once. It is asked twice: before anything is fetched, so that what is refused costs nothing; and again when the image
//! is there, because that may take minutes, and a link may lead elsewhere by then. What is mounted is the path that was looked at, not the
//! link. What is left is the time from then to the engine's own look at the path.
//!
//! Where the engine has other disks than we see, as beside a worker in a container, our links say nothing about its own: there the path is
//! judged as far as it can be, and mounted as it is written.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use protocol::ContainerSpec;
use protocol::container::Volume;
use protocol::report::ReleaseCause;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::Shared;

/// The lookups that go on at once. One that hangs keeps its place, and a thread, until the system answers it.
pub(super) struct Lookups {
    places: Arc<Semaphore>,
    /// One look at a path at a time: a share that is gone takes one place, however many ask for it.
    gates: Mutex<HashMap<PathBuf, Weak<Gate>>>,
}

type Gate = tokio::sync::Mutex<()>;

impl Default for Lookups {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(AT_ONCE)), gates: Mutex::default() }
    }
}

impl Lookups {
    /// What is found out about a path elsewhere; nothing if that is not done by `deadline`.
    async fn by<T: Send + 'static>(
        &self,
        deadline: Instant,
        path: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (gate, places) = (self.gate(path), Arc::clone(&self.places));
        let found = async move {
            let turn = gate.lock_owned().await;
            let place = places.acquire_owned().await.ok()?;
            let found = tokio::task::spawn_blocking(move || {
                let _held = (turn, place);
                work()
            });
            found.await.ok()
        };
        timeout_at(deadline, found).await.ok().flatten()
    }

    /// Where a path really leads, if it can be told.
    async fn real(&self, deadline: Instant, path: &Path) -> Result<Option<PathBuf>, Hangs> {
        let looked_at = path.to_owned();
        let found = self.by(deadline, path, move || looked_at.canonicalize().ok()).await;
        found.ok_or_else(|| Hangs(path.to_owned()))
    }

    fn gate(&self, path: &Path) -> Arc<Gate> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = gates.get(path).and_then(Weak::upgrade) {
            return gate;
        }
        gates.retain(|_, gate| gate.strong_count() > 0);
        let gate = Arc::<Gate>::default();
        gates.insert(path.to_owned(), Arc::downgrade(&gate));
        gate
    }
}

/// A path that cannot be looked up in time.
struct Hangs(PathBuf);

impl Shared {
    /// Where its mounts begin, if it may run here.
    ///
    /// # Errors
    /// Why not, and whether it may elsewhere.
    pub(super) async fn admit(&self, spec: &ContainerSpec) -> Result<Vec<Volume>, (ReleaseCause, String)> {
        if let Some(why) = self.config.allow.refuses(spec) {
            return Err((ReleaseCause::Policy, why));
        }
        let known = self.look_up(spec).await.map_err(|Hangs(path)| {
            let why = format!(
                "where the path {} leads cannot be found out within {} s: a file system of this machine hangs",
                path.to_string_lossy().escape_debug(),
                LOOKUP_LIMIT.as_secs()
            );
            (ReleaseCause::RuntimeUnavailable, why)
        })?;
        // What is left are our own paths of sockets, on the disk that this program comes from.
        let resolve = |path: &Path| known.get(path).cloned().unwrap_or_else(|| path.canonicalize().ok());
        let admitted = self.config.allow.admit(spec, resolve).map_err(|why| (ReleaseCause::Policy, why))?;
        Ok(if self.config.sees_engine_disks { admitted } else { spec.volumes.clone() })
    }

    /// Where the paths lead by which it is judged. What lies within an allowed directory as that is written does not have to wait for
    /// others that are allowed too, which may hang.
    async fn look_up(&self, spec: &ContainerSpec) -> Result<HashMap<PathBuf, Option<PathBuf>>, Hangs> {
        let (deadline, allow) = (Instant::now() + LOOKUP_LIMIT, &self.config.allow);
        let mut known = HashMap::new();
        let mut lies_within = true;
        for source in spec.volumes.iter().filter(|it| it.is_bind()).map(|it| Path::new(&it.source)) {
            let real = self.lookups.real(deadline, source).await?;
            lies_within &= allow.names(real.as_deref().unwrap_or(source));
            known.insert(source.to_owned(), real);
        }
        if !lies_within {
            for allowed in &allow.mounts {
                known.insert(allowed.clone(), self.lookups.real(deadline, allowed).await?);
            }
        }
        Ok(known)
    }
}

/// A path on a disk is looked up in microseconds, on a share in milliseconds.
const LOOKUP_LIMIT: Duration = Duration::from_secs(10);

/// A thread each.
const AT_ONCE: usize = 8;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_lookup_that_hangs_is_given_up_and_others_go_on_until_too_many_hang() {
        let lookups = Lookups::default();
        let mut held = Vec::new();
        for share in 0..AT_ONCE {
            assert_eq!(lookups.by(later(), &path(100), || 1).await, Some(1));
            let (hold, until) = mpsc::channel::<()>();
            held.push(hold);
            assert_eq!(lookups.by(soon(), &path(share), move || until.recv().is_ok()).await, None);
        }
        assert_eq!(lookups.by(soon(), &path(100), || 1).await, None, "they take no more threads than that");
        drop(held);
        assert_eq!(lookups.by(later(), &path(100), || 1).await, Some(1));
    }

    #[tokio::test]
    async fn what_hangs_takes_one_place_however_many_ask() {
        let lookups = Lookups::default();
        let (hold, until) = mpsc::channel::<()>();
        assert_eq!(lookups.by(soon(), &path(1), move || until.recv().is_ok()).await, None);
        for _ in 0..2 * AT_ONCE {
            let again = lookups.by(soon(), &path(1), || panic!("it is looked up again")).await;
            assert_eq!(again, None::<()>);
        }
        assert_eq!(lookups.by(later(), &path(2), || 2).await, Some(2));
        drop(hold);
        assert_eq!(lookups.by(later(), &path(1), || 1).await, Some(1));
        assert!(lookups.gate(&path(3)).try_lock().is_ok());
        assert_eq!(lookups.gates.lock().unwrap().len(), 1, "nothing is kept of what has been looked up");
    }

    fn path(number: usize) -> PathBuf {
        format!("/srv/share-{number}").into()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(10)
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }
}
