//! An engine in the process of the test, on the SQLite store of a directory.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use std::path::Path;
use std::sync::Arc;

use longshore_server::catalogue::Definitions;
use longshore_server::config::jobs_file::{self, Environment};
use longshore_server::engine::{Engine, Handle, SessionInbox};
use longshore_server::store::Store;
use longshore_server::store::directory::DataDirectory;
use longshore_server::store::sqlite::{self, SqliteArchive, SqliteStore};
use protocol::order::Intervals;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// An engine that runs until [`Self::stop`].
pub(crate) struct RunningEngine {
    pub(crate) handle: Handle,
    pub(crate) sessions: SessionInbox,
    pub(crate) archive: Arc<SqliteArchive>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl RunningEngine {
    /// Starts an engine on the store of this data directory.
    pub(crate) fn start(data: &Path, definitions: &Definitions) -> Self {
        Self::start_behind(data, definitions, |store| Box::new(store))
    }

    /// Like [`Self::start`], with another store before the one of the directory.
    pub(crate) fn start_behind(
        data: &Path,
        definitions: &Definitions,
        wrap: impl FnOnce(SqliteStore) -> Box<dyn Store>,
    ) -> Self {
        let (store, archive) = sqlite::open(&DataDirectory::take(data).unwrap().into()).unwrap();
        let (engine, handles) =
            Engine::load(wrap(store), definitions, Intervals::default(), usize::MAX, data.into()).unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move { engine.run(stopped).await.unwrap() });
        let (handle, sessions) = (handles.handle, handles.session_inbox);
        Self { handle, sessions, archive: Arc::new(archive), stop, running }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }
}

/// The definitions of a jobs file with this text.
pub(crate) fn definitions(jobs_file: &str) -> Definitions {
    let file = jobs_file::parse(jobs_file, Path::new("jobs.yaml"), &Environment::default()).unwrap();
    Definitions::new(file.definitions)
}
