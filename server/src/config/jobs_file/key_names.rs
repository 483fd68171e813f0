//! Puts the key before the text of each fault of a value: `jitter: "2h" is not within 1ms to 1h`.
//!
//! The readers of values know the position and not the key, because a value may come from a list, the defaults or an alias. The tree
//! knows both, so the key is added once, when all faults are known.

use std::collections::{HashMap, HashSet};

use super::fault::{Code, Fault, Position};
use super::keys::{self, Key, Shape};
use super::tree::{Node, Value};

/// Names the key in each fault of a value of this file.
pub(super) fn add<'f>(faults: impl Iterator<Item = &'f mut Fault>, root: &Node) {
    let mut faults: Vec<&mut Fault> = faults.filter(|fault| is_of_a_value(fault.code)).collect();
    let mut finder = Finder {
        known: HashSet::new(),
        wanted: faults.iter().map(|fault| fault.at).collect(),
        found: HashMap::new(),
    };
    if finder.wanted.is_empty() {
        return;
    }
    // The name of a job in a list.
    finder.known.insert("name");
    collect(keys::JOB, &mut finder.known);
    finder.walk(root, None);
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
    /// Keys of the format. Names that a user chose are none: `LIMIT` in `environment: { LIMIT: x }`.
    known: HashSet<&'static str>,
    wanted: HashSet<Position>,
    found: HashMap<Position, &'n str>,
}

impl<'n> Finder<'n> {
    /// `key` is the nearest known key above the node. The recursion is as deep as the tree, which is bounded.
    fn walk(&mut self, node: &'n Node, key: Option<&'n str>) {
        if let Some(key) = key.filter(|_| self.wanted.contains(&node.at)) {
            // A map or a list in block style begins where its first value does: the outer one is first.
            self.found.entry(node.at).or_insert(key);
        }
        match &node.value {
            Value::Scalar(_) => {}
            Value::List(items) => items.iter().for_each(|item| self.walk(item, key)),
            Value::Map(map) => {
                for pair in &map.pairs {
                    let is_known = self.known.contains(keys::canonical(&pair.key));
                    self.walk(&pair.value, if is_known { Some(&pair.key) } else { key });
                }
            }
        }
    }
}

fn collect(keys: &'static [Key], known: &mut HashSet<&'static str>) {
    for key in keys {
        known.insert(key.name);
        match key.shape {
            Shape::Volumes => collect(keys::VOLUME, known),
            Shape::Schedules => collect(keys::time::SCHEDULE, known),
            Shape::Part(part)
            | Shape::PartList(part)
            | Shape::Parts(part)
            | Shape::PartOrInteger(part, _) => collect(part, known),
            _ => {}
        }
    }
}

/// False for faults of a key, of a job or of the file, which name what they are about.
const fn is_of_a_value(code: Code) -> bool {
    !matches!(
        code,
        Code::CannotRead
            | Code::FileTooLarge
            | Code::NotUtf8
            | Code::YamlSyntax
            | Code::YamlBudget
            | Code::TooDeep
            | Code::MultipleDocuments
            | Code::UnsupportedTag
            | Code::NulByte
            | Code::DuplicateKey
            | Code::ExpectedJobs
            | Code::NoJobs
            | Code::UnsupportedVersion
            | Code::UnknownField
            | Code::UnsupportedField
            | Code::ForbiddenOption
            | Code::MissingField
    )
}
