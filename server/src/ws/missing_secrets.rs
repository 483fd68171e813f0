//! Definitions whose secrets the server does not have. Their jobs wait and get no attempt until the secrets are there.
//!
//! The engine decides without reading files, so this watch reads the secrets of all definitions now and then, and tells the engine which
//! are missing. A session that cannot read a secret for an attempt reports it: it may belong to a revision that is not in jobs.yaml any
//! more, or have been removed a moment ago.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use protocol::{Revision, RuntimeKind};
use scheduler::definition::Definition;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::secrets::SecretSources;
use crate::catalogue::{Catalogue, Definitions};
use crate::engine::Handle;
use crate::registries::Registries;
use crate::secrets::SecretsDir;

/// A definition whose secrets the server does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingSecret {
    /// The name of the definition.
    pub definition: String,
    /// The name of the secret, and the next step.
    pub reason: String,
}

/// The definitions whose secrets were missing at the last look, by revision.
pub type MissingByRevision = BTreeMap<Revision, MissingSecret>;

/// The findings of the last look, and the reports of sessions for the next one.
#[derive(Debug, Default)]
pub struct MissingSecrets {
    found: RwLock<Arc<MissingByRevision>>,
    reported: Mutex<BTreeSet<Revision>>,
    wake: Notify,
}

impl MissingSecrets {
    /// The definitions whose secrets were missing at the last look.
    #[must_use]
    pub fn found(&self) -> Arc<MissingByRevision> {
        self.found.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A secret of this definition could not be read: the watch looks at once.
    pub(super) fn report(&self, revision: Revision) {
        self.reports().insert(revision);
        self.wake.notify_one();
    }

    fn reports(&self) -> MutexGuard<'_, BTreeSet<Revision>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A secret was missing at the last look, or was reported since.
    fn is_any_missing(&self) -> bool {
        !self.found().is_empty() || !self.reports().is_empty()
    }

    /// Reads the secrets of all definitions, or of those only that lacked one at the last look or were reported since. Waiting jobs keep the
    /// revisions that they were made with, so `known` counts beside the catalogue. Blocks on the disk.
    fn look(
        &self,
        sources: &SecretSources,
        catalogue: &Definitions,
        known: &BTreeMap<Revision, Arc<Definition>>,
        looks_at: LooksAt,
    ) {
        let reported = mem::take(&mut *self.reports());
        let before = self.found();
        let is_candidate = |definition: &&Arc<Definition>| {
            let has_secrets = !definition.secrets.is_empty() && definition.runtime() != RuntimeKind::Fake;
            before.contains_key(&definition.revision)
                || reported.contains(&definition.revision)
                || (looks_at == LooksAt::All && has_secrets)
        };
        let all = catalogue.iter().map(|entry| &entry.definition).chain(known.values());
        let candidates: BTreeMap<Revision, &Arc<Definition>> =
            all.filter(is_candidate).map(|definition| (definition.revision, definition)).collect();
        let logins = sources.registries.as_ref().map(|registries| registries.entries());
        let missing = |(revision, definition): (Revision, &Arc<Definition>)| {
            let reason = sources.fault(definition, logins.as_deref())?;
            Some((revision, MissingSecret { definition: definition.name.clone(), reason }))
        };
        let found: MissingByRevision = candidates.into_iter().filter_map(missing).collect();
        for (revision, missing) in found.iter().filter(|(revision, _)| !before.contains_key(*revision)) {
            let MissingSecret { definition, reason } = missing;
            tracing::warn!(%definition, %revision, reason, "jobs wait until the server has their secrets");
        }
        for missing in before.iter().filter(|(revision, _)| !found.contains_key(*revision)).map(|(_, it)| it)
        {
            tracing::info!(definition = missing.definition, "jobs go on: the server has their secrets");
        }
        *self.found.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(found);
    }
}

/// The definitions that a look is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LooksAt {
    All,
    /// Those that lacked a secret, and those that were reported.
    Missing,
}

/// The part that looks, and tells the engine.
#[derive(Debug)]
pub(crate) struct SecretsWatch {
    missing: Arc<MissingSecrets>,
    sources: SecretSources,
    catalogue: Arc<Catalogue>,
    engine: Handle,
    /// The engine has taken an empty list, and no other since.
    is_told_none: bool,
}

