//! `cargo xtask tidy`: the rules of CONTRIBUTING.md that a machine can check and no other tool does.
//!
//! A rule reads the [`Tree`] (every file of the workspace, in memory) and gives back [`Complaint`]s: where, what, why, and what to do
//! instead. Rules read no files themselves, so that each is tested with a small planted violation.

mod cited;
mod headers;
mod layers;
mod links;
mod lints;
mod paths;
mod plain_words;
mod planted;
mod ratchet;
mod tree;
mod words;

use std::fmt;
use std::path::Path;

use anyhow::bail;

use tree::Tree;

/// Checks the workspace at `root`; prints every complaint.
///
/// # Errors
/// There are complaints, or the workspace cannot be read.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let tree = Tree::read(root)?;
    let mut complaints = layers::check(&layers::Package::all(root)?, &tree);
    complaints.extend(words::check(&tree));
    complaints.extend(paths::check(&tree, &paths::of_this_machine(root)));
    complaints.extend(headers::check(&tree));
    complaints.extend(links::check(&tree));
    complaints.extend(cited::check(&tree));
    complaints.extend(lints::check(&tree));
    complaints.extend(ratchet::check(&tree));
    complaints.extend(planted::check(&tree));
    complaints.extend(plain_words::check(&tree));
    complaints.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    for complaint in &complaints {
        println!("{complaint}");
    }
    match complaints.len() {
        0 => Ok(()),
        1 => bail!("one complaint"),
        count => bail!("{count} complaints"),
    }
}

/// Something that is against a rule.
#[derive(Debug, PartialEq, Eq)]
struct Complaint {
    /// Relative to the workspace.
    file: String,
    /// From 1.
    line: usize,
    what: String,
    why: &'static str,
    instead: &'static str,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, what, why, instead } = self;
        write!(f, "{file}:{line}: {what}\n    why: {why}\n    instead: {instead}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_says_where_what_why_and_what_to_do() {
        let complaint =
            Complaint { file: "a.rs".into(), line: 3, what: "it".into(), why: "because", instead: "that" };
        assert_eq!(complaint.to_string(), "a.rs:3: it\n    why: because\n    instead: that");
    }
}
