//! One service of a compose file as a definition, without its schedule.

use super::super::document::{Node, Pair, Value};
use super::super::draft::Draft;
use super::super::span;
use super::super::yaml::Yaml;
use super::project::Project;
use super::variables;

/// Reads a service. Its labels are left out: some of them are schedules.
pub(super) fn read(project: &Project<'_>, service: &Pair) -> Draft {
    let mut draft = Draft::new(&service.key, project.source, service.line);
    draft.zone(project.zone);
    let mut reader = Reader { project, service, draft: &mut draft };
    service.value.pairs().iter().filter(|pair| !pair.value.is_null()).for_each(|pair| reader.take(pair));
    draft
}

/// A scalar with its variables in the form of jobs.yaml.
pub(super) fn template(text: &str, draft: &mut Draft) -> Yaml {
    Yaml::Template(translated(text, draft))
}

fn translated(text: &str, draft: &mut Draft) -> String {
    let translated = variables::translate(text);
    for name in translated.replaced {
        draft.remark(format!("the default of the variable {name} is written in its place"));
    }
    translated.text
}

struct Reader<'a> {
    project: &'a Project<'a>,
    service: &'a Pair,
    draft: &'a mut Draft,
}

impl Reader<'_> {
    fn take(&mut self, pair: &Pair) {
        let node = &*pair.value;
        match pair.key.as_str() {
            "image" => self.scalar("image", node),
            "build" => self.build(pair),
            "command" => self.words("command", pair),
            "entrypoint" => self.words("entrypoint", pair),
            "environment" => self.environment(node),
            "env_file" => self.env_files(pair),
            "volumes" => node.items().iter().for_each(|item| self.volume(item)),
            "tmpfs" => self.texts("tmpfs", node),
            "shm_size" => self.scalar("shm_size", node),
            "hostname" => self.scalar("hostname", node),
            "extra_hosts" => self.extra_hosts(node),
            "dns" => self.texts("dns", node),
            "dns_search" => self.texts("dns_search", node),
            "ulimits" => node.pairs().iter().for_each(|limit| self.ulimit(limit)),
            "group_add" => self.texts("group_add", node),
            "cap_add" => self.texts("cap_add", node),
            "cap_drop" => self.texts("cap_drop", node),
            "user" => self.scalar("user", node),
            "working_dir" => self.scalar("working_dir", node),
            "platform" => self.scalar("platform", node),
            "stop_signal" => self.scalar("stop_signal", node),
            "read_only" => self.switch("read_only", node),
            "init" => self.switch("init", node),
            "stop_grace_period" => match node.text().and_then(span::of_go) {
                Some(millis) => self.draft.set_plain("stop_grace_period", span::shown(millis)),
                None => self.drop_with_note(pair, ""),
            },
            "pull_policy" => match node.text() {
                Some("if_not_present") => self.draft.set_text("pull_policy", "missing"),
                _ => self.scalar("pull_policy", node),
            },
            "mem_limit" => self.resource("memory", node),
            "cpus" => self.resource("cpus", node),
            "pids_limit" => self.resource("pids", node),
            "deploy" => self.deploy(node),
            "networks" => self.networks(pair),
            "network_mode" => match node.text() {
                Some(mode @ ("host" | "none")) => self.draft.set_text("network", mode),
                Some("bridge" | "default") => {}
                _ => {
                    self.drop_with_note(pair, "a job joins the bridge, no network, or a network by its name")
                }
            },
            "restart" => self.restart(pair),
            "labels" | "container_name" | "scale" if pair.key != "scale" => {}
            key if key.starts_with("x-") => {}
            key => {
                let reason = REASONS.iter().find(|(known, _)| *known == key).map_or("", |(_, reason)| reason);
                self.drop_with_note(pair, reason);
            }
        }
    }

    fn drop_with_note(&mut self, pair: &Pair, reason: &str) {
        let colon = if reason.is_empty() { "" } else { ": " };
        self.draft.drop_with_note(format!("line {}: {}{colon}{reason}", pair.line, pair.key));
    }

    fn template(&mut self, text: &str) -> Yaml {
        template(text, self.draft)
    }

    fn translated(&mut self, text: &str) -> String {
        translated(text, self.draft)
    }

    fn scalar(&mut self, key: &'static str, node: &Node) {
        if let Some(text) = node.text() {
            let value = self.template(text);
            self.draft.set(key, value);
        }
    }

    fn switch(&mut self, key: &'static str, node: &Node) {
        self.draft.set_plain(key, node.is_true());
    }

    fn texts(&mut self, key: &'static str, node: &Node) {
        let items = texts_of(node).into_iter().map(|text| self.template(text)).collect();
        self.draft.set(key, Yaml::List(items));
    }

    fn extra_hosts(&mut self, node: &Node) {
        match &node.value {
            Value::Map(pairs) => {
                for pair in pairs {
                    for address in texts_of(&pair.value) {
                        let item = self.template(&format!("{}:{address}", pair.key));
                        self.draft.push("extra_hosts", item);
                    }
                }
            }
            _ => self.texts("extra_hosts", node),
        }
    }

    fn ulimit(&mut self, limit: &Pair) {
        if limit.key == "core" {
            let note = format!("line {}: ulimits.core: containers write no core dumps", limit.line);
            return self.draft.drop_with_note(note);
        }
        let plain = |it: &Pair| Some((it.key.clone(), Yaml::plain(it.value.text()?)));
        let bounds = || Yaml::Map(limit.value.pairs().iter().filter_map(plain).collect());
        let value = limit.value.text().map_or_else(bounds, Yaml::plain);
        self.draft.insert("ulimits", limit.key.clone(), value);
    }

    fn words(&mut self, key: &'static str, pair: &Pair) {
        match &pair.value.value {
            Value::Scalar { text, .. } => {
                // Words are split at line breaks, too.
                let line =
                    text.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>();
                let value = self.template(&line.join(" "));
                self.draft.set(key, value);
            }
            Value::List(items) if items.is_empty() && key == "entrypoint" => {
                self.drop_with_note(
                    pair,
                    "the entrypoint of the image cannot be left out; name the program itself here",
                );
            }
            _ => self.texts(key, &pair.value),
        }
    }

    fn build(&mut self, pair: &Pair) {
        if self.service.value.get("image").is_none() {
            self.draft.set_text("image", &self.service.key);
        }
        self.drop_with_note(pair, "Longshore builds no images; push the image to a registry that the workers reach, and name it here");
    }

    fn environment(&mut self, node: &Node) {
        for pair in node.pairs() {
            match pair.value.text() {
                Some(text) => self.variable(&pair.key, text),
                None => self.passed_on(&pair.key),
            }
        }
        for text in node.items().iter().filter_map(|item| item.text()) {
            match text.split_once('=') {
                Some((name, value)) => self.variable(name, value),
                None => self.passed_on(text),
            }
        }
    }

    fn variable(&mut self, name: &str, value: &str) {
        let value = self.template(value);
        self.draft.insert("environment", name, value);
    }

    /// A variable without a value is that of the caller; here it is that of the server.
    fn passed_on(&mut self, name: &str) {
        self.draft.insert("environment", name, Yaml::Template(format!("${{{name}}}")));
        self.draft.remark(format!("{name} is taken from the server's environment, where it must be set"));
    }

    fn env_files(&mut self, pair: &Pair) {
        let node = &*pair.value;
        let single = node.text().map(|_| std::slice::from_ref(&pair.value));
        for item in single.unwrap_or(node.items()) {
            let is_optional = item.get("required").is_some_and(|required| !required.is_true());
            match item.text().or_else(|| item.text_at(&["path"])) {
                Some(file) if is_optional => {
                    self.draft.drop_with_note(format!(
                        "line {}: env_file {file}: a file that may be absent",
                        item.line
                    ));
                }
                Some(file) => {
                    let file = self.template(file);
                    self.draft.push("env_file", file);
                }
                None => self.draft.drop_with_note(format!("line {}: env_file", item.line)),
            }
        }
    }

    fn volume(&mut self, item: &Node) {
        let lost = |reason: &str| format!("line {}: volume: {reason}", item.line);
        // A default such as ${DATA:-/srv} holds a colon of its own, so variables go first.
        let text = item.text().map(|text| self.translated(text));
        let (source, target, options) = match text.as_deref() {
            Some(text) => {
                let parts: Vec<&str> = text.splitn(3, ':').collect();
                match parts[..] {
                    [source, target] => (source.to_owned(), target.to_owned(), ""),
                    [source, target, options] => (source.to_owned(), target.to_owned(), options),
                    _ => {
                        return self.draft.drop_with_note(lost(&format!(
                            "{text} has no name; a job's files are gone with its container"
                        )));
                    }
                }
            }
            None => {
                let kind = item.text_at(&["type"]).unwrap_or("volume");
                let (source, target) = (item.text_at(&["source"]), item.text_at(&["target"]));
                let read_only = if item.get("read_only").is_some_and(Node::is_true) { "ro" } else { "" };
                match (kind, source, target) {
                    ("tmpfs", _, Some(target)) => {
                        let target = self.template(target);
                        return self.draft.push("tmpfs", target);
                    }
                    ("bind" | "volume", Some(source), Some(target)) => {
                        (self.translated(source), self.translated(target), read_only)
                    }
                    _ => {
                        return self.draft.drop_with_note(lost(&format!(
                            "type {kind} without source and target, or unknown"
                        )));
                    }
                }
            }
        };
        if source.starts_with(['.', '~']) {
            let text =
                format!("{source}: a job runs on any worker; give an absolute path of the workers' machines");
            return self.draft.drop_with_note(lost(&text));
        }
        let source = self.volume_source(source);
        let mode = if options.split(',').any(|option| option == "ro") { ":ro" } else { "" };
        let others: Vec<&str> =
            options.split(',').filter(|option| !["", "ro", "rw"].contains(option)).collect();
        if !others.is_empty() {
            self.draft.drop_with_note(lost(&format!("options {} of {target}", others.join(","))));
        }
        self.draft.push("volumes", Yaml::Template(format!("{source}:{target}{mode}")));
    }

    /// The name that Docker knows a volume by; a path as it is.
    fn volume_source(&mut self, source: String) -> String {
        if source.starts_with(['/', '$']) {
            return source;
        }
        if let Some(name) = self.project.outer_name("volumes", &source) {
            return self.translated(&name);
        }
        let project = self.project.root.text_at(&["name"]).unwrap_or("PROJECT");
        self.draft.remark(format!("compose calls the volume {source} by the name {project}_{source}"));
        source
    }

    fn resource(&mut self, name: &'static str, node: &Node) {
        let Some(text) = node.text() else { return };
        let value = match text.starts_with(|c: char| c.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '.')
        {
            true => Yaml::plain(text),
            false => self.template(text),
        };
        self.draft.insert("resources", name, value);
    }

    fn deploy(&mut self, deploy: &Node) {
        let policy = |key: &str| deploy.text_at(&["restart_policy", key]);
        for pair in deploy.pairs() {
            match pair.key.as_str() {
                "resources" => self.limits(&pair.value),
                "restart_policy" => match (policy("condition"), policy("max_attempts")) {
                    (Some("none"), _) => {}
                    (Some("on-failure"), Some(max)) => self.draft.set_plain("retry", max),
                    _ => self.drop_with_note(
                        pair,
                        "a job ends; \"retry\" says how often a failed one is tried again",
                    ),
                },
                "labels" | "mode" => {}
                // With swarm-cronjob a service waits without a task.
                "replicas" if ["0", "1"].contains(&pair.value.text().unwrap_or_default()) => {}
                "placement" => self.draft.drop_with_note(format!(
                    "line {}: deploy.placement: \"requires\" and \"prefers\" name labels of workers",
                    pair.line
                )),
                key => self.draft.drop_with_note(format!("line {}: deploy.{key}", pair.line)),
            }
        }
    }

    fn limits(&mut self, resources: &Node) {
        for (key, name) in [("cpus", "cpus"), ("memory", "memory"), ("pids", "pids")] {
            if let Some(node) = resources.at(&["limits", key]) {
                self.resource(name, node);
            }
        }
        if let Some(reserved) = resources.get("reservations") {
            let text =
                "a job reserves its \"resources\", which are its limits as well; \"resources.gpus\" are GPUs";
            self.draft
                .drop_with_note(format!("line {}: deploy.resources.reservations: {text}", reserved.line));
        }
    }

    fn networks(&mut self, pair: &Pair) {
        let node = &*pair.value;
        let items = node.items().iter().filter_map(|item| item.text());
        let names: Vec<&str> = items.chain(node.pairs().iter().map(|pair| pair.key.as_str())).collect();
        let outer = match names[..] {
            ["default"] => return,
            [name] => self.project.outer_name("networks", name),
            _ => None,
        };
        match outer {
            Some(name) => {
                let name = self.template(&name);
                self.draft.set("network", name);
            }
            None => {
                let reason = format!(
                    "{}: a job joins one network, which exists on the workers; name it with \"network\"",
                    names.join(", ")
                );
                self.drop_with_note(pair, &reason);
            }
        }
    }

    fn restart(&mut self, pair: &Pair) {
        match pair.value.text() {
            Some("no" | "false") | None => {}
            Some(text) => match text.strip_prefix("on-failure:") {
                Some(max) => self.draft.set_plain("retry", max),
                None => self
                    .drop_with_note(pair, "a job ends; \"retry\" says how often a failed one is tried again"),
            },
        }
    }
}