impl SecretsWatch {
    /// A watch of the secrets in this directory, and of those that logins need.
    pub(crate) fn new(
        missing: Arc<MissingSecrets>,
        dir: Option<Arc<SecretsDir>>,
        registries: Option<Arc<Registries>>,
        catalogue: Arc<Catalogue>,
        engine: Handle,
    ) -> Self {
        let sources = SecretSources { dir, registries, is_private: true };
        Self { missing, sources, catalogue, engine, is_told_none: true }
    }

    /// Looks once, before workers can connect: no attempt is sent without its secrets. Blocks on the disk.
    pub(crate) fn begin(&mut self) {
        let known = self.engine.snapshot().definitions.clone();
        self.missing.look(&self.sources, &self.catalogue.current(), &known, LooksAt::All);
        self.tell();
    }

    /// Looks again and again: at what is missing soon, at all after a reload and else now and then.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        // The first look may have come before jobs of former revisions were known.
        let mut looked_at_all = None::<Instant>;
        loop {
            let mut looks_at = LooksAt::Missing;
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.catalogue.replaced() => looks_at = LooksAt::All,
                () = self.missing.wake.notified() => {}
                () = tokio::time::sleep(SOON) => {}
            }
            if looked_at_all.is_none_or(|at| at.elapsed() >= RARELY) {
                looks_at = LooksAt::All;
            }
            if looks_at == LooksAt::All {
                looked_at_all = Some(Instant::now());
            }
            if looks_at == LooksAt::All || self.missing.is_any_missing() {
                self.look(looks_at).await;
            }
            self.tell();
        }
    }

    async fn look(&self, looks_at: LooksAt) {
        let (missing, sources) = (self.missing.clone(), self.sources.clone());
        let (current, known) = (self.catalogue.current(), self.engine.snapshot().definitions.clone());
        let look = move || missing.look(&sources, &current, &known, looks_at);
        if tokio::task::spawn_blocking(look).await.is_err() {
            tracing::error!("cannot look for missing secrets; the next look is in {SOON:?}");
        }
    }

    /// Tells the engine what is missing. It forgets the list if it is built anew from the store, so the list is repeated.
    fn tell(&mut self) {
        let found = self.missing.found();
        if !found.is_empty() || !self.is_told_none {
            // With a full inbox the next look tells it.
            let is_told = self.engine.missing_secrets(found.keys().copied().collect()).is_ok();
            self.is_told_none = found.is_empty() && is_told;
        }
    }
}

/// Interval of looks while a secret is missing.
const SOON: Duration = Duration::from_secs(1);
/// Interval of looks while none is missing. A secret that an attempt needs and that has gone is reported by its session at once.
const RARELY: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::jobs_file;

    fn definitions(text: &str) -> Definitions {
        let loaded = jobs_file::parse(text, Path::new("jobs.yaml"), &Default::default()).unwrap();
        Definitions::new(loaded.definitions)
    }

    #[test]
    fn former_revisions_count_as_long_as_jobs_have_them() {
        let root = tempfile::tempdir().unwrap();
        let dir = Some(Arc::new(SecretsDir::open(root.path().to_owned()).unwrap()));
        let sources = SecretSources { dir, registries: None, is_private: true };
        let former = definitions("- {name: a, image: b, secrets: [db]}");
        let present = definitions("- {name: a, image: c, secrets: [db]}");
        let known: BTreeMap<Revision, Arc<Definition>> =
            former.iter().map(|entry| (entry.definition.revision, entry.definition.clone())).collect();
        let missing = MissingSecrets::default();
        missing.look(&sources, &present, &known, LooksAt::All);
        assert_eq!(missing.found().len(), 2, "that of jobs.yaml, and that of jobs which wait");
        missing.look(&sources, &present, &known, LooksAt::Missing);
        assert_eq!(missing.found().len(), 2);

        std::fs::write(root.path().join("db"), "hunter2").unwrap();
        missing.look(&sources, &present, &known, LooksAt::Missing);
        assert_eq!(missing.found().len(), 0);
        std::fs::remove_file(root.path().join("db")).unwrap();
        missing.look(&sources, &present, &known, LooksAt::Missing);
        assert_eq!(missing.found().len(), 0, "nobody has reported it");
        known.keys().for_each(|revision| missing.report(*revision));
        missing.look(&sources, &present, &known, LooksAt::Missing);
        assert_eq!(missing.found().len(), 1);
        // The job has ended: nobody needs the secret of that revision any more.
        missing.look(&sources, &present, &BTreeMap::new(), LooksAt::Missing);
        assert_eq!(missing.found().len(), 0);
    }
}
