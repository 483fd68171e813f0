//! `longshore backup`: a copy of everything that a server keeps, taken beside the server, through its data directory.

use std::path::PathBuf;

use server::backup;

use crate::failure::{Exit, Failure};
use crate::screen::{self, Format, Shape};
use crate::server::Data;

/// Copy the store and all output, also while a server is at work.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore backup --data /var/lib/longshore --to /backup/longshore-$(date +%F)
  longshore backup --data /var/lib/longshore --to /backup/longshore --force

Run it on the server's machine, as the server's user. jobs.yaml and token files are not in it.
'longshore restore' puts it back.")]
pub(crate) struct Flags {
    #[command(flatten)]
    data: Data,
    /// The directory to be made. It gets its name when all of it is there, synced and read through.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Replace the backup that is there. It stays until the new one is whole.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    shape: Shape,
}

/// Takes a backup, and says what is in it.
pub(crate) fn backup(flags: Flags) -> anyhow::Result<()> {
    let manifest = backup::take(&flags.data.directory(), &flags.to, flags.force).map_err(told)?;
    match flags.shape.format {
        Format::Json => screen::json(&serde_json::to_value(&manifest)?),
        Format::Table => screen::line(&format!(
            "{}: jobs up to {}, {} of them not ended, {} in {} files",
            screen::visible(&flags.to.display().to_string()),
            manifest.last_job,
            manifest.live_jobs,
            screen::size(manifest.bytes()),
            manifest.files.len(),
        )),
    }
}

/// An error of the server's as the end of a verb.
pub(crate) fn told(error: backup::BackupError) -> anyhow::Error {
    let exit = match error {
        backup::BackupError::InTheWay(_) => Exit::Conflict,
        backup::BackupError::NoBackup(_) => Exit::NotFound,
        backup::BackupError::Store(_) | backup::BackupError::Io { .. } => Exit::Failed,
    };
    let text = format!("{:#}", anyhow::Error::new(error));
    Failure::new(exit, text).into()
}