/// A list of texts, or one.
fn texts_of(node: &Node) -> Vec<&str> {
    match &node.value {
        Value::List(items) => items.iter().filter_map(|item| item.text()).collect(),
        _ => node.text().into_iter().collect(),
    }
}

/// Keys without a counterpart, with the reason.
const REASONS: [(&str, &str); 17] = [
    ("ports", "a job is not reached from outside"),
    ("expose", "a job is not reached from outside"),
    ("depends_on", "\"after\" of a submission names the jobs to wait for; \"hooks\" name jobs that follow"),
    ("links", "a job is not reached by other jobs"),
    ("healthcheck", "a job is watched until it ends"),
    ("logging", "Longshore keeps the output itself"),
    ("secrets", "\"secrets\" names files of the server's --secrets-dir"),
    ("configs", "mount a file of the workers' machines"),
    ("privileged", "it would give the machine away"),
    ("devices", "it would give the machine away"),
    ("security_opt", "containers always have no-new-privileges"),
    ("sysctls", "it would give the machine away"),
    ("pid", "it would give the machine away"),
    ("ipc", "it would give the machine away"),
    ("extends", "write the keys of the other service here"),
    ("profiles", "\"enabled: false\" switches a definition off"),
    ("scale", "submit several jobs instead"),
];
