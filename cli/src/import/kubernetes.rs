//! CronJobs of Kubernetes: the schedule and the policies here, the pod in `pod`.

mod names;
mod pod;

use super::cron::{self, NoRule};
use super::document::{self, Node};
use super::draft::{Draft, Imported, Note};
use super::source::{Fault, Faults, Source};
use super::span;
use super::yaml::Yaml;

/// Reads manifests.
///
/// # Errors
/// A file holds no CronJob, or one without schedule or container.
pub(super) fn import(sources: &[Source], zone: Option<&str>) -> Result<Imported, Faults> {
    let mut imported = Imported::default();
    for source in sources {
        let documents = document::read(source)?;
        let mut others = Vec::new();
        let before = imported.drafts.len();
        for document in &documents {
            let is_list = document.text_at(&["kind"]).is_some_and(|kind| kind.ends_with("List"));
            let objects: Vec<&Node> = match document.get("items").filter(|_| is_list) {
                Some(items) => items.items().iter().map(|item| &**item).collect(),
                None => vec![document],
            };
            for object in objects.into_iter().filter(|object| !object.is_null()) {
                match object.text_at(&["kind"]) {
                    Some("CronJob") => imported.drafts.push(cron_job(object, source, zone)?),
                    kind => others.push((object.line, kind.unwrap_or("an object without kind").to_owned())),
                }
            }
        }
        if imported.drafts.len() == before {
            let found = others.first().map_or_else(|| "nothing".to_owned(), |(_, kind)| kind.clone());
            let text = format!("no manifest of a CronJob; the file holds {found}");
            return Err(source.fault(0, text).into());
        }
        for (line, kind) in others {
            imported.note(Note::NotTranslated(format!("{}, line {line}: {kind}", source.name)));
        }
    }
    Ok(imported)
}

fn cron_job(object: &Node, source: &Source, zone: Option<&str>) -> Result<Draft, Fault> {
    let missing = |what: &str| source.fault(object.line, format!("the CronJob has no {what}"));
    let name = object.text_at(&["metadata", "name"]).ok_or_else(|| missing("metadata.name"))?;
    let spec = object.get("spec").ok_or_else(|| missing("spec"))?;
    let mut draft = Draft::new(name, source, object.line);
    draft.zone(zone);
    schedule(spec, &mut draft).map_err(|(line, text)| source.fault(line.max(object.line), text))?;
    for pair in object.get("metadata").map_or(&[][..], Node::pairs) {
        match pair.key.as_str() {
            // The cluster wrote these itself.
            "name" | "creationTimestamp" | "generation" | "resourceVersion" | "uid" | "managedFields"
            | "selfLink" => {}
            "labels" => {
                for label in pair.value.pairs() {
                    draft.insert("labels", &label.key, Yaml::text(label.value.text().unwrap_or_default()));
                }
            }
            "namespace" => draft.remark(format!(
                "it was in the namespace {}; definitions have none",
                pair.value.text().unwrap_or_default()
            )),
            key => draft.drop_with_note(format!("line {}: metadata.{key}", pair.line)),
        }
    }
    // The status of an object that was read from a cluster is no wish of its author.
    drop_others(object, &["apiVersion", "kind", "metadata", "spec", "status"], "", &mut draft);
    drop_others(spec, SPEC_KEYS, "spec.", &mut draft);
    let job = spec.at(&["jobTemplate", "spec"]).ok_or_else(|| missing("spec.jobTemplate.spec"))?;
    job_spec(job, &mut draft);
    for (template, path) in
        [(spec.get("jobTemplate"), "jobTemplate."), (job.get("template"), "jobTemplate.spec.template.")]
    {
        let Some(template) = template else { continue };
        drop_others(template, &["spec", "metadata"], path, &mut draft);
        if let Some(metadata) = template.get("metadata") {
            drop_others(metadata, &["creationTimestamp"], &format!("{path}metadata."), &mut draft);
        }
    }
    let pod =
        job.at(&["template", "spec"]).ok_or_else(|| missing("pod: spec.jobTemplate.spec.template.spec"))?;
    pod::read(pod, &mut draft).map_err(|text| source.fault(pod.line, text))?;
    Ok(draft)
}

