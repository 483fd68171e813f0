//! `longshore import`: a jobs.yaml from the files of other schedulers.
//!
//! Each kind of file has its importer, which makes drafts of definitions. Nothing is dropped silently: what has no counterpart becomes a comment
//! above its definition. The server's own reader judges every key, so that the result passes `longshore validate`.

mod admit;
mod compose;
mod cron;
mod crontab;
mod document;
mod draft;
mod host;
mod ini;
mod kubernetes;
mod names;
mod ofelia;
mod source;
mod span;
mod systemd_timer;
mod yaml;

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::failure::{Exit, Failure};
use crate::screen;
use crontab::Users;
use draft::{Draft, Imported, Note};
use host::{Host, Runtime};
use source::{Faults, Source};
use yaml::Yaml;

/// Write a jobs.yaml from a crontab, a compose file, systemd timers and the like.
///
/// Things without a counterpart become comments that begin with "Not translated". Needs no server.
#[derive(Debug, clap::Args)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "Examples:
  crontab -l | longshore import crontab - > jobs.yaml
  longshore import compose docker-compose.yml -o jobs.yaml
  longshore import systemd-timer backup.timer backup.service --runtime process
  longshore import crontab web1.cron --user root --runtime process --worker web1 -o web1.yaml
  longshore import crontab control.cron --user root --runtime process --replace-ssh -o jobs.yaml

Look at the comments, then check the file with 'longshore validate jobs.yaml'.")]
pub(crate) struct Flags {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, clap::Subcommand)]
enum Kind {
    /// A user's crontab, or with --system one with a column for users.
    Crontab(CrontabFlags),
    /// The configuration of Ofelia.
    Ofelia(OfeliaFlags),
    /// A compose file: a definition for each service, with schedules from the labels of Ofelia and swarm-cronjob.
    Compose(FileFlags),
    /// Timers and services of systemd.
    SystemdTimer(HostFlags),
    /// CronJobs of Kubernetes.
    KubernetesCronjob(FileFlags),
}

#[derive(Debug, clap::Args)]
struct FileFlags {
    /// The files; - is standard input.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write the jobs file to this path and not to standard output.
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite the file behind --output.
    #[arg(long, requires = "output")]
    force: bool,
    /// The time zone of rules that name none, such as Europe/Berlin.
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// Run the jobs on this worker, by its name or id, and on no other.
    #[arg(long, value_name = "WORKER", value_parser = admit::parse_worker)]
    worker: Option<String>,
}

#[derive(Debug, clap::Args)]
struct HostFlags {
    #[command(flatten)]
    files: FileFlags,
    /// Run the commands in containers of this image.
    #[arg(long, value_name = "IMAGE", default_value = admit::PLACEHOLDER_IMAGE)]
    image: String,
    /// Run the commands in containers, or as plain processes on a worker's machine.
    #[arg(long, value_enum, default_value_t)]
    runtime: Runtime,
}

#[derive(Debug, clap::Args)]
struct CrontabFlags {
    #[command(flatten)]
    host: HostFlags,
    /// The file has a column for users, as /etc/crontab and /etc/cron.d have it.
    #[arg(long)]
    system: bool,
    /// The user whose crontab it is. A plain process of another user than root is written as disabled.
    #[arg(long, value_name = "NAME", value_parser = parse_user, conflicts_with = "system")]
    user: Option<String>,
    /// Make a command that only calls 'ssh HOST' a job of the worker HOST, without ssh.
    #[arg(long)]
    replace_ssh: bool,
}

#[derive(Debug, clap::Args)]
struct OfeliaFlags {
    #[command(flatten)]
    files: FileFlags,
    /// The image for jobs that ran inside of a running container.
    #[arg(long, value_name = "IMAGE", default_value = admit::PLACEHOLDER_IMAGE)]
    image: String,
}

impl From<&HostFlags> for Host {
    fn from(flags: &HostFlags) -> Self {
        Self { runtime: flags.runtime, image: flags.image.clone(), zone: flags.files.timezone.clone() }
    }
}

/// Reads the files and writes the jobs file.
pub(crate) fn import(flags: &Flags) -> anyhow::Result<()> {
    match &flags.kind {
        Kind::Crontab(kind) => {
            let host = Host::from(&kind.host);
            let users = if kind.system { Users::Column } else { Users::Owner(kind.user.clone()) };
            convert("crontab", &kind.host.files, |sources| {
                crontab::import(sources, &host, &users, kind.replace_ssh)
            })?;
            if users.are_unknown(&host) {
                screen::note("all of them are disabled: --user NAME says whose crontab it is");
            }
            Ok(())
        }
        Kind::Ofelia(kind) => {
            let zone = kind.files.timezone.as_deref();
            convert("ofelia", &kind.files, |sources| ofelia::import(sources, &kind.image, zone))
        }
        Kind::Compose(files) => {
            convert("compose", files, |sources| compose::import(sources, files.timezone.as_deref()))
        }
        Kind::SystemdTimer(kind) => {
            let host = Host::from(kind);
            convert("systemd-timer", &kind.files, |sources| systemd_timer::import(sources, &host))
        }
        Kind::KubernetesCronjob(files) => convert("kubernetes-cronjob", files, |sources| {
            kubernetes::import(sources, files.timezone.as_deref())
        }),
    }
}

