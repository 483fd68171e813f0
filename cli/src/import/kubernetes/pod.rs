//! The pod of a CronJob: its first container as keys of a definition.

use std::collections::BTreeMap;

use super::super::document::{Node, Pair};
use super::super::draft::Draft;
use super::super::span;
use super::super::yaml::Yaml;
use super::names;

/// Reads a pod's specification.
///
/// # Errors
/// There is no container.
pub(super) fn read(pod: &Node, draft: &mut Draft) -> Result<(), String> {
    let containers = pod.get("containers").map_or(&[][..], Node::items);
    let Some((container, others)) = containers.split_first() else {
        return Err("the pod has no containers".to_owned());
    };
    let name = |node: &Node| node.text_at(&["name"]).unwrap_or("without name").to_owned();
    for other in others {
        draft.drop_with_note(format!(
            "line {}: container {}: a job is one container",
            other.line,
            name(other)
        ));
    }
    for pair in pod.pairs() {
        match pair.key.as_str() {
            "containers" | "volumes" | "securityContext" => {}
            "restartPolicy" => draft.remark(format!(
                "restartPolicy {}: each attempt has a new container, and \"retry\" says how many follow a failure",
                pair.value.text().unwrap_or_default()
            )),
            "nodeSelector" => select_worker(&pair.value, draft),
            "terminationGracePeriodSeconds" => {
                draft.set_plain("stop_grace_period", span::of_seconds(pair.value.text().unwrap_or_default()));
            }
            "hostname" => draft.set_text("hostname", pair.value.text().unwrap_or_default()),
            "hostAliases" => pair.value.items().iter().for_each(|alias| names::host_alias(alias, draft)),
            "dnsConfig" => names::dns_config(pair, draft),
            "hostNetwork" if pair.value.is_true() => {
                draft.set_text("network", "host");
                draft.remark("a worker must allow the network of its host");
            }
            "initContainers" => {
                for init in pair.value.items() {
                    draft.drop_with_note(format!(
                        "line {}: init container {}: a job is one container",
                        init.line,
                        name(init)
                    ));
                }
            }
            key => draft.drop_with_note(format!("line {}: {key}{}", pair.line, reason(key))),
        }
    }
    let mut reader = Reader { pod, container, variables: literals(container), draft };
    reader.read();
    Ok(())
}

fn reason(key: &str) -> &'static str {
    match key {
        "affinity" => ": \"requires\" and \"prefers\" name labels of workers",
        "nodeName" => ": \"workers\" names the workers that may run it",
        "tolerations" => ": the label \"exclusive\" keeps a worker for jobs that require it",
        "topologySpreadConstraints" => ": \"strategy\" spreads jobs over workers",
        "imagePullSecrets" => ": the server has logins of registries in the file of --registries",
        "dnsPolicy" => ": names are resolved as the worker's engine does it",
        "schedulerName" | "priorityClassName" => {
            ": Longshore's own scheduler places jobs; \"priority\" orders them"
        }
        "serviceAccountName" | "serviceAccount" | "automountServiceAccountToken" => {
            ": a job has no account of a cluster"
        }
        _ => "",
    }
}

/// Labels of nodes become labels of workers.
fn select_worker(labels: &Node, draft: &mut Draft) {
    let mut flags = Vec::new();
    for label in labels.pairs() {
        let value = label.value.text().unwrap_or_default();
        flags.push(format!("--label {}={value}", label.key));
        draft.insert("requires", &label.key, Yaml::text(value));
    }
    if !flags.is_empty() {
        draft.remark(format!("nodeSelector became \"requires\": a worker needs {}", flags.join(" ")));
    }
}

/// The variables whose values the manifest holds.
fn literals(container: &Node) -> BTreeMap<String, String> {
    let items = container.get("env").map_or(&[][..], Node::items);
    let pair =
        |item: &Node| Some((item.text_at(&["name"])?.to_owned(), item.text_at(&["value"])?.to_owned()));
    items.iter().filter_map(|item| pair(item)).collect()
}

