//! Definitions whose secrets the server does not have. Their jobs wait and get no attempt until the secrets are there.
//!
//! The engine decides without reading files, so this watch reads the secrets of all definitions now and then, and tells the engine which
//! are missing. A session that cannot read a secret for an attempt reports it: it may belong to a revision that is not in jobs.yaml any
//! more, or have been removed a moment ago.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
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
    reported: Mutex<BTreeMap<Revision, Arc<Definition>>>,
    wake: Notify,
}

impl MissingSecrets {
    /// The definitions whose secrets were missing at the last look.
    #[must_use]
    pub fn found(&self) -> Arc<MissingByRevision> {
        self.found.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A secret of this definition could not be read: the watch looks at once.
    pub(super) fn report(&self, definition: &Arc<Definition>) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.insert(definition.revision, definition.clone());
        self.wake.notify_one();
    }

    /// Reads the secrets of the definitions, and of those that were reported. Blocks on the disk.
    fn look(&self, sources: &SecretSources, definitions: &Definitions) {
        let logins = sources.registries.as_ref().map(|registries| registries.entries());
        let fault = |definition: &Definition| {
            let reason = sources.fault(definition, logins.as_deref())?;
            Some(MissingSecret { definition: definition.name.clone(), reason })
        };
        let with_secrets = definitions.iter().map(|entry| &entry.definition);
        let with_secrets = with_secrets
            .filter(|definition| !definition.secrets.is_empty() && definition.runtime() != RuntimeKind::Fake);
        let mut found: MissingByRevision =
            with_secrets.filter_map(|definition| Some((definition.revision, fault(definition)?))).collect();
        let reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (revision, definition) in reported {
            match fault(&definition) {
                Some(missing) => drop(found.insert(revision, missing)),
                None => {
                    let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
                    reported.remove(&revision);
                }
            }
        }
        let before = self.found();
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
        self.missing.look(&self.sources, &self.catalogue.current());
        self.tell();
    }

    /// Looks again and again: soon while a secret is missing, after a reload and a report, and else now and then.
    pub(crate) async fn run(mut self, leaving: CancellationToken) {
        let (mut definitions, mut looked) = (self.catalogue.current(), Instant::now());
        loop {
            let is_reported = tokio::select! {
                () = leaving.cancelled() => return,
                () = self.missing.wake.notified() => true,
                () = tokio::time::sleep(SOON) => false,
            };
            let current = self.catalogue.current();
            let is_due = is_reported
                || !self.missing.found().is_empty()
                || !Arc::ptr_eq(&definitions, &current)
                || looked.elapsed() >= RARELY;
            if is_due {
                (definitions, looked) = (current.clone(), Instant::now());
                let (missing, sources) = (self.missing.clone(), self.sources.clone());
                let look = move || missing.look(&sources, &current);
                if tokio::task::spawn_blocking(look).await.is_err() {
                    tracing::error!("cannot look for missing secrets; the next look is in {SOON:?}");
                }
            }
            self.tell();
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
