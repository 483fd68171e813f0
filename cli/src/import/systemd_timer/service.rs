//! A service as keys of a definition.

use super::super::draft::Draft;
use super::super::host::{Host, Runtime};
use super::super::ini::{Entry, Section};
use super::super::source::Fault;
use super::super::span;
use super::super::yaml::Yaml;
use super::exec;
use super::exit_status::Status;
use super::unit::{Unit, is_true};

/// Reads a service. `name` is the one that its timer starts it by.
///
/// # Errors
/// It runs nothing, or a command has an open quote.
pub(super) fn read(unit: &Unit, name: &str, host: &Host, draft: &mut Draft) -> Result<(), Fault> {
    let Some(service) = unit.section("Service") else {
        return Err(unit.source.fault(0, "the unit has no [Service]"));
    };
    host.begin(draft);
    let is_oneshot = service.last("Type").is_some_and(|kind| kind.value == "oneshot");
    let mut reader = Reader { unit, service, name, host, draft, is_oneshot, others: Vec::new() };
    reader.about();
    reader.commands()?;
    reader.user();
    for entry in &service.entries {
        reader.take(entry)?;
    }
    let others = std::mem::take(&mut reader.others);
    let (rights, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|key| is_about_rights(key));
    if !rights.is_empty() {
        let text = match host.runtime {
            Runtime::Docker => "a container has limits of its own, such as \"cap_drop\" and \"read_only\"",
            Runtime::Process => "a plain process may do all that its worker may do",
        };
        draft.drop_with_note(format!("{} of {}: {text}", rights.join(", "), unit.source.name));
    }
    if !others.is_empty() {
        draft.drop_with_note(format!("{} of {}", others.join(", "), unit.source.name));
    }
    Ok(())
}

/// True for keys that limit, or extend, the program's rights on the machine.
fn is_about_rights(key: &str) -> bool {
    let families = ["IPAddress", "Inaccessible", "Private", "Protect", "ReadOnly", "Restrict", "SystemCall"];
    let others = [
        "AmbientCapabilities",
        "CapabilityBoundingSet",
        "DeviceAllow",
        "DevicePolicy",
        "ExecPaths",
        "LockPersonality",
        "MemoryDenyWriteExecute",
        "NoExecPaths",
        "NoNewPrivileges",
        "ReadWritePaths",
        "RootDirectory",
        "RootImage",
        "SecureBits",
        "SupplementaryGroups",
        "TemporaryFileSystem",
        "UMask",
    ];
    families.iter().any(|family| key.starts_with(family)) || others.contains(&key)
}

struct Reader<'a> {
    unit: &'a Unit,
    service: &'a Section,
    name: &'a str,
    host: &'a Host,
    draft: &'a mut Draft,
    is_oneshot: bool,
    /// Keys without a counterpart.
    others: Vec<String>,
}

