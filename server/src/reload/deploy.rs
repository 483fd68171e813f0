//! Deploys: a caller sends the text of the jobs file, the server checks it as a plan does, writes it over its own file, and loads it.
//!
//! All of that happens in the turn of a reload, and room for the new definitions is reserved in the engine before the file is replaced. So
//! nothing refuses definitions whose file has been written. After a crash in between, the next start loads the new file.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use protocol::Revision;
use tokio_util::sync::CancellationToken;

use super::deploy_target::{self, DeployTarget, ReplaceError, TargetError};
use super::faults::log_faults;
use super::{HistoryError, LoadOrigin, Proposed, ReloadError, Reloaded, Reloader, Source, warn_if_unwritten};
use crate::auth::actor::Actor;
use crate::auth::audit::note;
use crate::config::Deploys;
use crate::config::jobs_file::listing::FileIdentity;
use crate::config::jobs_file::{self, JobsText};

/// A text that is to replace the jobs file.
#[derive(Debug)]
pub struct Deploy {
    /// The text of the new file.
    pub text: String,
    /// The revision that the present definitions must have; any if absent.
    pub expected: Option<Revision>,
    /// Definitions that may be removed at most; any number if absent.
    pub removed_max: Option<u64>,
    /// Writes, or only checks.
    pub mode: DeployMode,
    /// The requester, and the reason that it gave.
    pub origin: LoadOrigin,
}

/// The effect of a deploy that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeployMode {
    /// The file and the definitions are replaced.
    Replace,
    /// Nothing is changed.
    DryRun,
}

/// The result of a deploy.
#[derive(Debug)]
pub struct Deployed {
    /// The definitions before and after it.
    pub proposed: Proposed,
    /// The difference between them.
    pub reloaded: Reloaded,
    /// The name of the file beside the jobs file that has its former text; none if nothing was written, if there was no file, or if its
    /// text could not be kept.
    pub previous_file: Option<String>,
}

/// The reason why a deploy changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// The server was started without deploys.
    #[error("this server takes no deploys")]
    NotAllowed,
    /// The jobs file cannot be replaced.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Somebody has changed the file, and it was not loaded since.
    #[error("the server's {file} has changes that were not loaded")]
    ChangedFile {
        /// The name of the jobs file.
        file: String,
    },
    /// The caller allows fewer definitions to be removed.
    #[error("the file does not have {} of the present definitions, and the deploy may remove {max}: {}", removed.len(), note::list(removed))]
    TooManyRemoved {
        /// The names of the definitions that would go.
        removed: Vec<String>,
        /// As many were allowed.
        max: u64,
    },
    /// The client has gone before its turn came.
    #[error("the client left before the deploy began")]
    ClientLeft,
    /// The history of the definitions does not take the deploy.
    #[error("the deploy cannot be recorded: {0}")]
    History(#[from] HistoryError),
    /// A reload of this text would be refused, too.
    #[error(transparent)]
    Reload(#[from] ReloadError),
}

/// The jobs file beside the text that was loaded last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    /// It has the loaded text, or it is gone, or no loaded text is known.
    Loaded,
    /// It has another text than the loaded one.
    Changed,
    /// It has the text of the deploy already.
    Deployed,
}

impl Reloader {
    /// Refuses if the server takes no deploys.
    ///
    /// # Errors
    /// [`DeployError::NotAllowed`]
    pub fn check_deploys(&self) -> Result<(), DeployError> {
        match self.deploys {
            Deploys::Allowed => Ok(()),
            Deploys::Refused => Err(DeployError::NotAllowed),
        }
    }

