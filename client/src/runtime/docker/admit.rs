//! Admission of mounts: resolves the paths of bind mounts on this machine.
//!
//! A lookup may hang for ever on a share whose server is gone. So it runs on a blocking thread with a time limit, and only a few may hang
//! at once. Paths are resolved twice: before anything is fetched, so that a refusal costs nothing, and again when the image is there,
//! because a link may have changed meanwhile. The resolved path is mounted, not the link. The time between this lookup and the engine's
//! own remains.
//!
//! If the engine sees other file systems, as with a worker in a container, links here say nothing about the engine's. Then no path is
//! resolved, and only the allowed directories themselves are mounted.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use protocol::ContainerSpec;
use protocol::container::Volume;
use protocol::report::ReleaseCause;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::DockerState;
use super::cli::CallError;
use super::real_path::{real_socket, real_source};

/// Limits the lookups at one time. A lookup that hangs keeps its permit and its thread until the system answers.
pub(super) struct PathLookups {
    permits: Arc<Semaphore>,
    /// One lookup of a path at a time: an unreachable share takes one permit, however many attempts ask for it.
    gates: Mutex<HashMap<PathBuf, Weak<Gate>>>,
}

type Gate = tokio::sync::Mutex<()>;

impl Default for PathLookups {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(AT_ONCE)), gates: Mutex::default() }
    }
}