impl Reader<'_> {
    fn about(&mut self) {
        for entry in self.unit.section("Unit").map_or(&[][..], |unit| &unit.entries) {
            match entry.key.as_str() {
                "Description" => {
                    let text = self.expanded(&entry.value, entry.line);
                    self.draft.set_text("description", text);
                }
                "Documentation" => {}
                key => self.others.push(key.to_owned()),
            }
        }
    }

    fn commands(&mut self) -> Result<(), Fault> {
        let mut steps = Vec::new();
        let keys: &[&str] = if self.is_oneshot {
            &["ExecStartPre", "ExecStart", "ExecStartPost"]
        } else {
            &["ExecStartPre", "ExecStart"]
        };
        for key in keys {
            for entry in self.service.entries.iter().filter(|entry| entry.key == *key) {
                let value = self.expanded(&entry.value, entry.line);
                let read = exec::steps(&value).map_err(|why| {
                    self.unit.source.fault(
                        entry.line,
                        format!("{key}: {why}; write {key}=/path/to/program and its arguments"),
                    )
                })?;
                if read.iter().any(|step| step.is_privileged) {
                    self.draft.drop_with_note(format!("line {}: the rights of root for {key}", entry.line));
                }
                steps.extend(read);
            }
        }
        if steps.is_empty() {
            return Err(self.unit.source.fault(self.service.line, "the service has no ExecStart="));
        }
        self.draft.set("command", Yaml::texts(exec::command(&steps)));
        if self.host.runtime == Runtime::Docker {
            self.draft.remark("it ran on the machine itself; choose an image that has the program, or import it with --runtime process");
        }
        Ok(())
    }

    fn user(&mut self) {
        let value = |key: &str| self.service.last(key).map(|entry| entry.value.clone());
        let unnamed = match value("DynamicUser").is_some_and(|value| is_true(&value)) {
            true => Some("DynamicUser=yes"),
            false => self.unit.is_of_a_user().then_some("a unit of a user, and not of the system"),
        };
        match (value("User"), value("Group"), unnamed) {
            (Some(user), Some(group), _) => self.host.add_user(&format!("{user}:{group}"), self.draft),
            (Some(user), None, _) => self.host.add_user(&user, self.draft),
            (None, group, unnamed) => {
                if let Some(unnamed) = unnamed {
                    self.host.add_unnamed_user(unnamed, self.draft);
                }
                if let Some(group) = group {
                    self.draft.drop_with_note(format!("Group={group} without a user"));
                }
            }
        }
    }

    fn take(&mut self, entry: &Entry) -> Result<(), Fault> {
        let value = entry.value.as_str();
        match entry.key.as_str() {
            "ExecStart" | "ExecStartPre" | "User" | "Group" | "DynamicUser" => {}
            "ExecStartPost" if self.is_oneshot => {}
            "Type" if ["simple", "exec", "oneshot", "idle"].contains(&value) => {}
            "Type" => self.draft.remark(format!(
                "the service has Type={value}; a job runs until its first process ends"
            )),
            "WorkingDirectory" => {
                let path = self.expanded(value.trim_start_matches('-'), entry.line);
                self.draft.set_text("working_dir", path);
            }
            "Environment" => {
                let value = self.expanded(value, entry.line);
                let variables = shell_words::split(&value)
                    .map_err(|_| self.unit.source.fault(entry.line, "Environment: a quote is not closed"))?;
                for variable in variables {
                    if let Some((name, value)) = variable.split_once('=') {
                        self.draft.insert("environment", name, Yaml::text(value));
                    }
                }
            }
            "EnvironmentFile" => match value.strip_prefix('-') {
                Some(file) => self.draft.drop_with_note(format!(
                    "line {}: EnvironmentFile={value}: the server reads files that are there; write env_file: {file} if it is",
                    entry.line
                )),
                None => {
                    self.draft.push("env_file", Yaml::text(value));
                    self.draft.remark(format!("the server reads {value} on its own machine, as lines NAME=value"));
                }
            },
            "TimeoutStartSec" if self.is_oneshot => self.duration("timeout", entry),
            "RuntimeMaxSec" => self.duration("timeout", entry),
            "TimeoutStopSec" => self.duration("stop_grace_period", entry),
            "TimeoutSec" => {
                if self.is_oneshot {
                    self.duration("timeout", entry);
                }
                self.duration("stop_grace_period", entry);
            }
            "SuccessExitStatus" => self.success_codes(entry),
            "KillSignal" => self.draft.set_text("stop_signal", value),
            "MemoryMax" | "MemoryLimit" => self.draft.insert("resources", "memory", Yaml::plain(value)),
            "TasksMax" => self.draft.insert("resources", "pids", Yaml::plain(value)),
            "CPUQuota" => match value.strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok()) {
                Some(percent) => self.draft.insert("resources", "cpus", Yaml::plain(percent / 100.0)),
                None => self.others.push(entry.key.clone()),
            },
            "Restart" if value == "no" => {}
            "Restart" => self.draft.drop_with_note(format!(
                "line {}: Restart={value}: \"retry\" says how often a failed job is tried again",
                entry.line
            )),
            "SyslogIdentifier" | "StandardOutput" | "StandardError" => {}
            key => self.others.push(key.to_owned()),
        }
        Ok(())
    }

    fn success_codes(&mut self, entry: &Entry) {
        for word in entry.value.split_whitespace() {
            match Status::read(word) {
                Status::Code(0) => {}
                Status::Code(code) => self.draft.push("success_exit_codes", Yaml::plain(code)),
                Status::Refused(why) => self.draft.drop_with_note(format!(
                    "line {}: {}={word}: {why}, so it is never a success",
                    entry.line, entry.key
                )),
                Status::Unknown => {
                    self.draft.drop_with_note(format!("line {}: {}={word}", entry.line, entry.key));
                }
            }
        }
    }

    fn duration(&mut self, key: &'static str, entry: &Entry) {
        match span::of_systemd(&entry.value) {
            // Zero is no limit to systemd.
            Some(millis) if millis > 0 => self.draft.set_plain(key, span::shown(millis)),
            _ if key == "timeout" => self.draft.unset(key),
            _ => self.draft.drop_with_note(format!("line {}: {}={}", entry.line, entry.key, entry.value)),
        }
    }

    /// The value with systemd's specifiers replaced that a name gives.
    fn expanded(&mut self, value: &str, line: usize) -> String {
        let stem = self.name.strip_suffix(".service").unwrap_or(self.name);
        let (prefix, instance) = stem.split_once('@').unwrap_or((stem, ""));
        let mut expanded = String::new();
        let mut chars = value.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                expanded.push(c);
                continue;
            }
            match chars.next() {
                Some('%') | None => expanded.push('%'),
                Some('n') => expanded.push_str(self.name),
                Some('N') => expanded.push_str(stem),
                Some('p' | 'P') => expanded.push_str(prefix),
                Some('i' | 'I') => expanded.push_str(instance),
                Some(other) => {
                    expanded.extend(['%', other]);
                    self.draft.drop_with_note(format!("line {line}: %{other}, which systemd replaces"));
                }
            }
        }
        expanded
    }
}
