//! A definition while it is imported: its keys, its rules in time, and what is said about it in comments.
//!
//! Importers add what they find and do not check values. [`super::admit`] asks the server's own reader for that.

use super::source::Source;
use super::yaml::{self, Yaml};

/// Everything that goes into the new jobs file.
#[derive(Debug, Default)]
pub(super) struct Imported {
    /// About the file as a whole.
    pub(super) notes: Vec<Note>,
    pub(super) drafts: Vec<Draft>,
}

/// A comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// Something of the old file that is not in the new one.
    NotTranslated(String),
    /// Something that is in the new file, but works in another way.
    Remark(String),
}

impl Note {
    /// The comment's text.
    pub(super) fn text(&self) -> String {
        match self {
            Self::NotTranslated(text) => format!("Not translated: {text}"),
            Self::Remark(text) => format!("Note: {text}"),
        }
    }
}

/// A definition in the making.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    /// Made valid and unique when the file is written.
    pub(super) name: String,
    /// The file and the line that it comes from.
    pub(super) origin: String,
    pub(super) notes: Vec<Note>,
    keys: Vec<(&'static str, Yaml)>,
    rules: Vec<Rule>,
    zone: Option<String>,
    jitter: Option<String>,
    has_lost_rule: bool,
}

/// A rule in time: a cron expression or an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    kind: &'static str,
    value: String,
    zone: Option<String>,
}

impl Rule {
    /// By a cron expression.
    pub(super) fn cron(expression: impl Into<String>) -> Self {
        Self { kind: "cron", value: expression.into(), zone: None }
    }

    /// Again and again, with this number of milliseconds between.
    pub(super) fn every(millis: u64) -> Self {
        Self { kind: "every", value: super::span::shown(millis), zone: None }
    }

    /// Once, at a local date and time.
    pub(super) fn at(date_and_time: impl Into<String>) -> Self {
        Self { kind: "at", value: date_and_time.into(), zone: None }
    }

    /// In this time zone.
    pub(super) fn in_zone(mut self, zone: Option<String>) -> Self {
        self.zone = zone.or(self.zone);
        self
    }
}

impl Draft {
    /// A definition of this name, from a line of a file.
    pub(super) fn new(name: impl Into<String>, source: &Source, line: usize) -> Self {
        Self {
            name: name.into(),
            origin: format!("{}, line {line}", source.name),
            notes: Vec::new(),
            keys: Vec::new(),
            rules: Vec::new(),
            zone: None,
            jitter: None,
            has_lost_rule: false,
        }
    }

    /// Sets a key; a later value replaces an earlier one.
    pub(super) fn set(&mut self, key: &'static str, value: Yaml) {
        self.unset(key);
        self.keys.push((key, value));
    }

    /// Sets a key to text as it is meant.
    pub(super) fn set_text(&mut self, key: &'static str, text: impl Into<String>) {
        self.set(key, Yaml::text(text));
    }

    /// Sets a key to a number, a boolean or a duration.
    pub(super) fn set_plain(&mut self, key: &'static str, text: impl ToString) {
        self.set(key, Yaml::plain(text));
    }

    /// Adds to the list under a key.
    pub(super) fn push(&mut self, key: &'static str, item: Yaml) {
        match self.keys.iter_mut().find(|(known, _)| *known == key) {
            Some((_, Yaml::List(items))) => items.push(item),
            _ => self.set(key, Yaml::List(vec![item])),
        }
    }

    /// Adds to the map under a key. A later value of the same name replaces an earlier one.
    pub(super) fn insert(&mut self, key: &'static str, name: impl Into<String>, value: Yaml) {
        let name = name.into();
        match self.keys.iter_mut().find(|(known, _)| *known == key) {
            Some((_, Yaml::Map(pairs))) => {
                pairs.retain(|(known, _)| *known != name);
                pairs.push((name, value));
            }
            _ => self.set(key, Yaml::Map(vec![(name, value)])),
        }
    }

