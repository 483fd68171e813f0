//! `longshore restore`: replaces the data directory of a stopped server by a backup.

use std::path::PathBuf;

use serde_json::json;
use server::backup::{self, Restored};

use crate::args::OutputArgs;
use crate::backup::failure_from;
use crate::records;
use crate::screen;
use crate::server::DataArgs;

/// Restore a backup into a data directory; the next server there continues from it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore restore --from /backup/longshore-2026-11-20 --data /var/lib/longshore
  longshore restore --from /backup/longshore-2026-11-20 --data /var/lib/longshore --replace

Jobs accepted after the backup are lost, and jobs that ended after it may run again. Containers of
jobs that the backup does not know keep running. New job ids start above those of the replaced
database; if it cannot be read, above all ids that may have been used since the backup.")]
pub(crate) struct Flags {
    /// The backup directory.
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    /// Move the existing database aside, within the data directory. Nothing of it is deleted.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Restores a backup and prints the result.
pub(crate) fn restore(flags: Flags) -> anyhow::Result<()> {
    crate::server::restrict_umask();
    let data = flags.data.directory();
    let restored = backup::restore(&flags.from, &data, flags.replace).map_err(failure_from)?;
    if records::print(flags.output.format, &as_json(&restored), "last_job")? {
        return Ok(());
    }
    let place = data.display().to_string();
    screen::line(&format!(
        "{}: restored from the backup of {}, with jobs up to {}; the next job will be {}",
        screen::visible(&place),
        restored.manifest.made_at,
        restored.manifest.last_job,
        restored.identity.last_job.0 + 1,
    ))?;
    if let Some(aside) = &restored.aside {
        screen::line(&format!("the previous data is in {}", screen::visible(&aside.display().to_string())))?;
    }
    if let Some(why) = &restored.unread {
        screen::line(&format!(
            "it cannot be read, so new job ids start above all that may have been used since the backup: {}",
            screen::visible(why)
        ))?;
    }
    Ok(())
}

fn as_json(restored: &Restored) -> serde_json::Value {
    let mut json = json!({
        "backup": restored.manifest,
        "epoch": restored.identity.epoch.0,
        "last_job": restored.identity.last_job.0,
        "last_fence": restored.identity.last_fence.0,
    });
    if let Some(aside) = &restored.aside {
        json["aside"] = aside.display().to_string().into();
    }
    if let Some(why) = &restored.unread {
        json["unread"] = why.as_str().into();
    }
    json
}
