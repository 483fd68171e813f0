//! Reload of jobs.yaml, or of all files of a directory, as a whole or not at all. The API, SIGHUP and the watch of the file (`watch`) take
//! this one path; a deploy (`deploy`) joins it once the new text is checked and written.

pub(crate) mod accepted;
mod audit;
mod deploy;
mod deploy_target;
mod error;
mod expected;
mod faults;
mod history;
mod new_set;
pub(crate) mod pauses;
mod reloaded;
mod removed;
pub(crate) mod start;
mod watch;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use protocol::order::Intervals;
use protocol::{Revision, Timestamp};
use tokio::sync::{Mutex, Notify};

use accepted::AcceptedFile;
pub use deploy::{Deploy, DeployError, DeployMode, Deployed};
pub use deploy_target::TargetError;
pub use error::ReloadError;
pub use expected::Expected;
use faults::log_faults;
pub(crate) use faults::position;
pub use history::{DefinitionHistory, HistoryError, LoadOrigin};
use history::{FirstTry, warn_if_unwritten};
use new_set::{NewSet, Source};
pub use reloaded::Reloaded;

use crate::auth::records::AccessRecords;
use crate::catalogue::{Catalogue, Definitions};
use crate::clock;
use crate::config::jobs_file::listing::FileIdentity;
use crate::config::jobs_file::{self, Environment, JobsText, LoadedFile, MailSupport};
use crate::config::{Deploys, FaultyJobsFile, RemovedDefinitions};
use crate::engine::{DefinePermit, Handle};
use crate::policy::{self, Policy, PolicyError};
use crate::secrets::SecretsDir;

/// Reads jobs.yaml again and replaces the current definitions.
#[derive(Debug)]
pub struct Reloader {
    engine: Handle,
    catalogue: Arc<Catalogue>,
    /// A file, or a directory of jobs files.
    jobs_file: PathBuf,
    /// Rules of jobs.yaml depend on the lease.
    intervals: Intervals,
    secrets: Option<Arc<SecretsDir>>,
    /// The file of the server's policy; it is read again with jobs.yaml.
    policy_file: Option<PathBuf>,
    mail: MailSupport,
    removed: RemovedDefinitions,
    /// The directory for a copy of each accepted file; none keeps no copies.
    data_dir: Option<PathBuf>,
    on_faults_at_start: FaultyJobsFile,
    deploys: Deploys,
    /// The text of the definitions that are in force.
    in_force: std::sync::Mutex<Option<Arc<JobsText>>>,
    /// The file that the last deploy wrote; its definitions are in force.
    deployed_file: Arc<std::sync::Mutex<Option<FileIdentity>>>,
    /// Gets reloads that no request asks for.
    records: Option<Arc<AccessRecords>>,
    /// Gets a row for each load that changes something; none in tests without a store.
    history: Option<Arc<DefinitionHistory>>,
    /// Held during a reload, so that engine and catalogue are replaced in the same order.
    turn: Mutex<()>,
    /// Notified after each replacement of the definitions.
    loaded: Notify,
    /// The refusal of the file by the start or the last reload; none if it was accepted.
    refusal: std::sync::Mutex<Option<Refusal>>,
}

/// The jobs file was refused, so older definitions are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The time of the start or reload that refused it.
    pub at: Timestamp,
    /// A start would fail for the same faults.
    pub blocks_start: bool,
}

/// Definitions that a reload would bring.
#[derive(Debug)]
pub struct Proposed {
    /// The present definitions.
    pub current: Arc<Definitions>,
    /// The proposed ones.
    pub definitions: Definitions,
    /// Warnings of the file, with their position.
    pub warnings: Vec<String>,
}

impl Reloader {
    /// Creates the reloader of this file.
    #[must_use]
    pub fn new(engine: Handle, catalogue: Arc<Catalogue>, jobs_file: PathBuf, intervals: Intervals) -> Self {
        Self {
            engine,
            catalogue,
            jobs_file,
            intervals,
            secrets: None,
            policy_file: None,
            mail: MailSupport::Absent,
            removed: RemovedDefinitions::default(),
            data_dir: None,
            on_faults_at_start: FaultyJobsFile::default(),
            deploys: Deploys::default(),
            in_force: std::sync::Mutex::default(),
            deployed_file: Arc::default(),
            records: None,
            history: None,
            turn: Mutex::new(()),
            loaded: Notify::new(),
            refusal: std::sync::Mutex::default(),
        }
    }

    /// Checks that the secrets that definitions name are in this directory.
    #[must_use]
    pub fn with_secrets(self, secrets: Option<Arc<SecretsDir>>) -> Self {
        Self { secrets, ..self }
    }

    /// Holds definitions to the policy in this file.
    #[must_use]
    pub fn with_policy(self, policy_file: Option<PathBuf>) -> Self {
        Self { policy_file, ..self }
    }

    /// Accepts recipients of e-mail if the server has a mail server.
    #[must_use]
    pub fn with_mail(self, mail: MailSupport) -> Self {
        Self { mail, ..self }
    }

