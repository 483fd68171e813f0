//! The first token of a server that requires tokens: an administrator's, in a file that only the server's user can read.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::actor::Scope;
use super::records::{AccessRecords, ChangeError, NewToken};
use super::role::Role;

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

/// The file in the data directory.
pub(crate) fn file(data: &Path) -> PathBuf {
    data.join("admin.token")
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
        let text = text.to_owned();
        tokio::task::spawn_blocking(move || write(&path, &text)).await.map_err(std::io::Error::other)?
    };
    records.create_kept(new, keep).await.map_err(|error| match error {
        ChangeError::NotKept(source) => FirstTokenError::File { file: file.to_owned(), source },
        other => FirstTokenError::Store(other),
    })?;
    tracing::info!(file = %file.display(), "made the first token, for an administrator; it is in this file");
    Ok(())
}

/// Replaces the file, so that nobody else ever has it open.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let draft = path.with_extension("token.new");
    if let Err(error) = std::fs::remove_file(&draft)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&draft)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    std::fs::rename(&draft, path)?;
    // The name must be on the disk as well before the token is valid.
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}
