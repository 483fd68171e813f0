//! A map of the file laid over the same map of `defaults`: a key is looked up in the job first, then there.

use super::fault::{Code, quoted};
use super::keys::{self, Key};
use super::reader::Reader;
use super::tree::{Map, Node, Value};

/// The keys of a job, or of a part of one, with the defaults behind them.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    own: Option<&'a Map>,
    defaults: Option<&'a Map>,
}

impl<'a> Scope<'a> {
    pub(super) fn new(own: &'a Map, defaults: Option<&'a Map>) -> Self {
        Self { own: Some(own), defaults }
    }

    /// The value for a key: the job's own, else that of the defaults.
    pub(super) fn find(&self, name: &str) -> Option<&'a Node> {
        self.own_value(name).or_else(|| self.default_value(name))
    }

    /// The values for a key whose parts are merged: first the defaults', then the job's own.
    pub(super) fn find_both(&self, name: &str) -> impl Iterator<Item = &'a Node> {
        self.default_value(name).into_iter().chain(self.own_value(name))
    }

    /// The part behind a key, merged key by key. A value of another kind is noted as a fault.
    pub(super) fn part(&self, name: &str, keys: &[Key], reader: &mut Reader<'_>) -> Self {
        Self {
            own: self.own_value(name).and_then(|node| part_of(node, keys, reader)),
            defaults: self.default_value(name).and_then(|node| part_of(node, keys, reader)),
        }
    }

    /// Whether there is a key that is probably meant to be this one: its absence need not be told, too.
    pub(super) fn has_misspelt(&self, name: &str) -> bool {
        self.own
            .is_some_and(|map| map.pairs.iter().any(|pair| strsim::damerau_levenshtein(&pair.key, name) <= 2))
    }

    fn own_value(&self, name: &str) -> Option<&'a Node> {
        self.own.and_then(|map| find_in(map, name))
    }

    fn default_value(&self, name: &str) -> Option<&'a Node> {
        self.defaults.and_then(|map| find_in(map, name))
    }
}

fn find_in<'a>(map: &'a Map, name: &str) -> Option<&'a Node> {
    map.pairs.iter().find(|pair| keys::canonical(&pair.key) == name).map(|pair| &pair.value)
}

fn part_of<'a>(node: &'a Node, keys: &[Key], reader: &mut Reader<'_>) -> Option<&'a Map> {
    match &node.value {
        Value::Map(map) => {
            check_keys(map, keys, &[], reader);
            Some(map)
        }
        _ => {
            reader.wrong_type(node, "a map");
            None
        }
    }
}

/// Notes every key of a map that does not belong there. Keys in `extra` do, too; `x-*` among them is every key that begins so.
pub(super) fn check_keys(map: &Map, keys: &[Key], extra: &[&str], reader: &mut Reader<'_>) {
    for (position, pair) in map.pairs.iter().enumerate() {
        let name = pair.key.as_str();
        if name.starts_with("x-") && extra.contains(&"x-*") {
            continue;
        }
        let canonical = keys::canonical(name);
        if extra.contains(&name) || keys.iter().any(|key| key.name == canonical) {
            if let Some(first) =
                map.pairs[..position].iter().find(|other| keys::canonical(&other.key) == canonical)
            {
                let text = format!(
                    "{} means the same as {}, line {}",
                    quoted(name),
                    quoted(&first.key),
                    first.key_at.line
                );
                reader.fault(pair.key_at, Code::DuplicateKey, text);
            }
            continue;
        }
        let (code, text) = refusal(name, keys, extra);
        reader.fault(pair.key_at, code, text);
    }
}

fn refusal(name: &str, keys: &[Key], extra: &[&str]) -> (Code, String) {
    let shown = quoted(name);
    if keys::PLANNED.contains(&name) {
        return (Code::UnsupportedField, format!("{shown} is not supported yet"));
    }
    if keys::FORBIDDEN.contains(&name) {
        return (Code::ForbiddenOption, format!("{shown} is not supported; see worker policy"));
    }
    let known = || keys.iter().map(|key| key.name).chain(extra.iter().copied());
    let nearest = known().map(|key| (strsim::damerau_levenshtein(name, key), key)).min();
    let text = match (keys::MISNOMERS.iter().find(|(word, _)| *word == name), nearest) {
        (Some((_, meant)), _) if !known().any(|key| key == "target") => {
            format!("unknown field {shown}: did you mean \"{meant}\"?")
        }
        (_, Some((distance, key))) if distance <= 2.min(name.chars().count() / 2) => {
            format!("unknown field {shown}: did you mean \"{key}\"?")
        }
        _ => format!("unknown field {shown}; known here are {}", known().collect::<Vec<_>>().join(", ")),
    };
    (Code::UnknownField, text)
}