    /// Sets what becomes of the waiting jobs of removed definitions. [`Self::cancel_removed`] cancels them.
    #[must_use]
    pub fn with_removed(self, removed: RemovedDefinitions) -> Self {
        Self { removed, ..self }
    }

    /// Keeps a copy of each accepted file in the data directory, for starts that may use it.
    #[must_use]
    pub fn with_copies(self, data_dir: PathBuf, on_faults_at_start: FaultyJobsFile) -> Self {
        Self { data_dir: Some(data_dir), on_faults_at_start, ..self }
    }

    /// Says whether requests may replace the jobs file.
    #[must_use]
    pub fn with_deploys(self, deploys: Deploys) -> Self {
        Self { deploys, ..self }
    }

    /// Takes over the text of the definitions that the start has brought into force.
    #[must_use]
    pub fn with_text(self, text: JobsText) -> Self {
        Self { in_force: std::sync::Mutex::new(Some(Arc::new(text))), ..self }
    }

    /// Takes over the refusal of the file by the start.
    #[must_use]
    pub fn with_refusal(self, refusal: Option<Refusal>) -> Self {
        Self { refusal: std::sync::Mutex::new(refusal), ..self }
    }

    /// True if waiting jobs of removed definitions are cancelled.
    #[must_use]
    pub fn cancels_removed(&self) -> bool {
        self.removed == RemovedDefinitions::Cancel
    }

    /// Writes reloads that no request asks for into the audit log of these records.
    #[must_use]
    pub fn with_records(self, records: Arc<AccessRecords>) -> Self {
        Self { records: Some(records), ..self }
    }

    /// Writes loads into this history.
    #[must_use]
    pub fn with_history(self, history: Arc<DefinitionHistory>) -> Self {
        Self { history: Some(history), ..self }
    }

    /// The history of the definitions; none if the server keeps none.
    #[must_use]
    pub const fn history(&self) -> Option<&Arc<DefinitionHistory>> {
        self.history.as_ref()
    }

    /// Reads the file and replaces the definitions, if the present ones and those of the file have the expected revisions. The result is logged.
    ///
    /// # Errors
    /// The definitions stay as they were.
    ///
    /// # Cancel safety
    /// A cancelled call may leave the file read and nothing replaced.
    pub async fn reload(&self, expected: Expected, origin: &LoadOrigin) -> Result<Reloaded, ReloadError> {
        let _turn = self.turn.lock().await;
        self.forget_deployed_file();
        let current = self.catalogue.current().revision();
        let (mut result, row) = match expected.present {
            Some(expected) if expected != current => (Err(ReloadError::Unexpected { current }), None),
            _ => match self.replace(expected.new, origin).await {
                Ok((reloaded, row)) => (Ok(reloaded), row),
                Err(error) => (Err(error), None),
            },
        };
        self.note_result(&result).await;
        let (name, path) = (self.name(), self.jobs_file.display());
        match &result {
            Ok(reloaded) => reloaded.log(&path, &format!("{name} reloaded")),
            Err(ReloadError::Faults(faults)) => {
                tracing::warn!(faults = faults.count(), %path, "{name} refused; the definitions stay unchanged");
                log_faults(faults);
            }
            Err(error) => {
                tracing::warn!(%error, %path, "{name} was not reloaded; the definitions stay unchanged");
            }
        }
        if let Ok(reloaded) = &mut result {
            warn_if_unwritten(row, &mut reloaded.warnings).await;
        }
        result
    }

