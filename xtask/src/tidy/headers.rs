//! Every module begins with a comment about its content.

use super::Complaint;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    tree.rust()
        .filter(|(_, text)| {
            !text.lines().find(|line| !line.trim().is_empty()).is_some_and(|line| line.starts_with("//!"))
        })
        .map(|(file, _)| Complaint {
            file: file.to_owned(),
            line: 1,
            what: "the module has no header".to_owned(),
            why: "a reader learns the content and the main idea of a file before its code",
            instead: "two to ten lines of `//!` at the top",
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_without_header_is_found() {
        let tree =
            Tree::of(&[("a.rs", "//! What it is.\n"), ("b.rs", "use a;\n"), ("c.rs", ""), ("d.md", "text")]);
        let found: Vec<_> = check(&tree).into_iter().map(|it| it.file).collect();
        assert_eq!(found, ["b.rs", "c.rs"]);
    }
}
