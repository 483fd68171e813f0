//! A map of the file and the same map of `defaults`: a key is looked up in the job first, then in the defaults.

use std::collections::HashSet;

use super::fault::{FaultCode, Position, quoted};
use super::grammar;
use super::keys::{self, Key};
use super::reader::Reader;
use super::tree::{Map, Node, Pair, Value};

/// The keys of a job, or of a part of one, with the defaults for keys that it lacks.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a> {
    own: Option<Layer<'a>>,
    defaults: Option<Layer<'a>>,
    /// Keys that are not taken from the defaults, each with the reason.
    own_only: &'static [(&'static str, &'static str)],
}

/// One level's value of a part.
#[derive(Clone, Copy)]
enum Layer<'a> {
    Map(&'a Map),
    /// A bare value, and the key that it stands for.
    Short(&'static str, &'a Node),
}

impl Node {
    /// True if a key or a value in it stands at one of these positions.
    pub(super) fn has_any_at(&self, positions: &HashSet<Position>) -> bool {
        let is_there = |pair: &Pair| positions.contains(&pair.key_at) || pair.value.has_any_at(positions);
        match &self.value {
            Value::List(items) => items.iter().any(|item| item.has_any_at(positions)),
            Value::Map(map) => map.pairs.iter().any(is_there),
            Value::Scalar(_) => positions.contains(&self.at),
        }
    }
}

impl<'a> Scope<'a> {
    pub(super) fn new(own: &'a Map, defaults: Option<&'a Map>) -> Self {
        Self { own: Some(Layer::Map(own)), defaults: defaults.map(Layer::Map), own_only: &[] }
    }

    /// For a job that runs as a plain process: container keys of the job are faults, and those of the defaults are ignored, because the
    /// defaults also serve other jobs.
    pub(super) fn for_plain_process(self, reader: &mut Reader<'_>) -> Self {
        let Some(Layer::Map(own)) = self.own else { return self };
        for pair in &own.pairs {
            // It may reserve what only the server counts.
            if let ("resources", Value::Map(resources)) = (&*pair.key, &pair.value.value) {
                for limit in
                    resources.pairs.iter().filter(|it| ["cpus", "memory", "pids"].contains(&&*it.key))
                {
                    let text = format!(
                        "resources.{} cannot be had with runtime process: nothing bounds what it uses; remove it, or use runtime docker",
                        limit.key
                    );
                    reader.fault(limit.key_at, FaultCode::UnsupportedField, text);
                }
                continue;
            }
            if let Some((name, reason)) = keys::CONTAINER_ONLY.iter().find(|(name, _)| *name == pair.key) {
                let text = format!(
                    "{} cannot be had with runtime process: {reason}; remove it, or use runtime docker",
                    quoted(name)
                );
                reader.fault(pair.key_at, FaultCode::UnsupportedField, text);
            }
        }
        Self { own_only: keys::CONTAINER_ONLY, ..self }
    }

    /// The value of a key: the job's own, else that of the defaults.
    pub(super) fn find(&self, name: &str) -> Option<&'a Node> {
        self.own_value(name).or_else(|| self.default_value(name))
    }

    /// True if a value below a key has a variable of the server in it.
    pub(super) fn has_variable(&self, name: &str) -> bool {
        self.find_both(name).any(Node::has_variable)
    }

    /// True if a value of this key was left out.
    pub(super) fn has_left_out(&self, name: &str, reader: &Reader<'_>) -> bool {
        self.find_both(name).any(|node| node.has_any_at(&reader.left_out))
    }

    /// The values for a key whose parts are merged: first the defaults', then the job's own.
    pub(super) fn find_both(&self, name: &str) -> impl Iterator<Item = &'a Node> {
        self.default_value(name).into_iter().chain(self.own_value(name))
    }

    /// The part under a key, merged key by key. A value of another type is recorded as a fault.
    pub(super) fn part(&self, name: &str, keys: &[Key], reader: &mut Reader<'_>) -> Self {
        self.layers(name, |node| match &node.value {
            Value::Map(map) => Some(checked_map(map, keys, reader)),
            _ => {
                reader.wrong_type(node, "a map");
                None
            }
        })
    }

    /// As [`Self::part`], where a bare value stands for the first of the keys.
    pub(super) fn part_or_shorthand(&self, name: &str, keys: &[Key], reader: &mut Reader<'_>) -> Self {
        self.layers(name, |node| match &node.value {
            Value::Map(map) => Some(checked_map(map, keys, reader)),
            Value::Scalar(_) => keys.first().map(|first| Layer::Short(first.name, node)),
            Value::List(_) => {
                reader.wrong_type(node, "a map or a whole number");
                None
            }
        })
    }

    fn layers(&self, name: &str, mut read: impl FnMut(&'a Node) -> Option<Layer<'a>>) -> Self {
        Self {
            own: self.own_value(name).and_then(&mut read),
            defaults: self.default_value(name).and_then(&mut read),
            own_only: &[],
        }
    }

    /// True if a key is present that is probably a misspelling of this one: then its absence is not reported.
    pub(super) fn has_misspelt(&self, name: &str) -> bool {
        let Some(Layer::Map(own)) = self.own else { return false };
        own.pairs.iter().any(|pair| grammar::nearest(&pair.key, std::iter::once(name)).is_some())
    }

    /// The job's own value of a key.
    pub(super) fn own_value(&self, name: &str) -> Option<&'a Node> {
        self.own.and_then(|layer| layer.find(name))
    }

    /// The position for a fault of several keys together: the first of them that the job itself sets, else `otherwise`.
    pub(super) fn own_position(&self, names: &[&str], otherwise: Position) -> Position {
        names.iter().find_map(|name| self.own_value(name)).map_or(otherwise, |node| node.at)
    }

    /// The defaults' value of a key.
    pub(super) fn default_value(&self, name: &str) -> Option<&'a Node> {
        let is_own_only = self.own_only.iter().any(|(key, _)| *key == name);
        self.defaults.filter(|_| !is_own_only).and_then(|layer| layer.find(name))
    }
}