    /// Replaces the jobs file by this text, and the definitions by its own. The result is logged.
    ///
    /// # Errors
    /// File and definitions stay as they were.
    ///
    /// # Cancel safety
    /// A cancelled call that has its turn goes on in the background, and writes its own row of the audit log: the file is never new beside old
    /// definitions. One that waits for its turn does nothing.
    pub async fn deploy(self: &Arc<Self>, deploy: Deploy) -> Result<Deployed, DeployError> {
        self.check_deploys()?;
        let client_left = CancellationToken::new();
        let _client = client_left.clone().drop_guard();
        let (reloader, note, actor) = (self.clone(), note::current(), Actor::current());
        let origin = deploy.origin.clone();
        let task = async move {
            let result = reloader.deploy_in_turn(deploy, &client_left).await;
            if let Ok(deployed) = &result {
                note.serve(async { note::detail(origin.after_reason(deployed.in_words())) }).await;
            }
            // The row of its request was written when the client left.
            if client_left.is_cancelled() {
                reloader.record_deploy(&actor, &origin, &result);
            }
            result
        };
        tokio::spawn(task).await.map_err(ReloadError::from)?
    }

    async fn deploy_in_turn(
        &self,
        deploy: Deploy,
        client_left: &CancellationToken,
    ) -> Result<Deployed, DeployError> {
        let _turn = self.turn.lock().await;
        if client_left.is_cancelled() {
            return Err(DeployError::ClientLeft);
        }
        let result = self.try_deploy(deploy).await;
        let path = self.jobs_file.display();
        match &result {
            Ok(_) => {}
            Err(DeployError::Reload(ReloadError::Faults(faults))) => {
                tracing::warn!(faults = faults.count(), %path, "a deploy was refused; the jobs file and the definitions stay unchanged");
                log_faults(faults);
            }
            Err(error) => {
                tracing::warn!(%error, %path, "a deploy was refused; the jobs file and the definitions stay unchanged");
            }
        }
        result
    }

    async fn try_deploy(&self, deploy: Deploy) -> Result<Deployed, DeployError> {
        let Deploy { text, expected, removed_max, mode, origin } = deploy;
        let current = self.catalogue.current();
        let text = Arc::new(text);
        let (target, state) = self.look_at_file(text.clone()).await?;
        // A client that lost the answer of a deploy repeats it, with the revision from before.
        let is_repeated = state == FileState::Deployed && self.is_in_force(&text);
        let expected = expected.filter(|_| !is_repeated);
        if expected.is_some_and(|expected| expected != current.revision()) {
            return Err(ReloadError::Unexpected { current: current.revision() }.into());
        }
        if expected.is_some() && state == FileState::Changed {
            return Err(DeployError::ChangedFile { file: self.name() });
        }
        let source = Source::Proposed(JobsText::File(text.as_str().to_owned()));
        let new = self.read(source, None).await?;
        let reloaded = Reloaded::between(&current, &new.definitions);
        if let Some(max) = removed_max.filter(|max| reloaded.removed.len() as u64 > *max) {
            return Err(DeployError::TooManyRemoved { removed: reloaded.removed, max });
        }
        let warning = self.warning_of_change(state, &target);
        let warnings = new.warnings.iter().cloned().chain(warning).collect();
        let proposed = Proposed { current, definitions: new.definitions.clone(), warnings };
        let mut deployed = Deployed { proposed, reloaded, previous_file: None };
        if mode == DeployMode::DryRun {
            return Ok(deployed);
        }
        let permit = self.engine.reserve_define().map_err(ReloadError::from)?;
        if state != FileState::Deployed {
            let has_previous = target.exists();
            deployed.previous_file = self.write_recorded(target, text, &deployed.reloaded, &origin).await?;
            if has_previous && deployed.previous_file.is_none() {
                let warning =
                    "the former text of the jobs file is not kept: the log of the server has the reason";
                deployed.proposed.warnings.push(warning.to_owned());
            }
        }
        let (reloaded, row) = self.put_in_force(new, permit, &origin).await;
        reloaded.log(&self.jobs_file.display(), &format!("{} deployed", self.name()));
        self.note_result(&Ok(reloaded)).await;
        warn_if_unwritten(row, &mut deployed.proposed.warnings).await;
        Ok(deployed)
    }

