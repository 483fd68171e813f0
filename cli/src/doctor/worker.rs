//! Checks of the worker on this machine: its settings file, and the token with which it joins.

use std::path::{Path, PathBuf};
use std::time::Duration;

use client::Config;
use client::identity::has_joined;
use server::doctor::Finding;
use tokio::time::timeout;

use crate::api::Api;
use crate::args::ServerArgs;
use crate::client_certificate::ClientCertificateArgs;
use crate::failure::{Exit, exit_of};
use crate::worker;

/// Reads a settings file as `longshore worker --config` does.
pub(crate) type ReadWorker = fn(&Path) -> Result<worker::Flags, String>;

/// The settings of a worker that are about its server.
pub(super) struct WorkerConnection {
    pub(super) server: String,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) client_certificate: ClientCertificateArgs,
    config: Config,
}

impl WorkerConnection {
    /// Reads the settings file, and the variables that override it.
    ///
    /// # Errors
    /// The worker would not start with them; says why.
    pub(super) fn read(file: &Path, read: ReadWorker) -> Result<Self, String> {
        let flags = read(file)?;
        Ok(Self {
            server: flags.server.clone(),
            ca_file: flags.ca_file.clone(),
            client_certificate: flags.client_certificate.clone(),
            config: flags.into_config().map_err(|error| format!("{error:#}"))?,
        })
    }

    /// The docker program, if the worker runs containers.
    pub(super) fn docker(&self) -> Option<&Path> {
        self.config.runtimes.docker.as_deref()
    }

    /// Asks the server whether it takes the worker. Nothing if the server does not answer, which is a finding of its own.
    pub(super) async fn check_token(&self, server_args: &ServerArgs) -> Option<Finding> {
        let state_dir = match self.config.share_state_dir {
            true => &self.config.state_dir.join("slot-0"),
            false => &self.config.state_dir,
        };
        if has_joined(state_dir) {
            return Some(Finding::ok("token", "the worker has joined, and needs no token any more"));
        }
        let says = match &self.config.token_file {
            Some(_) => "the server accepts the worker's token",
            None => "the server takes workers without a token",
        };
        let mut server_args = server_args.clone();
        server_args.token_file.clone_from(&self.config.token_file);
        let api = match Api::new(&server_args) {
            Ok(api) => api,
            Err(error) => return Some(refused(&error)),
        };
        match timeout(TIMEOUT, api.check_worker_token()).await {
            Ok(Ok(())) => Some(Finding::ok("token", says)),
            Ok(Err(error)) if exit_of(&error) != Exit::Unavailable => Some(refused(&error)),
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

fn refused(error: &anyhow::Error) -> Finding {
    let next = "make a token with 'longshore token create NAME --role worker', and name its file as token_file of the settings";
    Finding::fail("token", format!("{error:#}"), next)
}

/// Time limit of the question about the token.
const TIMEOUT: Duration = Duration::from_secs(4);
