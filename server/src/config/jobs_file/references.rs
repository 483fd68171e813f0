//! References of jobs files to their server: variables of the environment and environment files, each with the key that takes it.
//!
//! The text of a plan comes over the network. It may take from the server only what the server's own file takes under the same key: else its
//! answer would show any variable of the server, or lines of any file.

use std::collections::BTreeMap;

use super::annotate::annotate;
use super::collector::Collector;
use super::fault::{Code, Faults, Position, quoted};
use super::sources::Sources;
use super::tree::{self, Map, Node, Value};

/// The path of a key, without names of jobs and numbers of items, and what is taken there.
type Reference = (String, String);

/// References with the position of the first one of each.
#[derive(Debug, Default)]
pub(super) struct References(BTreeMap<Reference, Position>);

impl References {
    /// The references of all texts; those of a part that is not YAML are left out, because no reader sees it either.
    pub(super) fn of(sources: &Sources<'_>) -> Self {
        let mut references = Self::default();
        let (mut collector, mut copied) = (Collector::new(sources), tree::Size::default());
        for (number, file) in sources.files.iter().enumerate() {
            collector.enter(collector.index_of(number));
            let Ok(text) = file.text else { continue };
            if let Some(root) = tree::read(text, &mut copied, &mut collector) {
                references.add_file(&root.value);
            }
        }
        references
    }

    fn add_file(&mut self, root: &Value) {
        match root {
            Value::List(jobs) => jobs.iter().for_each(|job| self.add("", job)),
            Value::Map(root) => {
                if let Some(defaults) = root.find("defaults") {
                    self.add("", &defaults.value);
                }
                match root.find("jobs").map(|jobs| &jobs.value.value) {
                    Some(Value::Map(jobs)) => jobs.pairs.iter().for_each(|job| self.add("", &job.value)),
                    Some(Value::List(_) | Value::Scalar(_)) | None => {}
                }
            }
            Value::Scalar(_) => {}
        }
    }

    /// Checks that `present` has all these references.
    ///
    /// # Errors
    /// A fault for each that it has not.
    pub(super) fn check(&self, present: &Self, sources: &Sources<'_>) -> Result<(), Faults> {
        let mut collector = Collector::new(sources);
        let news = self.0.iter().filter(|(reference, _)| !present.0.contains_key(*reference));
        for ((key, taken), at) in news {
            let key = key.trim_start_matches('.');
            let text = format!(
                "a plan takes from the server only what its present jobs.yaml takes under the same key, and that takes no {} under {}; \
                 use 'longshore validate' on the server",
                quoted(taken),
                quoted(key),
            );
            collector.fault_without_value(*at, Code::UnsetVariable, text);
        }
        annotate(collector.finish(), sources, &[]).map(drop)
    }

    fn add(&mut self, path: &str, node: &Node) {
        match &node.value {
            Value::Scalar(scalar) => {
                if path.contains(".env_file") {
                    self.0.entry((path.to_owned(), scalar.text.clone())).or_insert(node.at);
                }
                self.add_variables(path, &scalar.text, node.at);
            }
            Value::List(items) => items.iter().for_each(|item| self.add(path, item)),
            Value::Map(map) => self.add_map(path, map),
        }
    }

    fn add_map(&mut self, path: &str, map: &Map) {
        // The value of a secret parameter is hidden, that of another one is shown.
        let is_secret = map
            .find("secret")
            .is_some_and(|pair| matches!(&pair.value.value, Value::Scalar(it) if it.text == "true"));
        let path = if is_secret { format!("{path}(secret)") } else { path.to_owned() };
        for pair in &map.pairs {
            let inner = match path.ends_with(".environment") {
                true => path.clone(),
                false => format!("{path}.{}", pair.key),
            };
            self.add_variables(&inner, &pair.key, pair.key_at);
            self.add(&inner, &pair.value);
        }
    }

    fn add_variables(&mut self, path: &str, text: &str, at: Position) {
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            rest = &rest[dollar + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                rest = after;
            } else if let Some(after) = rest.strip_prefix('{') {
                let name = after.split('}').next().unwrap_or_default();
                if !name.starts_with("params.") {
                    self.0.entry((path.to_owned(), format!("${{{name}}}"))).or_insert(at);
                }
                rest = after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn is_allowed(present: &str, text: &str) -> bool {
        let sources = |text| Sources::of_file(text, Path::new("jobs.yaml"));
        References::of(&sources(text)).check(&References::of(&sources(present)), &sources(text)).is_ok()
    }

    #[test]
    fn a_plan_takes_what_the_present_file_takes_under_the_same_key() {
        let present = "defaults: {env_file: a.env}\njobs:\n  a: {image: \"app:${TAG}\", environment: {PW: \"${PW}\"}}\n";
        for (text, allowed) in [
            ("[{name: b, image: \"other:${TAG}\"}]", true),
            ("[{name: b, image: x, environment: [\"OTHER=${PW}\"]}]", true),
            ("[{name: b, image: x, env_file: [a.env]}]", true),
            ("[{name: b, image: x, command: \"$${PW} ${params.size}\"}]", true),
            ("[{name: b, image: x, command: \"${PW}\"}]", false),
            ("[{name: b, image: \"${PW}\"}]", false),
            ("[{name: b, image: x, environment: {OTHER: \"${OTHER}\"}}]", false),
            ("[{name: b, image: x, env_file: /etc/passwd}]", false),
            ("x-a: &a [\"${PW}\"]\njobs: {b: {image: x, command: *a}}", false),
        ] {
            assert_eq!(is_allowed(present, text), allowed, "{text}");
        }
        let secret = "[{name: a, params: {p: {type: string, secret: true, default: \"${PW}\"}}}]";
        assert!(is_allowed(secret, secret) && !is_allowed(secret, &secret.replace("true", "false")));
    }
}
