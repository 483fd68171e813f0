//! Comments cite only pages that are in the repository, and only rules that the page has.
//!
//! A citation is the path of a Markdown file from the root of the repository, such as `docs/protocol.md`. An id or a row may follow it
//! after a comma (`docs/design/failures.md, F21`, `docs/design/bad-inputs.md, row 86`): the first cell of a table row must bear it.
//!
//! In the other direction, a path of a crate that a page of `docs/design` names in backquotes must exist.

use super::Complaint;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (file, text) in tree.files().filter(|(file, _)| !file.starts_with("xtask/src/tidy")) {
        let Some(mark) = comment_mark(file) else { continue };
        for (index, line) in text.lines().enumerate() {
            let Some(comment) = comment_of(line, mark) else { continue };
            complaints.extend(citations(comment).filter_map(|citation| citation.fault(tree)).map(|what| {
                Complaint {
                    file: file.to_owned(),
                    line: index + 1,
                    what,
                    why: "a reader who follows the citation finds nothing",
                    instead: "cite a page of this repository by its path from the root, and a rule that the page has",
                }
            }));
        }
    }
    complaints.extend(code_paths(tree));
    complaints
}

/// Pages of `docs/design` that name a file or directory of a crate that is not there.
fn code_paths(tree: &Tree) -> impl Iterator<Item = Complaint> {
    let pages = tree.files().filter(|(file, _)| file.starts_with("docs/design/") && file.ends_with(".md"));
    let lines = pages
        .flat_map(|(file, text)| text.lines().enumerate().map(move |(index, line)| (file, index + 1, line)));
    lines.flat_map(move |(file, number, line)| {
        let spans = line.split('`').skip(1).step_by(2);
        let paths = spans.filter(|span| span.chars().all(is_of_path) && is_of_a_crate(tree, span));
        paths.filter(|path| !tree.has(path)).map(move |path| Complaint {
            file: file.to_owned(),
            line: number,
            what: format!("`{path}` is no file or directory of this repository"),
            why: "a page that names code which has moved misleads its reader",
            instead: "name the place where that code is now",
        })
    })
}

/// Returns true if the path lies in a directory that has a Cargo.toml.
fn is_of_a_crate(tree: &Tree, path: &str) -> bool {
    path.split_once('/').is_some_and(|(first, _)| tree.has(&format!("{first}/Cargo.toml")))
}

/// A Markdown file that a comment names, and the id of a rule in it.
struct Citation<'a> {
    path: &'a str,
    id: Option<&'a str>,
}

impl Citation<'_> {
    fn fault(&self, tree: &Tree) -> Option<String> {
        let Some(page) = tree.text(self.path) else {
            return Some(format!("`{}` is no file of this repository", self.path));
        };
        let id = self.id?;
        let has_row = page
            .lines()
            .filter_map(|line| line.strip_prefix('|'))
            .any(|row| row.split('|').next().is_some_and(|cell| cell.trim() == id));
        (!has_row).then(|| format!("`{}` has no table row `{id}`", self.path))
    }
}

/// The mark that begins a comment in this file; `None` for files whose comments are not checked.
fn comment_mark(file: &str) -> Option<&'static str> {
    match file.rsplit_once('.')?.1 {
        "rs" => Some("//"),
        "toml" | "txt" => Some("#"),
        _ => None,
    }
}

/// The comment of a line: the whole line, or what follows code. A space on both sides tells it from `https://`.
fn comment_of<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let line = line.trim_start();
    if line.starts_with(mark) {
        Some(line)
    } else {
        line.split_once(&format!(" {mark} ")).map(|(_, comment)| comment)
    }
}

fn citations(comment: &str) -> impl Iterator<Item = Citation<'_>> {
    comment.match_indices(".md").filter_map(|(at, suffix)| {
        let rest = &comment[at + suffix.len()..];
        let begin = comment[..at].rfind(|it| !is_of_path(it)).map_or(0, |before| before + 1);
        let path = comment.get(begin..at + suffix.len())?;
        let is_path = !rest.starts_with(is_of_path_but_dot) && !path.starts_with(['/', '.']);
        is_path.then(|| Citation { path, id: id_behind(rest) })
    })
}

/// `F21` of `, F21`; `86` of `, row 86` and of `, rows 86 to 87`.
fn id_behind(rest: &str) -> Option<&str> {
    let mut words = rest.strip_prefix(", ")?.split(|it: char| !it.is_ascii_alphanumeric());
    match words.next()? {
        "row" | "rows" => words.next(),
        word => {
            let number = word.strip_prefix(|it: char| it.is_ascii_uppercase())?;
            (!number.is_empty() && number.bytes().all(|it| it.is_ascii_digit())).then_some(word)
        }
    }
}

fn is_of_path(it: char) -> bool {
    it == '.' || is_of_path_but_dot(it)
}

fn is_of_path_but_dot(it: char) -> bool {
    it.is_ascii_alphanumeric() || matches!(it, '_' | '-' | '/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> Vec<String> {
        let page = "| id | rule |\n|---|---|\n| F2 | x |\n| 86 | F9 |\n";
        let tree = Tree::of(&[("docs/design/a.md", page), ("README.md", ""), (file, text)]);
        check(&tree).into_iter().map(|complaint| format!("{}: {}", complaint.line, complaint.what)).collect()
    }

    #[test]
    fn a_cited_file_that_does_not_exist_is_found() {
        let gone = ["GONE", "md"].join(".");
        let expected = format!("2: `{gone}` is no file of this repository");
        assert_eq!(found("a.rs", &format!("\n/// See {gone}, F2.")), [expected]);
        assert_eq!(found("a.rs", "x(); // docs/b.md").len(), 1);
        assert_eq!(found("a.toml", "# `docs/b.md` says why").len(), 1);
        assert_eq!(
            found("a.rs", "/// See docs/design/a.md#top, README.md and https://a.example/b.md."),
            [""; 0]
        );
    }

    #[test]
    fn a_cited_rule_that_the_page_does_not_have_is_found() {
        assert_eq!(
            found("a.rs", "// (docs/design/a.md, F9)"),
            ["1: `docs/design/a.md` has no table row `F9`"]
        );
        assert_eq!(found("a.rs", "// docs/design/a.md, row 87").len(), 1);
        assert_eq!(found("a.rs", "// docs/design/a.md, F2 and rows; docs/design/a.md, rows 86, 87"), [""; 0]);
        assert_eq!(found("a.rs", "// docs/design/a.md, as ever"), [""; 0]);
    }

    #[test]
    fn code_cites_nothing() {
        assert_eq!(found("a.rs", "let page = \"https://a.example/b.md\"; open(\"b.md\");"), [""; 0]);
        assert_eq!(found("a.md", "// b.md"), [""; 0]);
    }

    #[test]
    fn a_page_that_names_code_which_is_not_there_is_found() {
        let page = "see `core/src/b.rs`, `core/src`, `core/src/c.rs`, `other/d.rs` and `core/{a,b}`";
        let tree = Tree::of(&[
            ("core/Cargo.toml", ""),
            ("core/src/b.rs", ""),
            ("docs/design/a.md", page),
            ("a.md", page),
        ]);
        let found: Vec<_> = check(&tree).into_iter().map(|it| (it.file, it.what)).collect();
        let what = "`core/src/c.rs` is no file or directory of this repository";
        assert_eq!(found, [("docs/design/a.md".to_owned(), what.to_owned())]);
    }
}