    async fn look_at_file(&self, text: Arc<String>) -> Result<(DeployTarget, FileState), DeployError> {
        let (file, in_force) = (self.jobs_file.clone(), self.in_force());
        let look = move || {
            let target = DeployTarget::find(&file)?;
            Ok((target, FileState::of(&file, in_force.as_deref(), &text)))
        };
        tokio::task::spawn_blocking(look).await.map_err(ReloadError::from)?
    }

    /// Replaces the file. If the server dies before the load, the next start knows whose deploy it loads.
    async fn write_recorded(
        &self,
        target: DeployTarget,
        text: Arc<String>,
        change: &Reloaded,
        origin: &LoadOrigin,
    ) -> Result<Option<String>, DeployError> {
        let Some(history) = self.history.as_ref().filter(|_| change.changes().is_some()) else {
            return self.write(target, text).await;
        };
        history.begin_deploy(origin, change.revision).await?;
        let written = self.write(target, text).await;
        if written.is_err() {
            history.cancel_deploy().await;
        }
        written
    }

    async fn write(&self, target: DeployTarget, text: Arc<String>) -> Result<Option<String>, DeployError> {
        let deployed_file = self.deployed_file.clone();
        let write = move || {
            target.replace(text.as_bytes(), |identity| {
                *deployed_file.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity);
            })
        };
        match tokio::task::spawn_blocking(write).await.map_err(ReloadError::from)? {
            Ok(former) => Ok(former.map(|path| deploy_target::name(&path))),
            Err(ReplaceError::Edited) => Err(DeployError::ChangedFile { file: self.name() }),
            Err(ReplaceError::Disk(error)) => Err(error.into()),
        }
    }

    /// A warning for a plan of this text, if somebody has edited the file and not loaded it.
    pub(super) async fn warning_of_unloaded(&self, text: &JobsText) -> Option<String> {
        let JobsText::File(text) = text else { return None };
        let (file, in_force, text) = (self.jobs_file.clone(), self.in_force()?, text.clone());
        let look = move || FileState::of(&file, Some(&in_force), &text);
        let state = tokio::task::spawn_blocking(look).await.ok()?;
        let name = self.name();
        (state == FileState::Changed)
            .then(|| format!("the server's {name} has changes that were not loaded; this plan compares with what is in force"))
    }

    fn warning_of_change(&self, state: FileState, target: &DeployTarget) -> Option<String> {
        (state == FileState::Changed).then(|| {
            let (name, previous) = (self.name(), deploy_target::name(&target.previous()));
            format!("the server's {name} has changes that were not loaded; the deploy replaces them, and keeps them in {previous}")
        })
    }

    fn is_in_force(&self, text: &str) -> bool {
        self.in_force().is_some_and(|in_force| matches!(&*in_force, JobsText::File(it) if it == text))
    }

    /// The file that the last deploy wrote, if nothing was loaded since.
    pub(super) fn deployed_file(&self) -> Option<FileIdentity> {
        *self.deployed_file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the file of the last deploy, since another one may be loaded now.
    pub(super) fn forget_deployed_file(&self) {
        *self.deployed_file.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Deployed {
    /// The effect, for the audit log.
    pub(super) fn in_words(&self) -> String {
        let changes = self.reloaded.changes().unwrap_or_else(|| "changed nothing".to_owned());
        format!("revision {} -> {}; {changes}", self.proposed.current.revision(), self.reloaded.revision)
    }
}

impl FileState {
    /// Compares the file with the text that is in force, and with that of a deploy. Blocks on the disk.
    fn of(file: &Path, in_force: Option<&JobsText>, deploy: &str) -> Self {
        let present = jobs_file::read_text(file);
        if matches!(&present, Ok(JobsText::File(text)) if text == deploy) {
            return Self::Deployed;
        }
        if !file.exists() {
            return Self::Loaded;
        }
        match in_force {
            Some(in_force) if present.is_ok_and(|present| present == *in_force) => Self::Loaded,
            Some(_) => Self::Changed,
            None => Self::Loaded,
        }
    }
}
