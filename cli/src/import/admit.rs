//! Keeps of each imported definition only what the server's reader accepts, so that the written file passes `longshore validate`.
//!
//! The rules of jobs.yaml are not repeated here: each key is added to a small jobs file, and the server's reader judges it. A refused key becomes
//! a comment with the reader's own reason. Of lists and maps only the refused entries are left out.

use std::path::Path;

use server::config::jobs_file::{self, Environment, FaultCode};

use super::draft::{self, Draft, Imported};
use super::names::Names;
use super::yaml::Yaml;

/// Makes every definition valid, and gives each a name of its own.
pub(super) fn admit(imported: &mut Imported) {
    let mut names = Names::default();
    for draft in &mut imported.drafts {
        let name = names.unique(&draft.name);
        if name != draft.name {
            draft.name = name;
        }
        admit_draft(draft);
    }
}

/// Reads the name or the id of a worker.
pub(super) fn parse_worker(text: &str) -> Result<String, String> {
    let probe = Probe { accepted: Vec::new(), unchecked: Vec::new() };
    let judged = probe.judge("workers", &Yaml::texts([text]));
    judged.map(|()| text.to_owned()).map_err(|refusal| refusal.text)
}

fn admit_draft(draft: &mut Draft) {
    let keys = draft.take_keys();
    let mut probe = Probe { accepted: Vec::new(), unchecked: vec![FILES] };
    // The runtime decides which other keys are allowed.
    let (runtime, others): (Vec<_>, Vec<_>) = keys.iter().partition(|(key, _)| *key == "runtime");
    for (key, value) in runtime.into_iter().chain(others) {
        if OF_TIME.contains(key) && *key != "schedule" && !probe.has("schedule") {
            continue;
        }
        if let Err(reason) = probe.take(key, value) {
            for (part, reason) in
                probe.take_parts(key, value).unwrap_or_else(|| vec![(String::new(), reason)])
            {
                draft.drop_with_note(format!("{key}{part}: {reason}"));
            }
        }
    }
    let is_refused = |key: &str| keys.iter().any(|(known, _)| *known == key) && !probe.has(key);
    let needs_image = !probe.is_process() && !probe.has("image");
    if is_refused("schedule") || is_refused("command") || needs_image {
        draft.set_plain("enabled", false);
    }
    if needs_image {
        draft.set_text("image", PLACEHOLDER_IMAGE);
        draft.remark(format!("no image is known; {PLACEHOLDER_IMAGE} holds its place"));
    }
    if probe.is_process() && !probe.has("command") {
        draft.set("command", Yaml::texts(["false"]));
    }
    for (key, value) in probe.accepted {
        // Keys that were set above go before those that were found.
        if draft.get(key).is_none() {
            draft.set(key, value);
        }
    }
    let ordered = draft.take_keys();
    ordered.into_iter().for_each(|(key, value)| draft.set(key, value));
}

/// A job that grows by what the reader accepts.
struct Probe {
    accepted: Vec<(&'static str, Yaml)>,
    /// Keys among the accepted that the reader was not asked about, and must not meet.
    unchecked: Vec<&'static str>,
}

/// The reader's first fault.
struct Refusal {
    code: Option<FaultCode>,
    text: String,
}

impl Probe {
    fn has(&self, key: &str) -> bool {
        self.accepted.iter().any(|(known, _)| *known == key)
    }

    fn is_process(&self) -> bool {
        self.accepted.contains(&("runtime", Yaml::text("process")))
    }

    /// Adds the key, unless the reader refuses it.
    fn take(&mut self, key: &'static str, value: &Yaml) -> Result<(), String> {
        if !self.unchecked.contains(&key)
            && let Err(refusal) = self.judge(key, value)
        {
            // A server without schedules knows these keys as planned ones. They are written all the same.
            let is_planned = refusal.code == Some(FaultCode::UnsupportedField) && OF_TIME.contains(&key);
            if !is_planned {
                return Err(refusal.text);
            }
            self.unchecked.push(key);
        }
        self.accepted.push((key, value.clone()));
        Ok(())
    }

