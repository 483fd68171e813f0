//! Ofelia's jobs: sections of its INI file, and the same keys as labels of containers.

use super::cron::{self, NoRule};
use super::draft::{Draft, Imported, Note};
use super::ini::{self, Entry};
use super::source::{Fault, Faults, Source};
use super::yaml::Yaml;

/// How Ofelia runs a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Inside of a running container.
    Exec,
    /// In a new container.
    Run,
    /// On the machine of Ofelia itself.
    Local,
    /// As a new service of a swarm.
    ServiceRun,
}

impl Kind {
    /// By its name in files and labels.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "job-exec" => Self::Exec,
            "job-run" => Self::Run,
            "job-local" => Self::Local,
            "job-service-run" => Self::ServiceRun,
            _ => return None,
        })
    }
}

/// Reads Ofelia's configuration files.
///
/// # Errors
/// A file is not one, or a job has no schedule.
pub(super) fn import(sources: &[Source], image: &str, zone: Option<&str>) -> Result<Imported, Faults> {
    let mut imported = Imported::default();
    for source in sources {
        let sections = ini::read(source).map_err(|fault| not_ofelia(source, &fault.to_string()))?;
        let before = imported.drafts.len();
        for section in &sections {
            let (kind, name) = section.name.split_once(char::is_whitespace).unwrap_or((&section.name, ""));
            let name = name.trim().trim_matches('"');
            match Kind::of_name(kind) {
                Some(_) if name.is_empty() => {
                    let text = format!("the job has no name; write [{kind} \"name\"]");
                    return Err(source.fault(section.line, text).into());
                }
                Some(kind) => {
                    let mut draft = Draft::new(name, source, section.line);
                    draft.zone(zone);
                    begin(
                        kind,
                        section.last("container").map(|entry| entry.value.as_str()),
                        image,
                        &mut draft,
                    );
                    apply(kind, &section.entries, section.line, source, &mut draft)?;
                    imported.drafts.push(draft);
                }
                None if kind == "global" => {
                    let keys: Vec<&str> = section.entries.iter().map(|entry| entry.key.as_str()).collect();
                    let text = format!(
                        "{}, [global]: {}: \"notify\" of a definition says who is told",
                        source.name,
                        keys.join(", ")
                    );
                    imported.note(Note::NotTranslated(text));
                }
                None => return Err(source.fault(section.line, unknown_section(&section.name)).into()),
            }
        }
        if imported.drafts.len() == before {
            return Err(not_ofelia(source, "no section is a job, such as [job-run \"name\"]").into());
        }
    }
    Ok(imported)
}

fn not_ofelia(source: &Source, why: &str) -> Fault {
    source.fault(0, format!("not a configuration of Ofelia: {why}"))
}

fn unknown_section(name: &str) -> String {
    format!(
        "[{name}] is no section of Ofelia; allowed are global, job-exec, job-run, job-local and job-service-run, the latter four with a name"
    )
}

/// Sets where a job of the configuration file runs.
fn begin(kind: Kind, container: Option<&str>, image: &str, draft: &mut Draft) {
    match kind {
        Kind::Local => draft.set_text("runtime", "process"),
        Kind::Exec => {
            draft.set_text("image", image);
            let container = container.unwrap_or("(none)");
            draft.remark(format!(
                "it ran inside of the running container {container}; here it gets a new container, whose image must be chosen"
            ));
        }
        Kind::Run | Kind::ServiceRun => {}
    }
}

/// Applies the keys of a job.
///
/// # Errors
/// The schedule is missing or wrong, or a command has an open quote.
pub(super) fn apply(
    kind: Kind,
    entries: &[Entry],
    line: usize,
    source: &Source,
    draft: &mut Draft,
) -> Result<(), Fault> {
    draft.set_text("overlap", "allow");
    draft.set_text("catch_up", "none");
    for entry in entries {
        apply_one(kind, entry, source, draft)?;
    }
    let has_schedule = entries.iter().any(|entry| entry.key == "schedule");
    if !has_schedule {
        return Err(source.fault(line, "the job has no schedule; write schedule = @every 1h or 0 0 2 * * *"));
    }
    if kind == Kind::Run && draft.get("image").is_none() {
        draft.drop_with_note(
            "image: the job starts a container that exists already; name the image of it here",
        );
    }
    Ok(())
}

fn apply_one(kind: Kind, entry: &Entry, source: &Source, draft: &mut Draft) -> Result<(), Fault> {
    let value = entry.value.as_str();
    match entry.key.as_str() {
        "schedule" => match cron::of_go(value) {
            Ok(rule) => draft.fire(rule),
            Err(NoRule::NotByClock(text)) => draft.lose_rule(text),
            Err(NoRule::OnRequest) => draft.remark("it has no schedule; \"longshore run\" runs it"),
            Err(NoRule::Wrong(text)) => return Err(source.fault(entry.line, format!("schedule: {text}"))),
        },
        "command" | "entrypoint" => {
            let words = shell_words::split(value)
                .map_err(|_| source.fault(entry.line, format!("{}: a quote is not closed", entry.key)))?;
            // A command in a running container does not go through the entrypoint of its image.
            let replaces_entrypoint =
                entry.key == "entrypoint" || (kind == Kind::Exec && draft.get("entrypoint").is_some());
            draft.set(if replaces_entrypoint { "entrypoint" } else { "command" }, Yaml::texts(words));
        }
        "image" => draft.set_text("image", value),
        "user" => draft.set_text("user", value),
        "dir" | "working-dir" | "workdir" => draft.set_text("working_dir", value),
        "network" => draft.set_text("network", value),
        "volume" => texts(value).into_iter().for_each(|volume| draft.push("volumes", Yaml::text(volume))),
        "environment" | "env" => {
            for variable in texts(value) {
                match variable.split_once('=') {
                    Some((name, value)) => draft.insert("environment", name, Yaml::text(value)),
                    None => draft.insert(
                        "environment",
                        variable.clone(),
                        Yaml::Template(format!("${{{variable}}}")),
                    ),
                }
            }
        }
        "no-overlap" if is_true(value) => draft.set_text("overlap", "skip"),
        "no-overlap" => {}
        "hostname" if kind == Kind::Run => draft.set_text("hostname", value),
        "delete" | "tty" | "container" | "hostname" | "name" if !is_worth_a_word(kind, entry) => {}
        "pull" if is_true(value) => draft.set_text("pull_policy", "always"),
        "pull" => {}
        key => draft.drop_with_note(format!("line {}: {key} = {value}", entry.line)),
    }
    Ok(())
}

/// True if a key that mostly changes nothing does so here.
fn is_worth_a_word(kind: Kind, entry: &Entry) -> bool {
    match entry.key.as_str() {
        "delete" => !is_true(&entry.value),
        "tty" => is_true(&entry.value),
        "container" => kind == Kind::Run,
        "hostname" => true,
        _ => false,
    }
}

fn is_true(value: &str) -> bool {
    ["true", "1", "yes", "on"].contains(&value.to_ascii_lowercase().as_str())
}

/// One text, or the texts of a JSON list, as labels have them.
fn texts(value: &str) -> Vec<String> {
    serde_json::from_str(value).unwrap_or_else(|_| vec![value.trim_matches('"').to_owned()])
}
