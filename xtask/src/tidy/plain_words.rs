//! The rules of CONTRIBUTING.md for comments: standard terms, whole statements, nobody's private dialect.
//!
//! Three kinds of line are counted per crate: a doc comment of a single word, a comment line that begins with a question word, and a
//! word of the old glossary. `xtask/plain-words.txt` holds the count that each crate may still have. A count may fall, never rise, and
//! a crate that is not listed has none.

use std::collections::BTreeMap;

use super::Complaint;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let allowed = read_list(tree.text(LIST).unwrap_or_default(), &mut complaints);
    let mut found: BTreeMap<&str, Vec<Complaint>> = BTreeMap::new();
    for (file, text) in tree.rust().filter(|(file, _)| !file.starts_with("xtask/src/tidy")) {
        let krate = file.split('/').next().unwrap_or_default();
        found.entry(krate).or_default().extend(faults_of(file, text));
    }
    for (krate, faults) in found {
        let limit = allowed.get(krate).copied().unwrap_or_default();
        if faults.len() > limit {
            complaints.extend(faults);
        }
    }
    complaints
}

/// Reads `crate count` lines; lines that begin with `#` are comments.
fn read_list<'a>(list: &'a str, complaints: &mut Vec<Complaint>) -> BTreeMap<&'a str, usize> {
    let mut allowed = BTreeMap::new();
    for (index, line) in
        list.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    {
        let parsed = line.split_once(' ').and_then(|(krate, count)| Some((krate, count.parse().ok()?)));
        match parsed {
            Some((krate, count)) => drop(allowed.insert(krate, count)),
            None => complaints.push(Complaint {
                file: LIST.to_owned(),
                line: index + 1,
                what: "this line is not a crate and a number".to_owned(),
                why: "the list limits how many lines of a crate may still break the rules",
                instead: "write `crate count`, or remove the line",
            }),
        }
    }
    allowed
}

fn faults_of(file: &str, text: &str) -> Vec<Complaint> {
    let mut faults = Vec::new();
    let mut goes_on = false;
    for (index, line) in text.lines().enumerate() {
        let fault = |what: String, why, instead| Complaint {
            file: file.to_owned(),
            line: index + 1,
            what,
            why,
            instead,
        };
        let Some(comment) = Comment::of(line) else {
            goes_on = false;
            continue;
        };
        // The last word of a paragraph may stand alone on its line.
        let begins = !std::mem::replace(&mut goes_on, !comment.text.is_empty());
        if begins && comment.is_doc && is_one_word(comment.text) {
            faults.push(fault(
                format!("a doc comment of one word: `{}`", comment.text),
                "it repeats the name and tells the reader nothing",
                "state the unit, the range or the consequence, or write a plain noun phrase",
            ));
        }
        if let Some(word) = question_word(comment.text) {
            faults.push(fault(
                format!("a comment line begins with `{word}`"),
                "such sentences hide who does what and must be read twice",
                "name the actor first: the server, the worker, the caller",
            ));
        }
        if let Some(word) = dialect_word(comment.text) {
            faults.push(fault(
                format!("`{word}` is a word of the old glossary"),
                "an outsider has to learn what it stands for",
                "use the standard term; docs/glossary.md lists them",
            ));
        }
    }
    faults
}

/// The comment of a line, if the line holds nothing else.
struct Comment<'a> {
    text: &'a str,
    /// Doc comments begin with `///` or `//!`.
    is_doc: bool,
}

impl<'a> Comment<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let rest = line.trim_start().strip_prefix("//")?;
        let doc = rest.strip_prefix('/').or_else(|| rest.strip_prefix('!'));
        Some(Self { text: doc.unwrap_or(rest).trim(), is_doc: doc.is_some() })
    }
}

fn is_one_word(text: &str) -> bool {
    text.strip_suffix('.').is_some_and(|word| !word.is_empty() && word.chars().all(char::is_alphabetic))
}

fn question_word(text: &str) -> Option<&'static str> {
    QUESTION_WORDS.into_iter().find(|word| {
        text.strip_prefix(word).is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
    })
}

fn dialect_word(text: &str) -> Option<&'static str> {
    let lower = text.to_lowercase();
    let mut words = lower.split(|letter: char| !letter.is_alphanumeric());
    words.find_map(|word| DIALECT.into_iter().find(|banned| *banned == word))
}

const LIST: &str = "xtask/plain-words.txt";

const QUESTION_WORDS: [&str; 7] = ["What", "Whoever", "Who", "Where", "Whether", "Which", "That which"];

/// Words that the project used for things which have standard names.
const DIALECT: [&str; 24] = [
    "strangers",
    "stranger",
    "patience",
    "farewell",
    "chatter",
    "endure",
    "sift",
    "pardon",
    "pardoned",
    "guilty",
    "shelf",
    "shelves",
    "quicken",
    "quickens",
    "greet",
    "greets",
    "whoever",
    "chores",
    "misfit",
    "newcomer",
    "newcomers",
    "knocks",
    "babbles",
    "gossip",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn found(list: &str, text: &str) -> Vec<String> {
        let tree = Tree::of(&[(LIST, list), ("server/src/a.rs", text)]);
        check(&tree).into_iter().map(|complaint| complaint.what).collect()
    }

    #[test]
    fn a_doc_comment_of_one_word_is_found() {
        assert_eq!(found("", "/// Job.\nlet a;\n/// When.\n").len(), 2);
        assert_eq!(found("", "/// The job that\n/// ended.\n\n// Always.\n"), [""; 0]);
    }

    #[test]
    fn a_comment_that_begins_with_a_question_word_is_found() {
        assert_eq!(found("", "    // Where the answer goes\n"), ["a comment line begins with `Where`"]);
        assert_eq!(found("", "/// Whose turn it is\nlet which = 1; // Which\n"), [""; 0]);
    }

    #[test]
    fn a_word_of_the_old_glossary_is_found() {
        assert_eq!(found("", "//! Strangers.\n").len(), 2);
        assert_eq!(found("", "/// An estranged worker and its patient owner\n"), [""; 0]);
    }

    #[test]
    fn the_list_allows_as_many_as_it_says_and_no_more() {
        let two = "// What a\n// Which b\n";
        assert_eq!(found("# reason\nserver 2\n", two), [""; 0]);
        assert_eq!(found("server 1\n", two).len(), 2);
        assert_eq!(found("server many\n", ""), ["this line is not a crate and a number"]);
    }
}