struct Reader<'a> {
    pod: &'a Node,
    container: &'a Node,
    variables: BTreeMap<String, String>,
    draft: &'a mut Draft,
}

impl Reader<'_> {
    fn read(&mut self) {
        for pair in self.container.pairs() {
            let text = pair.value.text();
            match pair.key.as_str() {
                "name" => {}
                "terminationMessagePath" | "terminationMessagePolicy" => {
                    self.drop_with_note(pair, "the result of a job is what it writes to LONGSHORE_RESULT");
                }
                "image" => self.draft.set_text("image", text.unwrap_or_default()),
                "imagePullPolicy" => match text {
                    Some("Always") => self.draft.set_text("pull_policy", "always"),
                    Some("IfNotPresent") => self.draft.set_text("pull_policy", "missing"),
                    Some("Never") => self.draft.set_text("pull_policy", "never"),
                    _ => self.drop_with_note(pair, ""),
                },
                "command" => self.words("entrypoint", &pair.value),
                "args" => self.words("command", &pair.value),
                "workingDir" => self.draft.set_text("working_dir", text.unwrap_or_default()),
                "env" => pair.value.items().iter().for_each(|item| self.variable(item)),
                "envFrom" => {
                    self.drop_with_note(pair, "write the variables to a file and name it with env_file")
                }
                "resources" => self.resources(&pair.value),
                "volumeMounts" => pair.value.items().iter().for_each(|item| self.mount(item)),
                "securityContext" => {}
                "ports" => self.drop_with_note(pair, "a job is not reached from outside"),
                _ => self.drop_with_note(pair, ""),
            }
        }
        self.unmounted();
        self.security();
    }

    fn drop_with_note(&mut self, pair: &Pair, reason: &str) {
        let colon = if reason.is_empty() { "" } else { ": " };
        self.draft.drop_with_note(format!("line {}: {}{colon}{reason}", pair.line, pair.key));
    }

    /// Words, with `$(NAME)` replaced by what the manifest says.
    fn words(&mut self, key: &'static str, node: &Node) {
        let words: Vec<String> = node
            .items()
            .iter()
            .filter_map(|item| item.text())
            .map(|word| self.expanded(word, node.line))
            .collect();
        self.draft.set(key, Yaml::texts(words));
    }

    fn expanded(&mut self, word: &str, line: usize) -> String {
        let mut expanded = String::new();
        let mut rest = word;
        while let Some(start) = rest.find("$(") {
            let is_escaped = rest[..start].ends_with('$');
            let Some(length) = rest[start..].find(')') else { break };
            let name = &rest[start + 2..start + length];
            match self.variables.get(name) {
                _ if is_escaped => {
                    expanded.push_str(&rest[..start]);
                    expanded.push_str(&rest[start + 1..=start + length]);
                }
                Some(value) => {
                    expanded.push_str(&rest[..start]);
                    expanded.push_str(value);
                }
                None => {
                    expanded.push_str(&rest[..=start + length]);
                    // Shells write the output of a command in the same way.
                    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                    if is_name && self.has_variable(name) {
                        self.lose_variable(name, line);
                    }
                }
            }
            rest = &rest[start + length + 1..];
        }
        expanded + rest
    }

    /// Disables the job: a shell would run `$(NAME)` as a command, and another program would take it as it is written.
    fn lose_variable(&mut self, name: &str, line: usize) {
        self.draft.set_plain("enabled", false);
        self.draft.drop_with_note(format!(
            "line {line}: $({name}), whose value the manifest does not hold, so it is disabled: a shell would run \
             \"{name}\" as a command; let a shell read the variable as ${name}, and remove \"enabled: false\""
        ));
    }

    /// True if the variable is in `env`, or may come from `envFrom`. The commands of shells have other names than variables in capitals.
    fn has_variable(&self, name: &str) -> bool {
        let items = self.container.get("env").map_or(&[][..], Node::items);
        let is_capital = name.chars().all(|c| !c.is_ascii_lowercase());
        items.iter().any(|item| item.text_at(&["name"]) == Some(name))
            || (is_capital && self.container.get("envFrom").is_some())
    }

    fn variable(&mut self, item: &Node) {
        let Some(name) = item.text_at(&["name"]) else { return };
        let Some(from) = item.get("valueFrom") else {
            let value = self.expanded(item.text_at(&["value"]).unwrap_or_default(), item.line);
            return self.draft.insert("environment", name, Yaml::text(value));
        };
        let text = from.pairs().first().map_or_else(String::new, |pair| {
            let named = pair.value.text_at(&["name"]).map_or_else(String::new, |of| format!(" of {of}"));
            let key = pair
                .value
                .text_at(&["key"])
                .or_else(|| pair.value.text_at(&["fieldPath"]))
                .unwrap_or_default();
            format!("{} {key}{named}", pair.key)
        });
        let is_secret = from.get("secretKeyRef").is_some();
        let hint = match is_secret {
            true => format!(
                "write it to a file of --secrets-dir and \"{name}: {{secret: FILE}}\" to environment, "
            ),
            false => String::new(),
        };
        self.draft.drop_with_note(format!(
            "line {}: environment {name} from {text}; {hint}give it with env_file, or as ${{{name}}} of the server's environment",
            item.line
        ));
    }

    fn resources(&mut self, resources: &Node) {
        for pair in resources.get("limits").map_or(&[][..], Node::pairs) {
            let text = pair.value.text().unwrap_or_default();
            let (name, value) = match pair.key.as_str() {
                "cpu" => ("cpus", cpus(text)),
                "memory" => ("memory", bytes(text)),
                _ => ("", None),
            };
            match value {
                Some(value) => self.draft.insert("resources", name, Yaml::plain(value)),
                None => self
                    .draft
                    .drop_with_note(format!("line {}: resources.limits.{} = {text}", pair.line, pair.key)),
            }
        }
        if let Some(requests) = resources.get("requests") {
            let text = "a job reserves its \"resources\", which are its limits as well";
            self.draft.drop_with_note(format!("line {}: resources.requests: {text}", requests.line));
        }
        for pair in
            resources.pairs().iter().filter(|pair| !["limits", "requests"].contains(&pair.key.as_str()))
        {
            self.draft.drop_with_note(format!("line {}: resources.{}", pair.line, pair.key));
        }
    }

    fn mount(&mut self, mount: &Node) {
        let (name, target) = (mount.text_at(&["name"]).unwrap_or_default(), mount.text_at(&["mountPath"]));
        let volumes = self.pod.get("volumes").map_or(&[][..], Node::items);
        let volume = volumes.iter().find(|volume| volume.text_at(&["name"]) == Some(name));
        let Some(target) = target else { return };
        let has_part = mount.get("subPath").is_some();
        for pair in mount.pairs() {
            if !["name", "mountPath", "readOnly", "subPath"].contains(&pair.key.as_str()) {
                self.draft.drop_with_note(format!("line {}: volumeMounts.{} of {name}", pair.line, pair.key));
            }
        }
        if let Some(limit) = volume.and_then(|volume| volume.text_at(&["emptyDir", "sizeLimit"])) {
            self.draft.drop_with_note(format!("line {}: sizeLimit {limit} of the volume {name}", mount.line));
        }
        if let Some(path) =
            volume.and_then(|volume| volume.text_at(&["hostPath", "path"])).filter(|_| !has_part)
        {
            let mode = if mount.get("readOnly").is_some_and(Node::is_true) { ":ro" } else { "" };
            return self.draft.push("volumes", Yaml::text(format!("{path}:{target}{mode}")));
        }
        if volume.and_then(|volume| volume.text_at(&["emptyDir", "medium"])) == Some("Memory") && !has_part {
            return self.draft.push("tmpfs", Yaml::text(target));
        }
        let kinds = volume.map_or(&[][..], |volume| volume.pairs()).iter().map(|pair| pair.key.as_str());
        let kind = kinds.into_iter().find(|kind| *kind != "name").unwrap_or("unknown");
        self.draft.drop_with_note(format!("line {}: the volume {name} ({kind}) at {target}", mount.line));
    }

    /// Volumes without a mount in this container.
    fn unmounted(&mut self) {
        let mounts = self.container.get("volumeMounts").map_or(&[][..], Node::items);
        for volume in self.pod.get("volumes").map_or(&[][..], Node::items) {
            let name = volume.text_at(&["name"]).unwrap_or_default();
            if mounts.iter().all(|mount| mount.text_at(&["name"]) != Some(name)) {
                self.draft
                    .drop_with_note(format!("line {}: the volume {name}, which is not mounted", volume.line));
            }
        }
    }

    /// Reads both security contexts; the container's values go before the pod's.
    fn security(&mut self) {
        let contexts: Vec<&Node> =
            [self.container, self.pod].iter().filter_map(|node| node.get("securityContext")).collect();
        let find = |key: &str| contexts.iter().find_map(|context| context.text_at(&[key]));
        match (find("runAsUser"), find("runAsGroup")) {
            (Some(user), Some(group)) => self.draft.set_text("user", format!("{user}:{group}")),
            (Some(user), None) => self.draft.set_text("user", user),
            (None, Some(group)) => {
                self.draft.drop_with_note(format!("securityContext.runAsGroup {group} without a user"));
            }
            (None, None) => {}
        }
        if find("readOnlyRootFilesystem") == Some("true") {
            self.draft.set_plain("read_only", true);
        }
        for context in contexts {
            for pair in context.pairs() {
                match pair.key.as_str() {
                    "capabilities" => {
                        for (of, key) in [("add", "cap_add"), ("drop", "cap_drop")] {
                            let names = pair.value.get(of).map_or(&[][..], Node::items);
                            names
                                .iter()
                                .filter_map(|name| name.text())
                                .for_each(|name| self.draft.push(key, Yaml::text(name)));
                        }
                    }
                    "runAsUser" | "runAsGroup" | "readOnlyRootFilesystem" => {}
                    "runAsNonRoot" if !pair.value.is_true() => {}
                    "runAsNonRoot" => self.draft.drop_with_note(format!(
                        "line {}: securityContext.runAsNonRoot: nothing checks it; \"user\" names the user",
                        pair.line
                    )),
                    // Containers never gain privileges, whatever is said.
                    "allowPrivilegeEscalation" if !pair.value.is_true() => {}
                    "privileged" if !pair.value.is_true() => {}
                    key => self.draft.drop_with_note(format!("line {}: securityContext.{key}", pair.line)),
                }
            }
        }
    }
}

