//! `longshore doctor`: what a careful operator would look at: the data directory, the server, its workers, the engine of this machine.

mod engine;
mod peer;

use std::path::PathBuf;

use server::doctor::{self, Finding, Verdict};

use crate::api::Door;
use crate::failure::{Exit, Failure};
use crate::screen::{self, Format, Shape};
use crate::server::Data;

/// Look whether all is well: data directory, server, workers, Docker. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore doctor                                    what there is on this machine
  longshore doctor --data /var/lib/longshore --deep   read every index and all output, too
  longshore doctor --server jobs.example:8080 --token-file api.token -o json

What is named has to be there; of what is not named, only what is there is looked at. Each line that
is not ok has a next step. Exit code 0: nothing has failed; 1: something has.")]
pub(crate) struct Flags {
    #[command(flatten)]
    data: Data,
    /// The server: HOST:PORT, with the base path if it has one, or a URL [default: 127.0.0.1:8080].
    #[arg(long, env = "LONGSHORE_SERVER", value_name = "ADDRESS")]
    server: Option<String>,
    /// A file that holds the token for the API, readable by its owner only.
    #[arg(long, env = "LONGSHORE_API_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Read everything: every index of the store, every record of output. Takes as long as the disk does.
    #[arg(long)]
    deep: bool,
    #[command(flatten)]
    shape: Shape,
}

/// Looks, and says what was seen.
pub(crate) async fn doctor(flags: Flags) -> anyhow::Result<()> {
    let mut findings = Vec::new();
    let data = flags.data.directory();
    if flags.data.is_named() || data.exists() {
        findings.extend(doctor::examine(&data, flags.deep));
    }
    let door = Door::named(flags.server.as_deref(), flags.token_file.as_deref());
    findings.extend(peer::examine(&door, flags.server.is_some()).await);
    findings.push(engine::examine().await);
    tell(&findings, flags.shape.format)?;
    match worst(&findings) {
        Verdict::Fail => Err(Failure::silent(Exit::Failed).into()),
        Verdict::Ok | Verdict::Warn => Ok(()),
    }
}

fn worst(findings: &[Finding]) -> Verdict {
    findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok)
}

fn tell(findings: &[Finding], format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        return screen::json(&serde_json::json!({ "verdict": worst(findings), "findings": findings }));
    }
    for Finding { what, verdict, text, next } in findings {
        screen::line(&format!("{:<5} {what:<12} {}", verdict.name(), screen::visible(text)))?;
        if !next.is_empty() {
            screen::line(&format!("{:<18} next: {}", "", screen::visible(next)))?;
        }
    }
    Ok(())
}