impl<'a> Layer<'a> {
    fn find(self, name: &str) -> Option<&'a Node> {
        match self {
            Self::Map(map) => {
                map.pairs.iter().find(|pair| keys::canonical(&pair.key) == name).map(|pair| &pair.value)
            }
            Self::Short(key, node) => (key == name).then_some(node),
        }
    }
}

fn checked_map<'a>(map: &'a Map, keys: &[Key], reader: &mut Reader<'_>) -> Layer<'a> {
    check_keys(map, keys, &[], reader);
    Layer::Map(map)
}

/// Records every unknown key of a map. Keys in `extra` are allowed as well; `x-*` in it allows every key with that prefix.
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
                reader.fault(pair.key_at, FaultCode::DuplicateKey, text);
            }
            continue;
        }
        let (code, text) = refusal(name, keys, extra);
        reader.fault(pair.key_at, code, text);
    }
}

/// Endings by which other systems name the unit of a duration, the longest first.
const UNIT_SUFFIXES: [&str; 12] = [
    "_in_milliseconds",
    "_in_seconds",
    "_milliseconds",
    "_seconds",
    "_minutes",
    "_millis",
    "_hours",
    "_msec",
    "_secs",
    "_sec",
    "_ms",
    "_s",
];

fn refusal(name: &str, keys: &[Key], extra: &[&str]) -> (FaultCode, String) {
    let shown = quoted(name);
    if keys::FORBIDDEN.contains(&name) {
        let text = match name {
            "network_mode" => format!("{shown} is not supported: write \"network\""),
            _ => format!("{shown} would give the job control of the machine, and no worker can allow it"),
        };
        return (FaultCode::ForbiddenOption, text);
    }
    let is_job = keys.iter().any(|key| key.name == "hooks");
    if let Some((_, advice)) = keys::MISPLACED.iter().find(|(word, _)| is_job && *word == name) {
        return (FaultCode::UnknownField, format!("unknown field {shown}: {advice}"));
    }
    let known = || keys.iter().map(|key| key.name).chain(extra.iter().copied());
    let is_known = |meant: &str| known().any(|key| Some(key) == meant.split('.').next());
    let misnomer = keys::MISNOMERS.iter().find(|(word, meant)| *word == name && is_known(meant));
    let stem = UNIT_SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
    if let Some(stem) = stem.filter(|stem| is_known(keys::canonical(stem))) {
        let text =
            format!("unknown field {shown}: write \"{stem}\" with a unit, such as 90s, 1h30m or 500ms");
        return (FaultCode::UnknownField, text);
    }
    let meant = misnomer.map(|(_, meant)| *meant).or_else(|| grammar::nearest(name, known()));
    let text = match meant {
        Some(key) => format!("unknown field {shown}: did you mean \"{key}\"?"),
        None => format!("unknown field {shown}; {}", known_keys(name, &known().collect::<Vec<_>>())),
    };
    (FaultCode::UnknownField, text)
}

/// A message does not list more keys than this.
const LISTED_KEYS_MAX: usize = 12;

/// The keys of a small map. Of a large one, those that share a word with `name`, and the place of the list.
fn known_keys(name: &str, known: &[&str]) -> String {
    if known.len() <= LISTED_KEYS_MAX {
        return format!("known here are {}", known.join(", "));
    }
    let words: Vec<&str> = name.split('_').filter(|word| word.len() > 2).take(LISTED_KEYS_MAX).collect();
    let shares_a_word = |key: &&str| key.split('_').any(|word| words.contains(&word));
    let similar: Vec<&str> = known.iter().copied().filter(shares_a_word).take(LISTED_KEYS_MAX).collect();
    let place = "docs/jobs-yaml.md and 'longshore schema' list all keys";
    if similar.is_empty() {
        place.to_owned()
    } else {
        format!("similar keys are {}; {place}", similar.join(", "))
    }
}