    /// The name of the jobs file or directory, without the directories above it.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.jobs_file.file_name().unwrap_or(self.jobs_file.as_os_str());
        name.to_string_lossy().into_owned()
    }

    async fn note_result(&self, result: &Result<Reloaded, ReloadError>) {
        let blocks_start = match result {
            // The file is valid, also if it has other definitions than the caller expects.
            Ok(_) | Err(ReloadError::UnexpectedNew { .. }) => None,
            // The file was not looked at, or not taken, so it is as good or as bad as before.
            Err(ReloadError::Unexpected { .. } | ReloadError::Busy) => return,
            Err(ReloadError::Faults(_)) => Some(!self.could_start_with_copy().await),
            Err(ReloadError::Policy(_) | ReloadError::Panicked(_)) => Some(true),
        };
        let at = clock::now().utc;
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) =
            blocks_start.map(|blocks_start| Refusal { at, blocks_start });
    }

    /// True if a start with the present file would use the copy of the last accepted one.
    async fn could_start_with_copy(&self) -> bool {
        let data_dir = self.data_dir.clone().filter(|_| self.on_faults_at_start == FaultyJobsFile::UseLast);
        let Some(data_dir) = data_dir else { return false };
        let (file, environment) = (self.jobs_file.clone(), self.environment_source());
        let is_valid = move || {
            let Ok((environment, _)) = environment() else { return false };
            let copy = AcceptedFile::read(&data_dir, &file).ok().flatten();
            copy.is_some_and(|copy| copy.load(&environment).is_ok())
        };
        tokio::task::spawn_blocking(is_valid).await.unwrap_or(false)
    }

    /// Reads the present policy, and returns it with the environment of definitions under it. The result blocks on the disk.
    fn environment_source(&self) -> impl FnOnce() -> Result<(Environment, Arc<Policy>), PolicyError> + use<> {
        let policy_file = self.policy_file.clone();
        let (intervals, secrets, mail) = (self.intervals, self.secrets.clone(), self.mail);
        move || {
            let policy = policy::load_optional(policy_file.as_deref())?;
            let environment = Environment::of_process()
                .with_intervals(intervals)
                .with_secrets(secrets)
                .with_mail(mail)
                .with_policy(policy.clone());
            Ok((environment, policy))
        }
    }

    /// The refusal of the file, because it or the policy of the server has faults, by the start or the last reload; none if it was accepted.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parses the text of jobs files as a reload would, and changes nothing. One caller at a time.
    ///
    /// # Errors
    /// A reload of this text would be refused.
    pub async fn propose(&self, text: JobsText) -> Result<Proposed, ReloadError> {
        let _turn = self.turn.lock().await;
        let unloaded = self.warning_of_unloaded(&text).await;
        let NewSet { definitions, mut warnings, .. } = self.read(Source::Proposed(text), None).await?;
        warnings.extend(unloaded);
        Ok(Proposed { warnings, current: self.catalogue.current(), definitions })
    }

    async fn replace(
        &self,
        expected: Option<Revision>,
        origin: &LoadOrigin,
    ) -> Result<(Reloaded, Option<FirstTry>), ReloadError> {
        let new = self.read(Source::File, expected).await?;
        let permit = self.engine.reserve_define()?;
        Ok(self.put_in_force(new, permit, origin).await)
    }

    /// Replaces the definitions by these. Nothing refuses them any more. Returns also the row in the history, if something changed.
    async fn put_in_force(
        &self,
        new: NewSet,
        permit: DefinePermit<'_>,
        origin: &LoadOrigin,
    ) -> (Reloaded, Option<FirstTry>) {
        let NewSet { definitions, mut warnings, text } = new;
        let former = self.catalogue.current();
        let (definitions, text) = (definitions.keeping_targets_of(&former), Arc::new(text));
        warnings.extend(pauses::lost(&former, &definitions, &self.engine.snapshot().pauses));
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        let reloaded = Reloaded { warnings, ..Reloaded::between(&former, &definitions) };
        // The engine first: a reader of the new catalogue may submit a new definition to the engine at once.
        permit.define(Arc::new(definitions.clone()));
        let history = self.history.as_ref().filter(|_| reloaded.changes().is_some());
        let row = history.map(|it| it.record_load(origin, former.revision(), &reloaded, &definitions));
        self.catalogue.replace(definitions);
        self.loaded.notify_one();
        *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.clone());
        self.keep(text).await;
        (reloaded, row)
    }

    /// The text of the definitions that are in force; none if it is not known.
    fn in_force(&self) -> Option<Arc<JobsText>> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps a copy of the files that are in force, for a start with faulty ones. After a crash before this, the copy of the set before is
    /// there, which is valid, too.
    async fn keep(&self, text: Arc<JobsText>) {
        let Some(data_dir) = self.data_dir.clone() else { return };
        let file = self.jobs_file.clone();
        let keep = move || accepted::keep(&data_dir, &file, &text);
        if let Err(error) = tokio::task::spawn_blocking(keep).await {
            tracing::error!(%error, "no copy of the jobs files is kept for a start with faulty ones");
        }
    }

    /// Reads definitions under the present policy. A set of another revision than the expected one is refused.
    async fn read(&self, source: Source, expected: Option<Revision>) -> Result<NewSet, ReloadError> {
        let (file, environment) = (self.jobs_file.clone(), self.environment_source());
        let (data_dir, deploys) = (self.data_dir.clone(), self.deploys);
        let read = move || {
            let (environment, policy) = environment()?;
            let loaded = match source {
                Source::File => jobs_file::load(&file, &environment),
                Source::Proposed(text) => {
                    let copy =
                        data_dir.and_then(|data_dir| AcceptedFile::read(&data_dir, &file).ok().flatten());
                    let accepted = copy.map(AcceptedFile::into_text);
                    let former =
                        (deploys == Deploys::Allowed).then(|| deploy_target::former_text(&file)).flatten();
                    let known: Vec<_> = accepted.into_iter().chain(former).collect();
                    jobs_file::parse_proposed(text, &file, &known, &environment)
                }
            };
            let loaded = loaded.and_then(LoadedFile::require_jobs).map_err(ReloadError::Faults)?;
            let warnings =
                loaded.warnings.iter().map(|warning| format!("{}: {}", position(warning), warning.text));
            let warnings = warnings.collect();
            let text = loaded.text;
            let definitions = Definitions::new(loaded.definitions).with_policy(policy);
            // Computed here, where it delays nobody: it takes a tenth of a second for a very large file. It is kept.
            let found = definitions.revision();
            if expected.is_some_and(|expected| expected != found) {
                return Err(ReloadError::UnexpectedNew { found });
            }
            Ok(NewSet { definitions, warnings, text })
        };
        tokio::task::spawn_blocking(read).await?
    }
}
