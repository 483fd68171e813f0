//! Paths that exist on one person's machine only.

use std::path::Path;

use super::Complaint;
use super::tree::Tree;

/// Paths of this machine: the workspace, the home directory, and the parents of home directories.
pub(super) fn of_this_machine(root: &Path) -> Vec<String> {
    let home = std::env::var("HOME").ok().map(|home| format!("{}/", home.trim_end_matches('/')));
    let root = root.display().to_string();
    // A root of one name (`/src`) is an ordinary word in documentation.
    let root = (root.matches('/').count() > 1).then_some(root);
    let homes = ["/home/", "/Users/"].map(str::to_owned);
    home.into_iter().chain(root).filter(|path| path.len() > 2).chain(homes).collect()
}

pub(super) fn check(tree: &Tree, machine: &[String]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (file, text) in tree.files().filter(|(file, _)| !file.starts_with("xtask/src/tidy")) {
        for (index, line) in text.lines().enumerate() {
            complaints.extend(machine.iter().filter(|path| has_path(line, path)).map(|path| Complaint {
                file: file.to_owned(),
                line: index + 1,
                what: format!("a path of one machine: `{path}`"),
                why: "it is wrong on every other machine, and may name a person",
                instead: "a path relative to the workspace, a temporary directory, or `~`",
            }));
        }
    }
    complaints
}

/// True if `line` contains the path from its root on.
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        !line[..at]
            .chars()
            .next_back()
            .is_some_and(|before| before.is_alphanumeric() || "._-~}$".contains(before))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_this_machine_is_found_in_any_file() {
        let machine = of_this_machine(Path::new("/somebody/longshore"));
        let tree = Tree::of(&[
            ("docs/a.md", "first\nrun /somebody/longshore/target/x\n"),
            ("a.rs", "let home = \"/home/somebody\";"),
            ("b.md", "see site/home/index and $ROOT/home/x"),
        ]);
        let found: Vec<_> = check(&tree, &machine).into_iter().map(|it| (it.file, it.line)).collect();
        assert_eq!(found, [("a.rs".to_owned(), 1), ("docs/a.md".to_owned(), 2)]);
    }
}
