//! Checks of the worker on this machine: its settings file, and the token with which it joins.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::Config;
use client::identity::{IdentityError, recorded_membership};
use server::doctor::Finding;
use tokio::time::timeout;

use crate::api::Api;
use crate::args::ServerArgs;
use crate::client_certificate::ClientCertificateArgs;
use crate::failure::{Exit, Failure, exit_of};
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
    /// Reads the settings file.
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

    /// Asks the server whether it takes the worker, unless it has joined. Nothing if the server cannot be asked, which is a finding of its
    /// own. `server_fails` says that another fault of the server's answers is known.
    pub(super) async fn check_token(&self, server_args: &ServerArgs, server_fails: bool) -> Option<Finding> {
        let state_dir = match self.config.share_state_dir {
            true => &self.config.state_dir.join("slot-0"),
            false => &self.config.state_dir,
        };
        match recorded_membership(state_dir) {
            Ok(Some(joined)) => {
                let text = format!(
                    "the worker has joined as worker {} of cluster {}, says {}; its token is not tried",
                    joined.worker,
                    joined.cluster,
                    state_dir.display()
                );
                return Some(Finding::ok("membership", text));
            }
            Ok(None) => {}
            Err(error) => return Some(unknown_membership(error)),
        }
        let says = match &self.config.token_file {
            Some(_) => "the server accepts the worker's token",
            None => "the server takes workers without a token",
        };
        let mut server_args = server_args.clone();
        server_args.token_file = None;
        // A wrong address or certificate is a finding about the server.
        Api::new(&server_args).ok()?;
        server_args.token_file.clone_from(&self.config.token_file);
        let api = match Api::new(&server_args) {
            Ok(api) => api,
            Err(error) => {
                let next = "correct token_file of the settings, or run this as the worker's user";
                return Some(Finding::fail("token", format!("{error:#}"), next));
            }
        };
        let error = match timeout(TIMEOUT, api.check_worker_token()).await {
            Ok(Ok(())) => return Some(Finding::ok("token", says)),
            Ok(Err(error)) => error,
            Err(_) => return None,
        };
        if is_refusal(&error) {
            let next = "make a token with 'longshore token create NAME --role worker', and name its file as token_file of the settings";
            return Some(Finding::fail("token", format!("{error:#}"), next));
        }
        let is_known = server_fails || exit_of(&error) == Exit::Unavailable;
        let next = "check the address in the settings: a proxy may not pass connections of workers on";
        (!is_known).then(|| Finding::fail("token", format!("{error:#}"), next))
    }
}

/// True if the server has refused the token, or wants one.
fn is_refusal(error: &anyhow::Error) -> bool {
    let document = error.downcast_ref::<Failure>().and_then(Failure::document);
    // A request to the wrong server has the same exit code.
    exit_of(error) == Exit::Auth && document.is_none_or(|problem| problem["status"] != 421)
}

/// A membership that cannot be read says nothing about the worker: another user may run it.
fn unknown_membership(error: IdentityError) -> Finding {
    let is_denied =
        matches!(&error, IdentityError::Io { cause, .. } if cause.kind() == ErrorKind::PermissionDenied);
    let text = match &error {
        IdentityError::Io { path, cause } => format!("cannot read {}: {cause}", path.display()),
        other => other.to_string(),
    };
    if is_denied {
        return Finding::warn("membership", text, "run this as the worker's user, or as root");
    }
    let next = "the worker does not start with it: correct state_dir of the settings, or mend the file";
    Finding::fail("membership", text, next)
}

/// Time limit of the question about the token.
const TIMEOUT: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use server::doctor::CheckStatus;

    use super::*;

    #[test]
    fn a_membership_that_another_user_may_read_is_told_apart_from_a_damaged_one() {
        let io = |kind: ErrorKind| {
            unknown_membership(IdentityError::Io { path: "/var/lib/w/membership".into(), cause: kind.into() })
        };
        let denied = io(ErrorKind::PermissionDenied);
        assert_eq!(denied.verdict, CheckStatus::Warn);
        assert!(
            denied.text.starts_with("cannot read /var/lib/w/membership: permission denied"),
            "{denied:?}"
        );
        assert!(denied.next.contains("the worker's user"), "{denied:?}");
        assert_eq!(io(ErrorKind::NotADirectory).verdict, CheckStatus::Fail);
        let damaged =
            unknown_membership(IdentityError::Damaged { path: "/w/membership".into(), what: "empty" });
        assert!(damaged.text.starts_with("/w/membership is damaged (empty)"), "{damaged:?}");
    }

    #[test]
    fn only_a_refusal_of_the_token_asks_for_another_one() {
        let failure = |exit| anyhow::Error::new(Failure::new(exit, "no"));
        assert!(is_refusal(&failure(Exit::Auth)));
        assert!(!is_refusal(&failure(Exit::Failed)) && !is_refusal(&failure(Exit::NotFound)));
        let misdirected =
            Failure::new(Exit::Auth, "no").problem(Vec::new(), serde_json::json!({ "status": 421 }));
        assert!(!is_refusal(&misdirected.into()));
    }
}
