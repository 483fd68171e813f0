//! References of jobs files to their server: texts with variables of the environment, and environment files, each with the key that takes it.
//!
//! The text of a plan comes over the network. It may take from the server only what the server's own file, present or accepted last,
//! takes under the same key by the same text: else its answer would show any variable of the server, or parts of it, or lines of any file.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use super::annotate::annotate;
use super::collector::Collector;
use super::fault::{FaultCode, Faults, Position, quoted};
use super::sources::Sources;
use super::tree::{self, Map, Node, Value};

/// A text that takes something from the server.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reference {
    /// The path of its key, without names of jobs and numbers of items.
    key: String,
    /// In a secret parameter, the hash of its rules: whether they take its default would show what the default is.
    rules: Option<[u8; 32]>,
    /// The whole text: a part of it may be shown.
    text: String,
}

/// The first use of a reference.
#[derive(Debug)]
struct FirstUse {
    at: Position,
    /// The variable or the file.
    taken: String,
}

/// The key below which a value stands, and the rules of the secret parameter around it.
#[derive(Clone, Debug, Default)]
struct KeyContext {
    key: String,
    rules: Option<[u8; 32]>,
}

/// References with the first use of each.
#[derive(Debug, Default)]
pub(super) struct References(BTreeMap<Reference, FirstUse>);

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
        let top = KeyContext::default();
        match root {
            Value::List(jobs) => jobs.iter().for_each(|job| self.add(&top, job)),
            Value::Map(root) => {
                if let Some(defaults) = root.find("defaults") {
                    self.add(&top, &defaults.value);
                }
                match root.find("jobs").map(|jobs| &jobs.value.value) {
                    Some(Value::Map(jobs)) => jobs.pairs.iter().for_each(|job| self.add(&top, &job.value)),
                    Some(Value::List(_) | Value::Scalar(_)) | None => {}
                }
            }
            Value::Scalar(_) => {}
        }
    }

    /// These references and others.
    pub(super) fn or(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Checks that `known` has all these references.
    ///
    /// # Errors
    /// A fault for each that it has not. It names the key and what is taken.
    pub(super) fn check(&self, known: &Self, sources: &Sources<'_>) -> Result<(), Faults> {
        let mut collector = Collector::new(sources);
        let news = self.0.iter().filter(|(reference, _)| !known.0.contains_key(*reference));
        for (reference, first) in news {
            let (taken, key) = (quoted(&first.taken), quoted(reference.key.trim_start_matches('.')));
            let same = match reference.rules {
                Some(_) => "in a secret parameter with the same rules",
                None => "in the same whole text",
            };
            let text = format!(
                "a plan or a deploy takes from the server only what its jobs.yaml, present or accepted last, takes under the same key {same}, and that \
                 takes no {taken} so under {key}; check the file with 'longshore validate' on the server, and bring it there once by hand",
            );
            collector.fault_without_value(first.at, FaultCode::UnsetVariable, text);
        }
        annotate(collector.finish(), sources, &[]).map(drop)
    }

    fn add(&mut self, context: &KeyContext, node: &Node) {
        match &node.value {
            Value::Scalar(scalar) if context.key.contains(".env_file") => {
                self.add_text(context, &scalar.text, node.at, scalar.text.clone());
            }
            Value::Scalar(scalar) => self.add_variables(context, &scalar.text, node.at),
            Value::List(items) => items.iter().for_each(|item| self.add(context, item)),
            Value::Map(map) => self.add_map(context, map),
        }
    }

    fn add_map(&mut self, context: &KeyContext, map: &Map) {
        for pair in &map.pairs {
            let mut inner = KeyContext { key: format!("{}.{}", context.key, pair.key), rules: context.rules };
            self.add_variables(&inner, &pair.key, pair.key_at);
            if context.key == ".params" {
                inner.rules = rules_of_secret(&pair.value);
            }
            self.add(&inner, &pair.value);
        }
    }

    fn add_variables(&mut self, context: &KeyContext, text: &str, at: Position) {
        if let Some(name) = first_variable(text) {
            self.add_text(context, text, at, format!("${{{name}}}"));
        }
    }

    fn add_text(&mut self, context: &KeyContext, text: &str, at: Position, taken: String) {
        let reference = Reference { key: context.key.clone(), rules: context.rules, text: text.to_owned() };
        self.0.entry(reference).or_insert(FirstUse { at, taken });
    }
}

