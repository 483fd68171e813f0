//! Files of systemd, and names of services.

use super::super::ini::{self, Entry, Section};
use super::super::source::{Fault, Source};

/// A file of systemd.
#[derive(Clone)]
pub(super) struct Unit {
    pub(super) source: Source,
    pub(super) sections: std::rc::Rc<[Section]>,
    pub(super) is_timer: bool,
}

impl Unit {
    pub(super) fn read(source: &Source) -> Result<Self, Fault> {
        let wrong = |why: &str| {
            let form = "systemd-timer takes units with [Timer] or [Service]";
            source.fault(0, format!("not a unit of systemd: {why}; {form}"))
        };
        let sections = ini::read(source).map_err(|fault| wrong(&fault.to_string()))?;
        let has = |name: &str| sections.iter().any(|section| section.name == name);
        if !has("Timer") && !has("Service") {
            let found =
                sections.first().map_or("no section".to_owned(), |section| format!("[{}]", section.name));
            return Err(wrong(&format!("it has {found}")));
        }
        Ok(Self { source: source.clone(), is_timer: has("Timer"), sections: merge(sections).into() })
    }

    pub(super) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// True for a unit of `systemctl --user`, as its path says, or the one that `systemctl cat` prints above it.
    pub(super) fn is_of_a_user(&self) -> bool {
        let path = self.source.path.as_ref().and_then(|path| std::path::absolute(path).ok());
        let printed = self.source.text.lines().find_map(|line| line.strip_prefix("# /"));
        path.is_some_and(|path| path.to_string_lossy().contains("/systemd/user/"))
            || printed.is_some_and(|path| path.contains("/systemd/user/"))
    }

    /// Of a timer: what it starts.
    pub(super) fn service_name(&self) -> Name {
        let named =
            self.section("Timer").and_then(|timer| timer.last("Unit")).map(|entry| entry.value.clone());
        let file = self.source.file_name();
        Name(named.unwrap_or_else(|| format!("{}.service", file.strip_suffix(".timer").unwrap_or(file))))
    }
}

/// Joins sections of the same name, as `systemctl cat` prints a unit with its drop-ins. A later value replaces an earlier one.
fn merge(sections: Vec<Section>) -> Vec<Section> {
    let mut merged: Vec<Section> = Vec::new();
    for section in sections {
        match merged.iter_mut().find(|known| known.name == section.name) {
            Some(known) => known.entries.extend(section.entries),
            None => merged.push(section),
        }
    }
    for section in &mut merged {
        section.entries = in_force(std::mem::take(&mut section.entries));
    }
    merged
}

/// The entries that count: of keys that hold one value the last, of lists those below the last empty value.
fn in_force(entries: Vec<Entry>) -> Vec<Entry> {
    let mut kept: Vec<Entry> = Vec::new();
    for entry in entries {
        let key = entry.key.as_str();
        let (list, is_empty) = (list_of(key), entry.value.is_empty());
        if is_empty && NEVER_EMPTY.contains(&key) {
            continue;
        }
        match list {
            Some(_) if is_empty => kept.retain(|earlier| list_of(&earlier.key) != list),
            Some(_) => {}
            None => kept.retain(|earlier| earlier.key != key),
        }
        if !is_empty || (list.is_none() && !WITH_DEFAULT.contains(&key)) {
            kept.push(entry);
        }
    }
    kept
}

/// The list that a key adds to. All rules of a timer are one list: any of them, left empty, takes back all.
fn list_of(key: &str) -> Option<&str> {
    match key {
        "OnCalendar" | "OnActiveSec" | "OnBootSec" | "OnStartupSec" | "OnUnitActiveSec"
        | "OnUnitInactiveSec" => Some("On"),
        "ExecStart" | "ExecStartPre" | "ExecStartPost" | "Environment" | "EnvironmentFile"
        | "SuccessExitStatus" => Some(key),
        _ => None,
    }
}

/// Keys with one value that go back to their default if they are left empty.
const WITH_DEFAULT: [&str; 7] =
    ["User", "Group", "WorkingDirectory", "MemoryMax", "MemoryLimit", "TasksMax", "CPUQuota"];
/// Keys whose empty value systemd ignores.
const NEVER_EMPTY: [&str; 12] = [
    "DynamicUser",
    "KillSignal",
    "Persistent",
    "RandomizedDelaySec",
    "Restart",
    "RuntimeMaxSec",
    "TimeoutSec",
    "TimeoutStartSec",
    "TimeoutStopSec",
    "Type",
    "Unit",
    "WakeSystem",
];

/// True if the text is a yes of systemd.
pub(super) fn is_true(value: &str) -> bool {
    ["1", "yes", "y", "true", "t", "on"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// The name of a service.
pub(super) struct Name(pub(super) String);

impl Name {
    pub(super) fn stem(&self) -> &str {
        self.0.strip_suffix(".service").unwrap_or(&self.0)
    }

    /// The file of the template that an instance such as `backup@daily.service` is made from.
    pub(super) fn template(&self) -> Option<String> {
        let (prefix, _) = self.stem().split_once('@')?;
        Some(format!("{prefix}@.service"))
    }

    pub(super) fn is_file(&self, file: &str) -> bool {
        file == self.0 || self.template().is_some_and(|template| template == file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<String> {
        let source = Source { name: "a.timer".into(), path: None, text: text.into() };
        let unit = Unit::read(&source).unwrap();
        let entries = unit.sections.iter().flat_map(|section| &section.entries);
        entries.map(|entry| format!("{}={}", entry.key, entry.value)).collect()
    }

    #[test]
    fn repeated_sections_are_one() {
        let text = "[Timer]\nPersistent=yes\nOnCalendar=daily\n[Unit]\nAfter=a\n[Timer]\nPersistent=no\n";
        assert_eq!(entries(text), ["OnCalendar=daily", "Persistent=no", "After=a"]);
    }

    #[test]
    fn a_unit_of_a_user_is_known_by_its_path() {
        for (path, head, expected) in [
            (Some("/srv/anna/.config/systemd/user/a.service"), "", true),
            (Some("/etc/systemd/system/a.service"), "", false),
            (None, "# /usr/lib/systemd/user/a.service\n", true),
            (None, "# /etc/systemd/system/a.service\n", false),
            (None, "", false),
        ] {
            let text = format!("{head}[Service]\nExecStart=/bin/a\n");
            let source = Source { name: "a.service".into(), path: path.map(Into::into), text };
            assert_eq!(Unit::read(&source).unwrap().is_of_a_user(), expected, "{path:?} {head}");
        }
    }

    #[test]
    fn an_empty_value_takes_back_its_list_alone() {
        for (text, expected) in [
            ("[Timer]\nPersistent=yes\nOnBootSec=1\nOnCalendar=\n", &["Persistent=yes"][..]),
            ("[Timer]\nPersistent=yes\nPersistent=\nOnCalendar=a\n", &["Persistent=yes", "OnCalendar=a"]),
            (
                "[Service]\nExecStart=a\nExecStartPre=b\nExecStart=\nExecStart=c\n",
                &["ExecStartPre=b", "ExecStart=c"],
            ),
            ("[Service]\nEnvironment=A=1\nEnvironment=B=2\nEnvironment=\n", &[]),
            ("[Service]\nUser=a\nUser=\nCapabilityBoundingSet=\n", &["CapabilityBoundingSet="]),
        ] {
            assert_eq!(entries(text), expected, "{text}");
        }
    }
}