/// Reads the name of a user, without a group.
fn parse_user(text: &str) -> Result<String, String> {
    let is_name =
        !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == ':');
    if is_name { Ok(text.to_owned()) } else { Err("write the name of one user, such as deploy".to_owned()) }
}

fn convert(
    kind: &str,
    flags: &FileFlags,
    import: impl FnOnce(&[Source]) -> Result<Imported, Faults>,
) -> anyhow::Result<()> {
    if let Some(zone) = &flags.timezone {
        server::config::next_slots::check_zone(zone).map_err(|why| Failure::new(Exit::Usage, why))?;
    }
    let sources = flags.files.iter().map(|path| Source::read(path)).collect::<Result<Vec<_>, _>>()?;
    let mut imported = import(&sources).map_err(Faults::into_failure)?;
    if flags.timezone.is_none() && imported.drafts.iter().any(Draft::fires_without_zone) {
        let text = "rules without a time zone are in UTC here, and were in the local time of their machine; --timezone ZONE names it";
        imported.note(Note::Remark(text.to_owned()));
    }
    if let Some(worker) = &flags.worker {
        let unplaced = imported.drafts.iter_mut().filter(|draft| draft.get("workers").is_none());
        unplaced.for_each(|draft| draft.set("workers", Yaml::texts([worker])));
    }
    let is_unplaced =
        imported.ran_on_a_machine(kind) && imported.drafts.iter().any(|draft| draft.get("workers").is_none());
    if is_unplaced {
        let text = "commands that ran on one machine run here on any worker; --worker NAME names the worker of that machine";
        imported.note(Note::Remark(text.to_owned()));
    }
    admit::admit(&mut imported);
    let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
    let head = format!("Written by \"longshore import {kind}\" from {}.", names.join(", "));
    let text = imported.write(&head);
    match &flags.output {
        Some(path) => save(path, &text, flags.force)?,
        None => screen::raw(text.as_bytes())?,
    }
    let unplaced = if is_unplaced { "; jobs run on any worker (--worker NAME names one)" } else { "" };
    screen::note(&format!("{}{unplaced}", summary(imported.drafts.len(), imported.count_lost())));
    Ok(())
}

fn summary(definitions: usize, lost: usize) -> String {
    let plural = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let comments = match lost {
        0 => "everything is translated".to_owned(),
        lost => format!("{} in comments that begin with \"Not translated\"", plural(lost, "thing")),
    };
    format!("{}; {comments}", plural(definitions, "definition"))
}

fn save(path: &Path, text: &str, overwrites: bool) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).truncate(overwrites).create(overwrites).create_new(!overwrites);
    let opened = options.open(path);
    if opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists) {
        let text = format!("{} exists already", path.display());
        return Err(Failure::new(Exit::Conflict, text).hint("--force overwrites it").into());
    }
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs every importer over a text; a result must be a jobs file for the server's reader.
    fn import_as_everything(text: &str, name: &str) {
        let sources = [Source { name: name.to_owned(), path: None, text: text.to_owned() }];
        let host = Host { runtime: Runtime::Docker, image: "busybox".to_owned(), zone: None };
        for imported in [
            crontab::import(&sources, &host, &Users::Owner(None), true),
            crontab::import(&sources, &host, &Users::Column, false),
            ofelia::import(&sources, "busybox", None),
            compose::import(&sources, None),
            systemd_timer::import(&sources, &host),
            kubernetes::import(&sources, None),
        ] {
            let Ok(mut imported) = imported else { continue };
            admit::admit(&mut imported);
            let text = imported.write("test");
            assert!(imported.drafts.is_empty() || text.contains("jobs:\n  #"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_an_importer_panic(text in "\\PC{0,60}|([a-z0-9*@=%$(){}\\[\\]:/\"'.,~ \\n-]{0,80})") {
            import_as_everything(&text, "a.service");
        }

        #[test]
        fn no_value_makes_an_importer_panic(value in "[a-zA-Z0-9*@=%$(){}:/\"'.,~;+!|\\\\ -]{0,30}") {
            for text in [
                format!("* * * * * {value}\nA={value}\n{value} x\n"),
                format!("[job-run \"{value}\"]\nschedule = @daily\ncommand = {value}\nvolume = {value}\n"),
                format!("[Service]\nType=oneshot\nExecStart={value}\nEnvironment={value}\nTimeoutSec={value}\nCPUQuota={value}%\n"),
                format!("[Timer]\nOnCalendar={value}\nOnUnitActiveSec={value}\nRandomizedDelaySec={value}\n"),
                format!("services:\n  a:\n    image: '{0}'\n    command: '{0}'\n    cpus: '{0}'\n    volumes: ['{0}']\n", value.replace('\'', "''")),
                format!("kind: CronJob\nmetadata: {{name: a}}\nspec:\n  schedule: '@daily'\n  jobTemplate: {{spec: {{template: {{spec: {{containers: [{{image: '{0}', args: ['{0}'], resources: {{limits: {{cpu: '{0}', memory: '{0}'}}}}}}]}}}}}}}}\n", value.replace('\'', "''")),
            ] {
                import_as_everything(&text, "a.service");
            }
        }
    }
}