/// Notes each key that is not known, with its path.
fn drop_others(node: &Node, known: &[&str], path: &str, draft: &mut Draft) {
    for pair in node.pairs().iter().filter(|pair| !known.contains(&pair.key.as_str())) {
        draft.drop_with_note(format!("line {}: {path}{}", pair.line, pair.key));
    }
}

/// Reads the rule and the policies for missed and overlapping fires.
fn schedule(spec: &Node, draft: &mut Draft) -> Result<(), (usize, String)> {
    let node = spec.get("schedule").ok_or((spec.line, "the CronJob has no spec.schedule".to_owned()))?;
    match cron::of_go(node.text().unwrap_or_default()) {
        Ok(rule) => draft.fire(rule.in_zone(spec.text_at(&["timeZone"]).map(str::to_owned))),
        Err(NoRule::NotByClock(text)) => draft.lose_rule(text),
        Err(NoRule::OnRequest) => {}
        Err(NoRule::Wrong(text)) => return Err((node.line, format!("schedule: {text}"))),
    }
    let overlap = match spec.text_at(&["concurrencyPolicy"]) {
        None | Some("Allow") => "allow",
        Some("Forbid") => "skip",
        Some("Replace") => "replace",
        Some(other) => {
            let text =
                format!("concurrencyPolicy \"{other}\" is none; allowed are Allow, Forbid and Replace");
            return Err((spec.line, text));
        }
    };
    draft.set_text("overlap", overlap);
    // A fire that was missed is made up for once, at any time or within the deadline.
    draft.catch_up_latest();
    if let Some(seconds) = spec.text_at(&["startingDeadlineSeconds"]) {
        draft.set_plain("catch_up_window", span::of_seconds(seconds));
    }
    if spec.get("suspend").is_some_and(Node::is_true) {
        draft.set_plain("enabled", false);
    }
    for pair in spec.pairs() {
        if ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"].contains(&pair.key.as_str()) {
            draft.drop_with_note(format!(
                "line {}: {}: \"retention.keep\" says how many ended jobs are kept",
                pair.line, pair.key
            ));
        }
    }
    Ok(())
}

/// How often and how long it is tried.
fn job_spec(job: &Node, draft: &mut Draft) {
    let retries = job.text_at(&["backoffLimit"]).unwrap_or(BACKOFF_LIMIT);
    let backoff =
        [("initial", "10s"), ("max", "6m")].map(|(key, value)| (key.to_owned(), Yaml::plain(value)));
    let mut retry = vec![("max".to_owned(), Yaml::plain(retries))];
    if retries != "0" {
        retry.push(("backoff".to_owned(), Yaml::Map(backoff.to_vec())));
    }
    draft.set("retry", Yaml::Map(retry));
    for pair in job.pairs() {
        match (pair.key.as_str(), pair.value.text()) {
            ("activeDeadlineSeconds", Some(seconds)) => {
                draft.set_plain("timeout", span::of_seconds(seconds));
                draft.remark("activeDeadlineSeconds limits all attempts together, timeout each one");
            }
            ("template" | "backoffLimit", _) => {}
            ("ttlSecondsAfterFinished", _) => draft.drop_with_note(format!(
                "line {}: {}: \"retention.max_age\" says how long an ended job is kept",
                pair.line, pair.key
            )),
            ("parallelism" | "completions", Some("1")) => {}
            ("parallelism" | "completions", Some(count)) => {
                draft.drop_with_note(format!(
                    "line {}: {} of {count}: a job is one container",
                    pair.line, pair.key
                ));
            }
            (key, _) => draft.drop_with_note(format!("line {}: jobTemplate.spec.{key}", pair.line)),
        }
    }
}

/// The keys of a CronJob's `spec` that are read.
const SPEC_KEYS: &[&str] = &[
    "schedule",
    "timeZone",
    "concurrencyPolicy",
    "startingDeadlineSeconds",
    "suspend",
    "successfulJobsHistoryLimit",
    "failedJobsHistoryLimit",
    "jobTemplate",
];
/// Of a Job that gives none.
const BACKOFF_LIMIT: &str = "6";
