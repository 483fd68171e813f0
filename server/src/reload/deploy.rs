//! Deploys: a caller sends the text of the jobs file, the server checks it as a plan does, writes it over its own file, and loads it.
//!
//! All of that happens in the turn of a reload, and room for the new definitions is reserved in the engine before the file is replaced. So
//! nothing refuses definitions whose file has been written. After a crash in between, the next start loads the new file.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use protocol::Revision;

use super::accepted::AcceptedFile;
use super::deploy_target::{self, DeployTarget, TargetError};
use super::{Proposed, ReloadError, Reloader, Source};
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
    /// Writes, or only checks.
    pub mode: DeployMode,
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
    /// The name of the file beside the jobs file that has its former text; none if nothing was written, or there was no file.
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
    /// A cancelled call goes on in the background: the file is never new beside old definitions.
    pub async fn deploy(self: &Arc<Self>, deploy: Deploy) -> Result<Deployed, DeployError> {
        self.check_deploys()?;
        let reloader = self.clone();
        tokio::spawn(async move { reloader.deploy_in_turn(deploy).await }).await.map_err(ReloadError::from)?
    }

    async fn deploy_in_turn(&self, deploy: Deploy) -> Result<Deployed, DeployError> {
        let _turn = self.turn.lock().await;
        let result = self.try_deploy(deploy).await;
        if let Err(error) = &result {
            let path = self.jobs_file.display();
            tracing::warn!(%error, %path, "a deploy was refused; the jobs file and the definitions stay unchanged");
        }
        result
    }

    async fn try_deploy(&self, deploy: Deploy) -> Result<Deployed, DeployError> {
        let Deploy { text, expected, mode } = deploy;
        let current = self.catalogue.current();
        if expected.is_some_and(|expected| expected != current.revision()) {
            return Err(ReloadError::Unexpected { current: current.revision() }.into());
        }
        let text = Arc::new(text);
        let (target, state) = self.look_at_file(text.clone()).await?;
        if expected.is_some() && state == FileState::Changed {
            return Err(DeployError::ChangedFile { file: self.name() });
        }
        let source = Source::Proposed(JobsText::File(text.as_str().to_owned()));
        let new = self.read(source, None).await?;
        let proposed = Proposed {
            current,
            definitions: new.definitions.clone(),
            warnings: new.warnings.iter().cloned().chain(self.warning_of_change(state)).collect(),
        };
        let mut deployed = Deployed { proposed, previous_file: None };
        if mode == DeployMode::DryRun {
            return Ok(deployed);
        }
        let permit = self.engine.reserve_define().map_err(ReloadError::from)?;
        if state != FileState::Deployed {
            deployed.previous_file = self.write(target, text).await?;
        }
        let reloaded = self.put_in_force(new, permit).await;
        reloaded.log(&self.jobs_file.display(), &format!("{} deployed", self.name()));
        self.note_result(&Ok(reloaded)).await;
        Ok(deployed)
    }

    async fn look_at_file(&self, text: Arc<String>) -> Result<(DeployTarget, FileState), DeployError> {
        let (file, data_dir) = (self.jobs_file.clone(), self.data_dir.clone());
        let look = move || {
            let target = DeployTarget::find(&file)?;
            Ok((target, FileState::of(&file, data_dir.as_deref(), &text)))
        };
        tokio::task::spawn_blocking(look).await.map_err(ReloadError::from)?
    }

    async fn write(&self, target: DeployTarget, text: Arc<String>) -> Result<Option<String>, DeployError> {
        let deployed_file = self.deployed_file.clone();
        let write = move || {
            target.replace(text.as_bytes(), |identity| {
                *deployed_file.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity);
            })
        };
        let former = tokio::task::spawn_blocking(write).await.map_err(ReloadError::from)??;
        Ok(former.map(|path| deploy_target::name(&path)))
    }

    fn warning_of_change(&self, state: FileState) -> Option<String> {
        (state == FileState::Changed).then(|| {
            let name = self.name();
            format!("the server's {name} has changes that were not loaded; the deploy replaces them, and keeps them in {name}.previous")
        })
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

impl FileState {
    /// Compares the file with the text that was loaded last, and with that of a deploy. Blocks on the disk.
    fn of(file: &Path, data_dir: Option<&Path>, deploy: &str) -> Self {
        let present = jobs_file::read_text(file);
        if matches!(&present, Ok(JobsText::File(text)) if text == deploy) {
            return Self::Deployed;
        }
        if !file.exists() {
            return Self::Loaded;
        }
        let loaded = data_dir.and_then(|data_dir| AcceptedFile::read(data_dir, file).ok().flatten());
        match loaded.map(AcceptedFile::into_text) {
            Some(loaded) if present.is_ok_and(|present| present == loaded) => Self::Loaded,
            Some(_) => Self::Changed,
            None => Self::Loaded,
        }
    }
}
