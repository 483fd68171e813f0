//! Every crate takes its lints from the workspace, which forbids unsafe code.

use super::Complaint;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    tree.files()
        .filter(|(file, _)| file.ends_with("/Cargo.toml") && !EXEMPT.contains(file))
        .filter(|(_, text)| !text.contains("\n[lints]\nworkspace = true\n"))
        .map(|(file, _)| Complaint {
            file: file.to_owned(),
            line: 1,
            what: "this crate does not inherit the lints of the workspace".to_owned(),
            why: "the workspace forbids unsafe code and asks for documentation; a crate that does not inherit its lints has no such rules",
            instead: "write `[lints]` and `workspace = true`; or add a line to EXEMPT (xtask/src/tidy/lints.rs) and say why in the commit",
        })
        .collect()
}

/// A file system for SQLite is a table of C functions: it needs unsafe code, and only tests depend on it. The fuzz targets need another
/// compiler, so they are a workspace of their own.
const EXEMPT: [&str; 2] = ["baddisk/Cargo.toml", "fuzz/Cargo.toml"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_without_the_lints_of_the_workspace_is_found() {
        let good = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n";
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace]\n"),
            ("a/Cargo.toml", good),
            ("b/Cargo.toml", "[package]\nname = \"b\"\n"),
            ("baddisk/Cargo.toml", "[lints.rust]\n"),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|it| it.file).collect();
        assert_eq!(found, ["b/Cargo.toml"]);
    }
}