/// The hash of all that a parameter with the key `secret` says, except for its description.
fn rules_of_secret(param: &Node) -> Option<[u8; 32]> {
    let Value::Map(map) = &param.value else { return None };
    map.find("secret")?;
    let rules = map.pairs.iter().filter(|pair| pair.key != "description");
    let rules: Vec<_> = rules.map(|pair| (&pair.key, without_positions(&pair.value))).collect();
    Some(Sha256::digest(json!(rules).to_string()).into())
}

/// A node as JSON. A quoted scalar differs from a plain one, and maps keep their order.
fn without_positions(node: &Node) -> Json {
    match &node.value {
        Value::Scalar(scalar) => json!({ "plain": scalar.plain, "text": scalar.text }),
        Value::List(items) => items.iter().map(without_positions).collect(),
        Value::Map(map) => {
            let pairs = map.pairs.iter().map(|pair| json!([pair.key, without_positions(&pair.value)]));
            json!({ "map": pairs.collect::<Vec<_>>() })
        }
    }
}

/// The name of the first variable of the server in a text.
fn first_variable(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        rest = &rest[dollar + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let name = after.split('}').next().unwrap_or_default();
            if !name.starts_with("params.") {
                return Some(name);
            }
            rest = after;
        }
    }
    None
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
    fn a_plan_takes_what_the_present_file_takes_under_the_same_key_by_the_same_text() {
        let present = "defaults: {env_file: a.env}\njobs:\n  \
                       a: {image: \"app:${TAG}\", environment: {PW: \"${PW}\"}, notify: [{webhook: \"https://h.example/${HOOK}\"}]}\n";
        for (text, allowed) in [
            ("[{name: b, image: \"app:${TAG}\", timeout: 1m}]", true),
            ("[{name: b, image: x, environment: {PW: \"${PW}\", MORE: text}}]", true),
            ("[{name: b, image: x, notify: {webhook: \"https://h.example/${HOOK}\", on: [failed]}}]", true),
            ("[{name: b, image: \"other:${TAG}\"}]", false),
            ("[{name: b, image: x, environment: [\"OTHER=${PW}\"]}]", false),
            ("[{name: b, image: x, environment: {OTHER: \"${PW}\"}}]", false),
            ("[{name: b, image: x, environment: {\"${PW}\": x}}]", false),
            ("[{name: b, image: x, environment: {PW: {secret: \"${PW}\"}}}]", false),
            ("[{name: b, image: x, environment: {X: {secret: \"${PW}\"}}}]", false),
            ("[{name: b, image: x, notify: [{webhook: \"https://${HOOK}.evil.example/\"}]}]", false),
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
    }

    #[test]
    fn a_plan_changes_no_rule_of_a_secret_default_that_comes_from_a_variable() {
        let present = "[{name: a, params: {p: {type: string, secret: true, default: \"${PW}\", min: 3}}}]";
        for (from, to, allowed) in [
            ("name: a", "name: b", true),
            ("min: 3", "min: 3, description: new", true),
            ("secret: true", "secret: false", false),
            ("secret: true, ", "", false),
            ("min: 3", "min: 4", false),
            ("min: 3", "min: 3, pattern: \"^[a-m].*$\"", false),
            ("string", "list", false),
        ] {
            let text = present.replace(from, to);
            assert_ne!(text, present);
            assert_eq!(is_allowed(present, &text), allowed, "{text}");
        }
    }

    #[test]
    fn a_fault_names_the_key_and_the_variable() {
        let sources = |text| Sources::of_file(text, Path::new("jobs.yaml"));
        let text = "[{name: b, environment: {X: {secret: \"a${DBPW}b\"}}}]";
        let faults =
            References::of(&sources(text)).check(&References::default(), &sources(text)).unwrap_err();
        let shown = faults.to_string();
        assert!(shown.contains("\"environment.X.secret\"") && shown.contains("${DBPW}"), "{shown}");
    }
}