    /// Adds the entries that the reader accepts; the others with the reader's reasons. Nothing if the value has no entries to choose from.
    fn take_parts(&mut self, key: &'static str, value: &Yaml) -> Option<Vec<(String, String)>> {
        let mut refused = Vec::new();
        let kept = match value {
            // A command with a word less is another command.
            Yaml::List(_) if ["command", "entrypoint"].contains(&key) => return None,
            Yaml::List(items) => {
                let mut kept = Vec::new();
                for item in items {
                    let add = |item: Yaml| Yaml::List(kept.iter().cloned().chain([item]).collect());
                    kept.extend(self.without_jitter(key, item, add, &mut refused));
                }
                (!kept.is_empty()).then_some(Yaml::List(kept))
            }
            Yaml::Map(_) if key == "schedule" => self.without_jitter(key, value, |rule| rule, &mut refused),
            Yaml::Map(pairs) if MAPS.contains(&key) => {
                let mut kept = Vec::new();
                for pair in pairs {
                    kept.push(pair.clone());
                    if let Err(refusal) = self.judge(key, &Yaml::Map(kept.clone())) {
                        kept.pop();
                        refused.push((format!(".{}", pair.0), refusal.text));
                    }
                }
                (!kept.is_empty()).then_some(Yaml::Map(kept))
            }
            _ => return None,
        };
        self.accepted.extend(kept.map(|kept| (key, kept)));
        Some(refused)
    }

    /// The entry as the reader accepts it: as it is, as a rule without its jitter, or not at all. `whole` makes the value that is judged.
    fn without_jitter(
        &self,
        key: &'static str,
        item: &Yaml,
        whole: impl Fn(Yaml) -> Yaml,
        refused: &mut Vec<(String, String)>,
    ) -> Option<Yaml> {
        let Err(refusal) = self.judge(key, &whole(item.clone())) else { return Some(item.clone()) };
        let mut rule = item.clone();
        if let Yaml::Map(pairs) = &mut rule {
            pairs.retain(|(name, _)| name != "jitter");
        }
        let is_for_jitter = rule != *item && self.judge(key, &whole(rule.clone())).is_ok();
        refused.push((if is_for_jitter { ".jitter" } else { "" }.to_owned(), refusal.text));
        is_for_jitter.then_some(rule)
    }

    /// Asks the reader about the job with this key added.
    fn judge(&self, key: &'static str, value: &Yaml) -> Result<(), Refusal> {
        let mut keys: Vec<_> =
            self.accepted.iter().filter(|(key, _)| !self.unchecked.contains(key)).cloned().collect();
        keys.push((key, value.clone()));
        let has = |wanted: &str| keys.iter().any(|(key, _)| *key == wanted);
        let (has_image, has_command) = (has("image"), has("command"));
        let is_process = keys.contains(&("runtime", Yaml::text("process")));
        if !is_process && !has_image {
            keys.push(("image", Yaml::text(PLACEHOLDER_IMAGE)));
        }
        if is_process && !has_command {
            keys.push(("command", Yaml::texts(["true"])));
        }
        let mut text = String::from("jobs:\n");
        draft::write_job(&mut text, "probe", &keys);
        let variables = variables(&text);
        let judge = |value: &str| {
            let environment: Environment =
                variables.iter().map(|name| ((*name).to_owned(), value.to_owned())).collect();
            jobs_file::parse(&text, Path::new("jobs.yaml"), &environment).map(drop)
        };
        // A variable may stand for a number, a path, a size or a switch; which, only the reader knows.
        let first = match judge(STAND_INS[0]) {
            Ok(()) => return Ok(()),
            Err(faults) => faults,
        };
        if !variables.is_empty() && STAND_INS[1..].iter().any(|value| judge(value).is_ok()) {
            return Ok(());
        }
        let fault = first.list.first();
        let text = fault.map_or("", |fault| &fault.text);
        // The comment that quotes the text names the key already.
        let text = text.strip_prefix(key).and_then(|text| text.strip_prefix(": ")).unwrap_or(text);
        Err(Refusal { code: fault.map(|fault| fault.code), text: text.to_owned() })
    }
}

/// The names in all `${NAME}` of a text.
fn variables(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        let after = &rest[dollar + 1..];
        rest = match (after.strip_prefix('$'), after.strip_prefix('{')) {
            (Some(after), _) => after,
            (_, Some(after)) => {
                let (name, after) = after.split_once('}').unwrap_or((after, ""));
                names.push(name);
                after
            }
            _ => after,
        };
    }
    names
}

/// Stands where an image is needed and none is known.
pub(super) const PLACEHOLDER_IMAGE: &str = "busybox";
/// Maps whose entries stand for themselves.
const MAPS: [&str; 4] = ["environment", "labels", "resources", "requires"];
/// The key whose files need not be on this machine.
const FILES: &str = "env_file";
/// The schedule, and keys that mean nothing without one.
const OF_TIME: [&str; 4] = ["schedule", "overlap", "catch_up", "catch_up_window"];
/// Values that stand for variables while the reader judges.
const STAND_INS: [&str; 4] = ["1", "/x", "1g", "true"];
