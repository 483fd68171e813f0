//! Puts the key before the text of each fault of a value: `jitter: "2h" is not within 1ms to 1h`.
//!
//! The readers of values know the position and not the key, because a value may come from a list, the defaults or an alias. The tree
//! knows both, so the key is added once, when all faults are known.

use std::collections::{HashMap, HashSet};

use super::fault::{Fault, FaultCode, Position};
use super::keys::{self, Key, Shape};
use super::tree::{Node, Value};

/// Names the key in each fault of a value of this file.
pub(super) fn add<'f>(faults: impl Iterator<Item = &'f mut Fault>, root: &Node) {
    let mut faults: Vec<&mut Fault> = faults.filter(|fault| is_of_a_value(fault.code)).collect();
    let mut finder = Finder { wanted: faults.iter().map(|fault| fault.at).collect(), found: HashMap::new() };
    if finder.wanted.is_empty() {
        return;
    }
    finder.walk_file(root);
    for fault in &mut faults {
        let Some(key) = finder.found.get(&fault.at) else { continue };
        let subject = fault.text.strip_prefix("the ").unwrap_or(&fault.text);
        let is_named = subject.strip_prefix(key).is_some_and(|rest| rest.starts_with(' '));
        if !is_named {
            fault.text.insert_str(0, &format!("{key}: "));
        }
    }
}

/// Finds the keys of values by their positions.
struct Finder<'n> {
    wanted: HashSet<Position>,
    found: HashMap<Position, &'n str>,
}

/// The meaning of the words before the values of a map.
#[derive(Clone, Copy)]
enum MapKeys {
    /// Keys of the format.
    Format(&'static [Key]),
    /// Names that a user chose, each before a map with these keys of the format.
    Names(&'static [Key]),
    /// Names that a user chose: `image` in `environment: { image: x }` is no key of the format, and nothing below it is.
    Free,
}

impl MapKeys {
    /// The words in a value of this shape, or in its items.
    const fn below(shape: &Shape) -> Self {
        match shape {
            Shape::Volumes => Self::Format(keys::VOLUME),
            Shape::Schedules => Self::Format(keys::time::SCHEDULE),
            Shape::Part(part) | Shape::PartList(part) | Shape::PartOrInteger(part, _) => Self::Format(part),
            Shape::Parts(part) => Self::Names(part),
            Shape::Variables => Self::Names(keys::SECRET_REFERENCE),
            _ => Self::Free,
        }
    }
}

impl<'n> Finder<'n> {
    fn walk_file(&mut self, root: &'n Node) {
        match &root.value {
            Value::Scalar(_) => {}
            Value::List(jobs) => {
                for job in jobs {
                    if let Value::Map(map) = &job.value
                        && let Some(name) = map.find("name")
                    {
                        self.walk(&name.value, Some(&name.key), MapKeys::Free);
                    }
                    self.walk(job, None, MapKeys::Format(keys::JOB));
                }
            }
            Value::Map(map) => {
                for pair in &map.pairs {
                    match pair.key.as_str() {
                        "defaults" => self.walk(&pair.value, None, MapKeys::Format(keys::JOB)),
                        "jobs" => self.walk(&pair.value, None, MapKeys::Names(keys::JOB)),
                        _ => {}
                    }
                }
            }
        }
    }

    /// `key` is the nearest key of the format above the node. The recursion is as deep as the tree, which is bounded.
    fn walk(&mut self, node: &'n Node, key: Option<&'n str>, words: MapKeys) {
        if let Some(key) = key.filter(|_| self.wanted.contains(&node.at)) {
            // A map or a list in block style begins where its first value does: the outer one is first.
            self.found.entry(node.at).or_insert(key);
        }
        match &node.value {
            Value::Scalar(_) => {}
            Value::List(items) => items.iter().for_each(|item| self.walk(item, key, words)),
            Value::Map(map) => {
                for pair in &map.pairs {
                    let (key, below) = match words {
                        MapKeys::Format(known) => match find(known, &pair.key) {
                            Some(found) => (Some(pair.key.as_str()), MapKeys::below(&found.shape)),
                            None => (key, MapKeys::Free),
                        },
                        MapKeys::Names(known) => (key, MapKeys::Format(known)),
                        MapKeys::Free => (key, MapKeys::Free),
                    };
                    self.walk(&pair.value, key, below);
                }
            }
        }
    }
}

fn find(known: &'static [Key], word: &str) -> Option<&'static Key> {
    let name = keys::canonical(word);
    known.iter().find(|key| key.name == name)
}

/// False for faults of a key, of a job or of the file, which name what they are about.
const fn is_of_a_value(code: FaultCode) -> bool {
    !matches!(
        code,
        FaultCode::CannotRead
            | FaultCode::FileTooLarge
            | FaultCode::NotUtf8
            | FaultCode::YamlSyntax
            | FaultCode::YamlBudget
            | FaultCode::TooDeep
            | FaultCode::MultipleDocuments
            | FaultCode::UnsupportedTag
            | FaultCode::NulByte
            | FaultCode::DuplicateKey
            | FaultCode::ExpectedJobs
            | FaultCode::NoJobs
            | FaultCode::UnsupportedVersion
            | FaultCode::UnknownField
            | FaultCode::UnsupportedField
            | FaultCode::ForbiddenOption
            | FaultCode::MissingField
    )
}
