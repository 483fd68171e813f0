//! The first token of a server that requires tokens: an administrator's, in a file that only the server's user can read.

use std::path::{Path, PathBuf};

use super::Access;
use super::actor::Scope;
use super::records::{AccessRecords, ChangeError, NewToken};
use super::role::Role;
use crate::file_replacement;
use crate::store::file_names::ADMIN_TOKEN;

/// The name of the first token.
const NAME: &str = "first-admin";

/// The first token cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum FirstTokenError {
    /// The file cannot be written.
    #[error("cannot write the first token to {}", .file.display())]
    File {
        /// The path of the file.
        file: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The store does not take it.
    #[error("cannot make the first token")]
    Store(#[from] ChangeError),
}

impl Access {
    /// True if a token in a file is an administrator's: the server needs no first one.
    pub(crate) const fn has_api_token(&self) -> bool {
        self.api.is_some()
    }
}

/// The file in the data directory.
pub(crate) fn file(data: &Path) -> PathBuf {
    data.join(ADMIN_TOKEN)
}

/// Writes a token for an administrator to this file and makes it valid, unless there is a valid one.
///
/// # Errors
/// The file cannot be written, or the store does not take the token.
pub(crate) async fn provide(records: &AccessRecords, file: &Path) -> Result<(), FirstTokenError> {
    let now = crate::clock::now().utc;
    let is_valid_admin = |row: &crate::store::TokenRow| {
        row.role == Role::Admin && row.revoked_at.is_none() && row.expires_at.is_none_or(|end| end > now)
    };
    if records.tokens.rows().iter().any(is_valid_admin) {
        return Ok(());
    }
    if records.tokens.named(NAME).is_some() {
        // It has expired, and its name is needed.
        records.revoke(NAME).await?;
    }
    let new = NewToken {
        name: NAME.to_owned(),
        role: Role::Admin,
        scope: Scope::default(),
        lifetime: None,
        created_by: String::new(),
        uses: None,
        labels: Vec::new(),
    };
    let path = file.to_owned();
    let keep = async |text: &str| {
        let text = format!("{text}\n");
        // The token is valid only after the file is on the disk.
        let write = move || file_replacement::replace(&path, text.as_bytes());
        tokio::task::spawn_blocking(write).await.map_err(std::io::Error::other)?
    };
    records.create_kept(new, keep).await.map_err(|error| match error {
        ChangeError::NotKept(source) => FirstTokenError::File { file: file.to_owned(), source },
        other => FirstTokenError::Store(other),
    })?;
    tracing::info!(file = %file.display(), "made the first token, for an administrator; it is in this file");
    Ok(())
}
