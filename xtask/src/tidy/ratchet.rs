//! Files above 400 lines do not grow, and no new one appears. Files that are longer already are listed.

use std::collections::BTreeMap;

use super::Complaint;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let list = tree.text(LIST).unwrap_or_default();
    let mut complaints = Vec::new();
    let mut known = BTreeMap::new();
    for (index, line) in
        list.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    {
        match line.split_once(' ').and_then(|(path, lines)| Some((path, lines.trim().parse::<usize>().ok()?)))
        {
            Some((path, lines)) if tree.text(path).is_some() => drop(known.insert(path, lines)),
            parsed => complaints.push(Complaint {
                file: LIST.to_owned(),
                line: index + 1,
                what: match parsed {
                    Some((path, _)) => format!("there is no file `{path}`"),
                    None => "it is no path and number of lines".to_owned(),
                },
                why: "a wrong line would let another file grow",
                instead: "remove the line, or mend it",
            }),
        }
    }
    for (file, text) in tree.rust() {
        let lines = text.lines().count();
        let what = match known.get(file) {
            None if lines > LINES_MAX => format!("a file of {lines} lines, above {LINES_MAX}"),
            Some(&before) if lines > before.max(LINES_MAX) => {
                format!("it has grown from {before} to {lines} lines")
            }
            _ => continue,
        };
        complaints.push(Complaint {
            file: file.to_owned(),
            line: lines,
            what,
            why: "a long file is hard to read and to change",
            instead: "move a part that has a name into its own file; or write `path lines` into xtask/tidy-ratchet.txt and say why in the commit",
        });
    }
    complaints
}

const LIST: &str = "xtask/tidy-ratchet.txt";
const LINES_MAX: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(list: &str, lines: usize) -> Vec<String> {
        let tree = Tree::of(&[(LIST, list), ("a.rs", &"x\n".repeat(lines))]);
        check(&tree).into_iter().map(|it| it.what).collect()
    }

    #[test]
    fn a_new_long_file_and_a_longer_old_one_are_found() {
        assert_eq!(found("", 400), [""; 0]);
        assert_eq!(found("", 401), ["a file of 401 lines, above 400"]);
        assert_eq!(found("# reason\na.rs 500\n", 500), [""; 0]);
        assert_eq!(found("a.rs 500\n", 501), ["it has grown from 500 to 501 lines"]);
    }

    #[test]
    fn the_list_itself_stays_true() {
        assert_eq!(found("gone.rs 500\n", 1), ["there is no file `gone.rs`"]);
        assert_eq!(found("a.rs many\n", 1), ["it is no path and number of lines"]);
    }
}
