//! Names that must not be used, each in the part of the repository in which it does harm.

use super::Complaint;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (file, text) in tree.rust().filter(|(file, _)| !file.starts_with("xtask/src/tidy")) {
        let mut in_tests = file.contains("/tests/");
        for (index, line) in text.lines().enumerate() {
            in_tests |= line.trim_start().starts_with("#[cfg(test)]");
            for ban in BANS.iter().filter(|ban| ban.banned_in.holds(file, in_tests)) {
                let read = if ban.in_comments { line } else { code_of(line) };
                complaints.extend(ban.words.iter().filter(|word| has_word(read, word)).map(|word| {
                    Complaint {
                        file: file.to_owned(),
                        line: index + 1,
                        what: format!("`{word}`"),
                        why: ban.why,
                        instead: ban.instead,
                    }
                }));
            }
        }
    }
    complaints
}

struct Ban {
    words: &'static [&'static str],
    banned_in: BannedIn,
    in_comments: bool,
    why: &'static str,
    instead: &'static str,
}

#[derive(Clone, Copy)]
enum BannedIn {
    Anywhere,
    /// In a `tests` directory.
    BlackBoxTests,
    /// There, and after `#[cfg(test)]`.
    AllTests,
    /// In a pure crate without its tests, which may read files and the environment.
    PureCrates,
}

impl BannedIn {
    fn holds(self, file: &str, in_tests: bool) -> bool {
        match self {
            Self::Anywhere => true,
            Self::BlackBoxTests => file.contains("/tests/"),
            Self::AllTests => in_tests,
            Self::PureCrates => !in_tests && PURE.iter().any(|directory| file.starts_with(directory)),
        }
    }
}

/// The line without a comment at its end. A `//` in a string ends it too, which only makes the search shorter.
fn code_of(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// True if `line` contains `word` and not only as part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let joins = |a: Option<char>, b: Option<char>| {
        a.zip(b).is_some_and(|(a, b)| [a, b].iter().all(|it| it.is_alphanumeric() || *it == '_'))
    };
    line.match_indices(word).any(|(at, _)| {
        let begins_apart = !joins(line[..at].chars().next_back(), word.chars().next());
        let ends_apart = !joins(word.chars().next_back(), line[at + word.len()..].chars().next());
        begins_apart && ends_apart
    })
}

const PURE: [&str; 3] = ["protocol/src/", "scheduler/src/", "worker/src/"];

const BANS: [Ban; 6] = [
    Ban {
        words: &["todo!", "unimplemented!", "dbg!"],
        banned_in: BannedIn::Anywhere,
        in_comments: false,
        why: "it panics, or prints into a user's log",
        instead: "finish it, or leave it out and say so in the documentation",
    },
    Ban {
        words: &["FIXME", "XXX"],
        banned_in: BannedIn::Anywhere,
        in_comments: true,
        why: "readers of the code cannot act on it",
        instead: "mend it now, or state the limit in the documentation",
    },
    Ban {
        words: &["#[ignore"],
        banned_in: BannedIn::Anywhere,
        in_comments: false,
        why: "a test that does not run proves nothing",
        instead: "let it check for what it needs (LONGSHORE_TEST_DOCKER) and run, or remove it",
    },
    Ban {
        words: &["thread::sleep"],
        banned_in: BannedIn::AllTests,
        in_comments: true,
        why: "it is too short on a slow machine and wasted on a fast one",
        instead: "wait for the event itself, with a deadline around it",
    },
    Ban {
        words: &["time::sleep"],
        banned_in: BannedIn::BlackBoxTests,
        in_comments: true,
        why: "it is too short on a slow machine and wasted on a fast one",
        instead: "wait for the event itself, with a deadline around it",
    },
    Ban {
        words: &["std::time", "std::thread", "std::net", "std::fs", "std::env", "std::process", "tokio"],
        banned_in: BannedIn::PureCrates,
        in_comments: false,
        why: "code that reads a clock, waits, or does I/O cannot be replayed from its inputs",
        instead: "take the value as an argument, or return an effect; `core::time::Duration` is no clock",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> Vec<(usize, String)> {
        check(&Tree::of(&[(file, text)])).into_iter().map(|it| (it.line, it.what)).collect()
    }

    #[test]
    fn unfinished_work_is_found_with_its_line() {
        assert_eq!(found("server/src/a.rs", "fn a() {\n    todo!()\n}\n"), [(2, "`todo!`".to_owned())]);
        assert_eq!(found("server/src/a.rs", "dbg!(1); unimplemented!()").len(), 2);
        assert_eq!(found("server/src/a.rs", "// FIXME later").len(), 1);
        assert_eq!(found("server/src/a.rs", "let template = \"aXXXb\";"), []);
    }

    #[test]
    fn ignored_tests_and_sleeping_ones_are_found() {
        assert_eq!(found("server/src/a.rs", "#[ignore = \"slow\"]").len(), 1);
        assert_eq!(found("server/src/a.rs", "thread::sleep(wait);"), []);
        assert_eq!(found("server/src/a.rs", "#[cfg(test)]\nmod tests {\nthread::sleep(wait);").len(), 1);
        assert_eq!(found("server/tests/a.rs", "tokio::time::sleep(wait).await; // time::sleep").len(), 1);
    }

    #[test]
    fn a_brain_reads_no_clock_but_its_tests_may_read_files() {
        assert_eq!(found("scheduler/src/a.rs", "use std::time::Instant;"), [(1, "`std::time`".to_owned())]);
        assert_eq!(found("worker/src/a.rs", "tokio::spawn(it)").len(), 1);
        assert_eq!(found("worker/src/a.rs", "// unlike tokio"), []);
        assert_eq!(found("worker/src/a.rs", "#[cfg(test)]\nuse std::fs;"), []);
        assert_eq!(found("server/src/a.rs", "use std::time::Instant;"), []);
    }
}