impl PathLookups {
    /// Runs `work` about a path on a blocking thread; `None` if it is not done by `deadline`.
    async fn by<T: Send + 'static>(
        &self,
        deadline: Instant,
        path: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (gate, permits) = (self.gate(path), Arc::clone(&self.permits));
        let found = async move {
            let queue = gate.lock_owned().await;
            let permit = permits.acquire_owned().await.ok()?;
            let found = tokio::task::spawn_blocking(move || {
                let _held = (queue, permit);
                work()
            });
            found.await.ok()
        };
        timeout_at(deadline, found).await.ok().flatten()
    }

    /// Resolves a path by this function, which may hang.
    async fn resolve<T: Send + 'static>(
        &self,
        deadline: Instant,
        path: &Path,
        resolve: fn(&Path) -> T,
    ) -> Result<T, LookupTimeout> {
        let looked_at = path.to_owned();
        let found = self.by(deadline, path, move || resolve(&looked_at)).await;
        found.ok_or_else(|| LookupTimeout(path.to_owned()))
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

/// The real paths of sources, allowed directories and sockets, or the reason why one cannot be seen.
type Resolved = HashMap<PathBuf, Result<PathBuf, String>>;

/// The path could not be resolved in time.
struct LookupTimeout(PathBuf);

impl DockerState {
    /// Checks the policy and returns the mounts with resolved sources.
    ///
    /// # Errors
    /// The rule that refuses it, and whether another worker may run it.
    pub(super) async fn admit(&self, spec: &ContainerSpec) -> Result<Vec<Volume>, (ReleaseCause, String)> {
        if let Some(why) = self.config.allow.refuses(spec) {
            return Err((ReleaseCause::Policy, why));
        }
        if !self.config.sees_engine_disks {
            return self.admit_unseen(spec).await;
        }
        let known = self.look_up(spec).await.map_err(|LookupTimeout(path)| {
            let why = format!(
                "where the path {} leads cannot be found out within {} s: a file system of this machine hangs",
                path.to_string_lossy().escape_debug(),
                LOOKUP_LIMIT.as_secs()
            );
            (ReleaseCause::RuntimeUnavailable, why)
        })?;
        let resolve = |path: &Path| known.get(path).cloned().unwrap_or_else(|| Ok(path.to_owned()));
        self.config.allow.admit(spec, resolve).map_err(|why| (ReleaseCause::Policy, why))
    }

    /// The same where links of the engine's machine cannot be followed. Only the engine knows the paths of the worker's own directories.
    async fn admit_unseen(&self, spec: &ContainerSpec) -> Result<Vec<Volume>, (ReleaseCause, String)> {
        let mut allow = self.config.allow.clone();
        if spec.volumes.iter().any(Volume::is_bind) {
            let away = |error: CallError| (ReleaseCause::RuntimeUnavailable, error.with_remedy());
            allow.private_dirs = self.private_dirs_of_engine().await.map_err(away)?;
        }
        allow.admit_unseen(spec).map_err(|why| (ReleaseCause::Policy, why))?;
        Ok(spec.volumes.clone())
    }

    async fn private_dirs_of_engine(&self) -> Result<Vec<PathBuf>, CallError> {
        let mut dirs = Vec::new();
        for dir in &self.config.allow.private_dirs {
            dirs.extend(self.engine_path(dir).await?);
        }
        if let Some(secrets) = self.store.secrets() {
            dirs.extend(self.secrets_root(secrets).await?);
        }
        Ok(dirs)
    }

    /// Resolves the paths that the policy needs. A source within an allowed directory as that is written does not wait for other allowed
    /// directories, which may hang.
    async fn look_up(&self, spec: &ContainerSpec) -> Result<Resolved, LookupTimeout> {
        let (deadline, allow) = (Instant::now() + LOOKUP_LIMIT, &self.config.allow);
        let mut known = HashMap::new();
        let mut lies_within = true;
        if spec.volumes.iter().any(Volume::is_bind) {
            for socket in allow.sockets() {
                // The path as it is written counts if it hangs: it has nothing to do with this job.
                let by = Instant::now() + SOCKET_LOOKUP_LIMIT;
                let real = self.lookups.resolve(by, socket, real_socket).await.unwrap_or_default();
                known.insert(socket.to_owned(), Ok(real.unwrap_or_else(|| socket.to_owned())));
            }
            for dir in &allow.private_dirs {
                known.insert(dir.clone(), self.lookups.resolve(deadline, dir, real_source).await?);
            }
        }
        for source in spec.volumes.iter().filter(|it| it.is_bind()).map(|it| Path::new(&it.source)) {
            let real = self.lookups.resolve(deadline, source, real_source).await?;
            lies_within &= real.as_deref().is_ok_and(|it| allow.names(it));
            known.insert(source.to_owned(), real);
        }
        if !lies_within {
            for allowed in &allow.mounts {
                known.insert(allowed.clone(), self.lookups.resolve(deadline, allowed, real_source).await?);
            }
        }
        Ok(known)
    }
}

/// A lookup takes microseconds on a disk, milliseconds on a share.
const LOOKUP_LIMIT: Duration = Duration::from_secs(10);

/// Sockets lie on local disks, but home directories may not.
const SOCKET_LOOKUP_LIMIT: Duration = Duration::from_secs(1);

/// Each lookup takes a thread.
const AT_ONCE: usize = 8;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn hanging_lookups_time_out_and_are_bounded() {
        let lookups = PathLookups::default();
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
    async fn a_hanging_path_takes_one_lookup_however_many_ask() {
        let lookups = PathLookups::default();
        let (hold, until) = mpsc::channel::<()>();
        assert_eq!(lookups.by(soon(), &path(1), move || until.recv().is_ok()).await, None);
        for _ in 0..2 * AT_ONCE {
            let again = lookups.by(soon(), &path(1), || panic!("it is looked up again")).await;
            assert_eq!(again, None::<()>);
        }
        assert_eq!(lookups.by(later(), &path(2), || 2).await, Some(2));
        drop(hold);
        assert_eq!(lookups.by(later(), &path(1), || 1).await, Some(1));
        // The threads of finished lookups may hold their gates a moment longer.
        let only_one_is_kept = async {
            loop {
                assert!(lookups.gate(&path(3)).try_lock().is_ok());
                if lookups.gates.lock().unwrap().len() == 1 {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), only_one_is_kept)
            .await
            .expect("finished lookups are dropped");
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