/// A quantity of cores: `500m` or `0.5`.
fn cpus(text: &str) -> Option<String> {
    match text.strip_suffix('m') {
        Some(thousandths) => {
            let cores = f64::from(thousandths.parse::<u32>().ok()?) / 1_000.0;
            Some(cores.to_string())
        }
        None => text.parse::<f64>().ok().map(|_| text.to_owned()),
    }
}

/// A quantity of bytes: `512Mi`, `1Gi`, `500M` or a number.
fn bytes(text: &str) -> Option<String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let amount: u64 = text[..digits].parse().ok()?;
    let binary = [("Ki", "k"), ("Mi", "m"), ("Gi", "g"), ("Ti", "t")];
    if let Some((_, letter)) = binary.iter().find(|(unit, _)| *unit == &text[digits..]) {
        return Some(format!("{amount}{letter}"));
    }
    let decimal: u64 = match &text[digits..] {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        _ => return None,
    };
    amount.checked_mul(decimal).map(|bytes| bytes.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_keep_their_amount() {
        assert_eq!(
            ["500m", "2", "0.25", "x"].map(cpus),
            [Some("0.5".into()), Some("2".into()), Some("0.25".into()), None]
        );
        let sizes = ["512Mi", "500M", "1048576", "1e9", "1.5Gi"].map(bytes);
        assert_eq!(
            sizes,
            [Some("512m".into()), Some("500000000".into()), Some("1048576".into()), None, None]
        );
    }
}
