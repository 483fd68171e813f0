//! Labels of services: some make schedules, the others stay labels.

use super::super::cron::{self, NoRule};
use super::super::document::{Node, Pair};
use super::super::draft::{Draft, Imported, Note};
use super::super::ini::Entry;
use super::super::ofelia::{self, Kind};
use super::super::source::Fault;
use super::super::yaml::Yaml;
use super::project::Project;
use super::service;

/// Reads a service with its labels: a definition for itself, and one for each of Ofelia's jobs.
///
/// # Errors
/// A label holds a schedule that is none.
pub(super) fn import(project: &Project<'_>, pair: &Pair, imported: &mut Imported) -> Result<(), Fault> {
    let own = read(pair.value.get("labels"));
    let of_deploy = read(pair.value.at(&["deploy", "labels"]));
    let mut draft = service::read(project, pair);
    let ofelia = OfeliaJob::all(&own);
    for label in &own {
        if !label.name.starts_with("ofelia.") && !label.name.starts_with(SWARM) {
            let value = service::template(&label.value, &mut draft);
            draft.insert("labels", label.name.clone(), value);
        }
    }
    let swarm: Vec<&Label> =
        own.iter().chain(&of_deploy).filter(|label| label.name.starts_with(SWARM)).collect();
    let without_schedule = draft.clone();
    apply_swarm(&swarm, project, &mut draft)?;
    let is_ofelia_itself = pair.value.text_at(&["image"]).is_some_and(|image| image.contains("ofelia"));
    if is_ofelia_itself {
        let text =
            format!("{}, line {}: the service {} is Ofelia itself", project.source.name, pair.line, pair.key);
        imported.note(Note::NotTranslated(text));
    } else {
        imported.drafts.push(draft.clone());
    }
    for job in &ofelia {
        imported.drafts.push(job.read(project, &without_schedule)?);
    }
    Ok(())
}

/// A label with its line.
struct Label {
    name: String,
    value: String,
    line: usize,
}

/// Labels as a map, or as a list of `name=value`.
fn read(node: Option<&Node>) -> Vec<Label> {
    let Some(node) = node else { return Vec::new() };
    let of_map = node.pairs().iter().map(|pair| Label {
        name: pair.key.clone(),
        value: pair.value.text().unwrap_or_default().to_owned(),
        line: pair.line,
    });
    let of_list = node.items().iter().filter_map(|item| {
        let (name, value) = item.text()?.split_once('=').unwrap_or((item.text()?, ""));
        Some(Label { name: name.to_owned(), value: value.to_owned(), line: item.line })
    });
    of_map.chain(of_list).collect()
}

/// One of Ofelia's jobs: the labels `ofelia.KIND.NAME.KEY` of a service.
struct OfeliaJob {
    kind: Kind,
    name: String,
    entries: Vec<Entry>,
}

impl OfeliaJob {
    fn all(labels: &[Label]) -> Vec<Self> {
        let mut jobs: Vec<Self> = Vec::new();
        for label in labels {
            let mut parts = label.name.splitn(4, '.').skip(1);
            let (Some(kind), Some(name), Some(key)) =
                (parts.next().and_then(Kind::of_name), parts.next(), parts.next())
            else {
                continue;
            };
            let value = label.value.replace("$$", "$");
            let entry = Entry { key: key.to_owned(), value, line: label.line };
            match jobs.iter_mut().find(|job| job.kind == kind && job.name == name) {
                Some(job) => job.entries.push(entry),
                None => jobs.push(Self { kind, name: name.to_owned(), entries: vec![entry] }),
            }
        }
        jobs
    }

    fn read(&self, project: &Project<'_>, of_service: &Draft) -> Result<Draft, Fault> {
        let line = self.entries.first().map_or(0, |entry| entry.line);
        let mut draft = match self.kind {
            Kind::Exec => in_new_container(of_service.clone(), self, project, line),
            Kind::Run => {
                self.of_container(project).unwrap_or_else(|| Draft::new(&*self.name, project.source, line))
            }
            Kind::Local | Kind::ServiceRun => Draft::new(&*self.name, project.source, line),
        };
        if self.kind == Kind::Local {
            draft.set_text("runtime", "process");
        }
        draft.zone(project.zone);
        ofelia::apply(self.kind, &self.entries, line, project.source, &mut draft)?;
        Ok(draft)
    }

    /// The definition of the service whose container the job starts.
    fn of_container(&self, project: &Project<'_>) -> Option<Draft> {
        let container = &self.entries.iter().find(|entry| entry.key == "container")?.value;
        let is_meant = |pair: &&Pair| {
            pair.key == *container || pair.value.text_at(&["container_name"]) == Some(container.as_str())
        };
        let pair = project.services.pairs().iter().find(is_meant)?;
        let mut draft = service::read(project, pair);
        draft.name.clone_from(&self.name);
        Some(draft)
    }
}

/// A job that ran inside of a service's container gets a container of its own, with the same keys.
fn in_new_container(mut draft: Draft, job: &OfeliaJob, project: &Project<'_>, line: usize) -> Draft {
    let service = std::mem::replace(&mut draft.name, job.name.clone());
    draft.origin = format!("{}, line {line}", project.source.name);
    draft.notes.clear();
    draft.unset("command");
    // Its restarts are those of the service, not of a command in it.
    draft.unset("retry");
    // The command goes around the entrypoint of the image: an empty one is replaced by it.
    draft.set("entrypoint", Yaml::List(Vec::new()));
    draft.remark(format!(
        "it ran inside of the running container of {service}; here it gets a new container of the same image"
    ));
    draft
}

/// The labels of swarm-cronjob.
fn apply_swarm(labels: &[&Label], project: &Project<'_>, draft: &mut Draft) -> Result<(), Fault> {
    if labels.is_empty() {
        return Ok(());
    }
    // Without the other label, a new fire replaces the task that still runs.
    draft.set_text("overlap", "replace");
    draft.set_text("catch_up", "none");
    for label in labels {
        match &label.name[SWARM.len()..] {
            "schedule" => match cron::of_go(&label.value) {
                Ok(rule) => draft.fire(rule),
                Err(NoRule::NotByClock(text)) => draft.lose_rule(text),
                Err(NoRule::OnRequest) => {}
                Err(NoRule::Wrong(text)) => {
                    return Err(project.source.fault(label.line, format!("{}: {text}", label.name)));
                }
            },
            "skip-running" if label.value == "true" => draft.set_text("overlap", "skip"),
            "enable" if label.value == "false" => draft.set_plain("enabled", false),
            "enable" | "skip-running" | "registry-auth" | "query-registry" => {}
            "replicas" if label.value == "1" => {}
            _ => draft.drop_with_note(format!("line {}: {} = {}", label.line, label.name, label.value)),
        }
    }
    Ok(())
}

const SWARM: &str = "swarm.cronjob.";
