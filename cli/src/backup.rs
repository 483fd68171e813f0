//! `longshore backup`: copies the data directory of a server, which may be running.

use std::path::{Path, PathBuf};

use server::backup::{self, FailedBackup, LastBackup};

use crate::args::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::records;
use crate::screen;
use crate::server::DataArgs;

/// Copy the database and all job output, also while the server runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore backup --data /var/lib/longshore --to /backup/longshore-$(date +%F)
  longshore backup --data /var/lib/longshore --to /backup/longshore --force

Run it on the server's machine, as the server's user. The server's metrics and 'longshore doctor'
show the last one, and one that failed after it. jobs.yaml and token files are not included.
Restore it with 'longshore restore'.")]
pub(crate) struct Flags {
    #[command(flatten)]
    data: DataArgs,
    /// Directory to create. It appears under this name once it is complete, synced and verified.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Replace an existing backup. It is kept until the new one is complete.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Takes a backup and prints its contents.
pub(crate) fn backup(flags: Flags) -> anyhow::Result<()> {
    let data = flags.data.directory();
    let manifest = backup::take(&data, &flags.to, flags.force)
        .map_err(failure_from)
        .inspect_err(|failure| record_failure(failure, &data, &flags.to))?;
    if let Err(error) = LastBackup::of(&manifest, &flags.to).write(&data) {
        let why = format!("{:#}", anyhow::Error::new(error));
        screen::note(&format!(
            "warning: the backup is complete, but the data directory has no record of it: {why}; the metric and longshore doctor show an older one"
        ));
    }
    if records::print(flags.output.format, &serde_json::to_value(&manifest)?, "cluster")? {
        return Ok(());
    }
    screen::line(&format!(
        "{}: jobs up to {}, {} of them not ended, {} in {} files",
        screen::visible(&flags.to.display().to_string()),
        manifest.last_job,
        manifest.live_jobs,
        screen::size(manifest.bytes()),
        manifest.files.len(),
    ))
}

/// Records a failed backup in the data directory, because nobody may read the error of a command that a timer runs.
fn record_failure(failure: &anyhow::Error, data: &Path, to: &Path) {
    if let Err(error) = FailedBackup::now(&failure.to_string(), to).write(data) {
        let why = format!("{:#}", anyhow::Error::new(error));
        screen::note(&format!(
            "warning: the failure is not recorded: {why}; no metric and no line of longshore doctor shows it"
        ));
    }
}

/// Converts a backup error into a failure with its exit code.
pub(crate) fn failure_from(error: backup::BackupError) -> anyhow::Error {
    let exit = match error {
        backup::BackupError::Occupied(_) => Exit::Conflict,
        backup::BackupError::NoBackup(_) => Exit::NotFound,
        _ => Exit::Failed,
    };
    let text = format!("{:#}", anyhow::Error::new(error));
    Failure::new(exit, text).into()
}
