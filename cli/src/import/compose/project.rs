//! A compose file that is read.

use super::super::document::Node;
use super::super::source::Source;

/// A compose file.
pub(super) struct Project<'s> {
    pub(super) source: &'s Source,
    pub(super) root: &'s Node,
    pub(super) services: &'s Node,
    pub(super) zone: Option<&'s str>,
}

impl Project<'_> {
    /// The name that Docker knows a network or a volume by, if compose leaves it as it is.
    pub(super) fn outer_name(&self, kind: &str, name: &str) -> Option<String> {
        let entry = self.root.at(&[kind, name])?;
        match entry.text_at(&["name"]) {
            Some(outer) => Some(outer.to_owned()),
            None => entry.get("external").is_some_and(Node::is_true).then(|| name.to_owned()),
        }
    }
}
