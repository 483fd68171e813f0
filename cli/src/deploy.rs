//! `longshore deploy`: replaces the jobs file of the server, and loads it.

use std::path::PathBuf;

use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use server::http::present::shapes::Deployed;

use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::plan;
use crate::records;
use crate::screen;

/// Replace the jobs file of the server by this one, and load it. A file with errors changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore deploy jobs.yaml
  longshore deploy jobs.yaml --dry-run       changes nothing; exits with 0 if a deploy would succeed
  longshore deploy jobs.yaml --expect 8230dfc31a74e134241c862845388210
  longshore deploy jobs.yaml --reason 'merge request 41'
  git show v41:jobs.yaml | longshore deploy -

The server must run with --allow-deploy. It parses the file as its reload would. Files of env_file are those of the server.
Nothing is asked: definitions that the file does not have are removed, as many as --max-removed allows.")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// The jobs file; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Deploy only if the present definitions have this revision, which longshore plan and the last deploy print.
    #[arg(long, value_name = "REVISION")]
    expect: Option<String>,
    /// Refuse a file that would remove more definitions than this: it may be the wrong one.
    #[arg(long, value_name = "N")]
    max_removed: Option<u64>,
    /// Only check what a deploy would do, and print it.
    #[arg(long)]
    dry_run: bool,
    /// Why, such as a commit or a merge request: 1 to 300 characters in one line, which longshore changes shows with your name.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Sends the file, and prints what has changed.
pub(crate) async fn deploy(flags: Flags) -> anyhow::Result<()> {
    if flags.file.is_dir() {
        let shown = flags.file.display();
        return Err(
            Failure::new(Exit::Usage, format!("{shown} is a directory; a deploy takes one file")).into()
        );
    }
    let text = files::read_jobs_file(&flags.file)?;
    let api = Api::new(&flags.common.server_args)?;
    let mut request = api.request(Method::PUT, &["api", "definitions"]);
    if let Some(revision) = &flags.expect {
        request = request.query(&[("expect", revision)]);
    }
    if let Some(max) = flags.max_removed {
        request = request.query(&[("max_removed", max)]);
    }
    if let Some(reason) = &flags.reason {
        request = request.query(&[("reason", reason)]);
    }
    if flags.dry_run {
        request = request.query(&[("dry_run", "1")]);
    }
    let answer = api.json(request.header(CONTENT_TYPE, "application/yaml").body(text)).await;
    let json = answer.map_err(|error| plan::with_file_name(error, &flags.file))?;
    if records::print(flags.common.format, &json, "revision")? {
        return Ok(());
    }
    let deployed: Deployed = api::parse(&api, &json)?;
    plan::print_changes(&deployed.plan, &flags.file)?;
    for line in totals(&deployed) {
        screen::line(&screen::visible(&line))?;
    }
    Ok(())
}

fn totals(deployed: &Deployed) -> Vec<String> {
    let Deployed { plan, dry_run, previous_file, .. } = deployed;
    let policy = if deployed.policy_changed { "; the policy has changed" } else { "" };
    let counts = format!("{}{policy}", plan::counts(plan));
    if *dry_run {
        return vec![format!("{counts}; nothing was changed, present revision {}", plan.current_revision)];
    }
    let before = match plan::has_changes(plan) {
        true => format!(", before {}", plan.current_revision),
        false => String::new(),
    };
    let deployed = format!("{counts}; deployed revision {}{before}", plan.revision);
    let former = previous_file
        .as_ref()
        .map(|file| format!("the former text is in {file}, beside the jobs file of the server"));
    std::iter::once(deployed).chain(former).collect()
}
