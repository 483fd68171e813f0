//! `longshore restore`: a backup takes the place of what a server kept. The server is stopped meanwhile.

use std::path::PathBuf;

use serde_json::json;
use server::backup::{self, Restored};

use crate::backup::told;
use crate::screen::{self, Format, Shape};
use crate::server::Data;

/// Put a backup into a data directory; the next server there goes on from it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore restore --from /backup/longshore-2026-11-20 --data /var/lib/longshore
  longshore restore --from /backup/longshore-2026-11-20 --data /var/lib/longshore --replace

What was accepted after the backup is not in it, and what ended after it may run again. Containers
of jobs that the backup does not know are left alone. Numbers of jobs go on beyond those of the
store that is replaced; where there is none that can be read, beyond as many as can have been given
since the backup.")]
pub(crate) struct Flags {
    /// The backup.
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    #[command(flatten)]
    data: Data,
    /// Move the store that is there aside, within the data directory. Nothing of it is deleted.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    shape: Shape,
}

/// Restores, and says what was done.
pub(crate) fn restore(flags: Flags) -> anyhow::Result<()> {
    crate::server::keep_to_ourselves();
    let data = flags.data.directory();
    let restored = backup::restore(&flags.from, &data, flags.replace).map_err(told)?;
    match flags.shape.format {
        Format::Json => screen::json(&as_json(&restored)),
        Format::Table => {
            let place = data.display().to_string();
            screen::line(&format!(
                "{}: restored from the backup of {}, with jobs up to {}; the next job will be {}",
                screen::visible(&place),
                restored.manifest.made_at,
                restored.manifest.last_job,
                restored.identity.last_job.0 + 1,
            ))?;
            if let Some(aside) = &restored.aside {
                screen::line(&format!(
                    "what was there is in {}",
                    screen::visible(&aside.display().to_string())
                ))?;
            }
            if let Some(why) = &restored.unread {
                screen::line(&format!(
                    "it cannot be read, so numbers go on beyond as many as can have been given since the backup: {}",
                    screen::visible(why)
                ))?;
            }
            Ok(())
        }
    }
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