    /// Removes a key.
    pub(super) fn unset(&mut self, key: &str) {
        self.keys.retain(|(known, _)| *known != key);
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Yaml> {
        self.keys.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// One missed fire is made up for, however long ago it was.
    pub(super) fn catch_up_latest(&mut self) {
        self.set_text("catch_up", "latest");
        self.set_plain("catch_up_window", CATCH_UP_WINDOW_MAX);
    }

    /// Adds a rule in time.
    pub(super) fn fire(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Records that a rule could not be translated. Without any other rule the definition is written as disabled.
    pub(super) fn lose_rule(&mut self, text: impl Into<String>) {
        self.has_lost_rule = true;
        self.drop_with_note(text);
    }

    /// The time zone of rules that name none.
    pub(super) fn zone(&mut self, zone: Option<&str>) {
        self.zone = zone.map(str::to_owned).or_else(|| self.zone.take());
    }

    /// How far each fire may be moved, in milliseconds. The server takes up to [`JITTER_MILLIS_MAX`].
    pub(super) fn jitter(&mut self, millis: u64) {
        if millis > JITTER_MILLIS_MAX {
            self.drop_with_note(format!(
                "a random delay of up to {}; the longest jitter is 1h",
                super::span::shown(millis)
            ));
        }
        self.jitter = (millis > 0).then(|| super::span::shown(millis.min(JITTER_MILLIS_MAX)));
    }

    /// True if it has a rule in time.
    pub(super) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// True if a rule names times of a day, but no time zone.
    pub(super) fn fires_without_zone(&self) -> bool {
        self.zone.is_none() && self.rules.iter().any(|rule| rule.kind != "every" && rule.zone.is_none())
    }

    /// Says in a comment that something is missing.
    pub(super) fn drop_with_note(&mut self, text: impl Into<String>) {
        self.notes.push(Note::NotTranslated(text.into()));
    }

    /// Says in a comment that something works in another way.
    pub(super) fn remark(&mut self, text: impl Into<String>) {
        self.notes.push(Note::Remark(text.into()));
    }

    /// Takes all keys out, in the order in which they are written, with the rules as `schedule`.
    pub(super) fn take_keys(&mut self) -> Vec<(&'static str, Yaml)> {
        let mut rules: Vec<Yaml> =
            std::mem::take(&mut self.rules).iter().map(|rule| self.rule(rule)).collect();
        match rules.len() {
            0 if self.has_lost_rule => self.set_plain("enabled", false),
            0 => {}
            1 => self.set("schedule", rules.remove(0)),
            _ => self.set("schedule", Yaml::List(rules)),
        }
        if self.get("schedule").is_none() {
            ["overlap", "catch_up", "catch_up_window"].into_iter().for_each(|key| self.unset(key));
        }
        let mut keys = std::mem::take(&mut self.keys);
        let position = |key: &str| ORDER.iter().position(|known| *known == key).unwrap_or(ORDER.len());
        keys.sort_by_key(|(key, _)| position(key));
        keys
    }

    fn rule(&self, rule: &Rule) -> Yaml {
        let value = match rule.kind {
            "every" => Yaml::plain(&rule.value),
            _ => Yaml::text(&rule.value),
        };
        let mut pairs = vec![(rule.kind.to_owned(), value)];
        let zone = rule.zone.as_ref().or(self.zone.as_ref()).filter(|_| rule.kind != "every");
        pairs.extend(zone.map(|zone| ("timezone".to_owned(), Yaml::text(zone))));
        pairs.extend(self.jitter.as_ref().map(|jitter| ("jitter".to_owned(), Yaml::plain(jitter))));
        Yaml::Map(pairs)
    }
}

impl Imported {
    /// Says something about the file as a whole, once.
    pub(super) fn note(&mut self, note: Note) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// The text of the new jobs file.
    pub(super) fn write(&self, head: &str) -> String {
        let mut out = String::new();
        yaml::write_comment(&mut out, 0, head);
        self.notes.iter().for_each(|note| yaml::write_comment(&mut out, 0, &note.text()));
        out.push_str("version: 1\ndefaults:\n  timeout: none\njobs:\n");
        for (index, draft) in self.drafts.iter().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            yaml::write_comment(&mut out, 2, &format!("From {}.", draft.origin));
            draft.notes.iter().for_each(|note| yaml::write_comment(&mut out, 2, &note.text()));
            write_job(&mut out, &draft.name, &draft.keys);
        }
        out
    }

    /// True if commands of the old file ran on the machine that the file was on.
    pub(super) fn ran_on_a_machine(&self, kind: &str) -> bool {
        let is_process = |draft: &Draft| draft.get("runtime") == Some(&Yaml::text("process"));
        let is_of_machine = ["crontab", "systemd-timer"].contains(&kind);
        (is_of_machine && !self.drafts.is_empty()) || self.drafts.iter().any(is_process)
    }

    /// How many things are not translated.
    pub(super) fn count_lost(&self) -> usize {
        let notes = self.notes.iter().chain(self.drafts.iter().flat_map(|draft| &draft.notes));
        notes.filter(|note| matches!(note, Note::NotTranslated(_))).count()
    }
}

/// Appends a job of the file's map of jobs.
pub(super) fn write_job(out: &mut String, name: &str, keys: &[(&'static str, Yaml)]) {
    let pairs = keys.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    yaml::write_pair(out, 2, name, &Yaml::Map(pairs));
}

/// The longest jitter of a rule.
const JITTER_MILLIS_MAX: u64 = 3_600_000;
/// The longest window of jobs.yaml.
const CATCH_UP_WINDOW_MAX: &str = "30d";
/// How the keys of a job are ordered: what it is, when it runs, what runs, and then how.
const ORDER: [&str; 40] = [
    "description",
    "enabled",
    "schedule",
    "overlap",
    "catch_up",
    "catch_up_window",
    "runtime",
    "image",
    "platform",
    "pull_policy",
    "entrypoint",
    "command",
    "environment",
    "env_file",
    "working_dir",
    "user",
    "group_add",
    "volumes",
    "tmpfs",
    "shm_size",
    "network",
    "hostname",
    "extra_hosts",
    "dns",
    "dns_search",
    "read_only",
    "init",
    "cap_add",
    "cap_drop",
    "ulimits",
    "resources",
    "requires",
    "workers",
    "timeout",
    "retry",
    "success_exit_codes",
    "stop_signal",
    "stop_grace_period",
    "labels",
    "tags",
];
