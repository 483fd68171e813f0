//! A bug as it is kept: some lines of prose, and below them what `git diff` writes.
//!
//! The numbers of lines in it are not looked at. What is to be changed must stand in its file exactly once: so a bug stays where it was
//! meant when the lines around it move, and is never planted in a place that only looks like it.

use anyhow::{Context as _, ensure};

/// A planted bug.
#[derive(Debug)]
pub(crate) struct Patch {
    /// A sentence that describes the bug.
    pub(crate) bug: String,
    /// The rules of the oracle of which one should notice.
    pub(crate) rules: Vec<String>,
    pub(crate) files: Vec<File>,
}

/// The changed lines of one file.
#[derive(Debug)]
pub(crate) struct File {
    /// Relative to the workspace.
    pub(crate) path: String,
    hunks: Vec<Hunk>,
}

#[derive(Debug, Default)]
struct Hunk {
    before: String,
    after: String,
}

impl Patch {
    /// Reads a patch.
    ///
    /// # Errors
    /// It does not say what the bug is and what should notice it, or changes nothing.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let (prose, diff) = text
            .find("diff --git ")
            .map(|at| text.split_at(at))
            .context("it has no line that begins with `diff --git`")?;
        let bug = field(prose, "Bug:").context("no line of it says `Bug:` and what is wrong")?;
        let rules = field(prose, "Caught by:").context("no line of it says `Caught by:` and a rule")?;
        let rules = rules.split("; ").map(str::to_owned).collect();
        let files = files(diff)?;
        ensure!(!files.is_empty(), "it changes no file");
        Ok(Self { bug, rules, files })
    }

    /// The component that the patch changes.
    pub(crate) fn component(&self) -> Component {
        let path = self.files.first().map_or("", |file| file.path.as_str());
        match path {
            _ if path.starts_with("scheduler/") => Component::Scheduler,
            _ if path.starts_with("worker/") => Component::Worker,
            _ => Component::Model,
        }
    }
}

/// The component that a patch changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Component {
    Scheduler,
    Worker,
    /// The simulation's model of a body.
    Model,
}

impl File {
    /// The file's text with the bug in it.
    ///
    /// # Errors
    /// The lines to be changed do not stand in the file, or stand there more than once.
    pub(crate) fn plant(&self, text: &str) -> anyhow::Result<String> {
        let mut text = text.to_owned();
        for Hunk { before, after } in &self.hunks {
            let places: Vec<usize> = text
                .match_indices(before.as_str())
                .map(|(at, _)| at)
                .filter(|at| *at == 0 || text[..*at].ends_with('\n'))
                .collect();
            ensure!(!places.is_empty(), "{} has no such lines (any more):\n{before}", self.path);
            ensure!(places.len() == 1, "{} has these lines more than once:\n{before}", self.path);
            text.replace_range(places[0]..places[0] + before.len(), after);
        }
        Ok(text)
    }
}

/// The text after a name at the beginning of a line, with the indented lines below it.
fn field(prose: &str, name: &str) -> Option<String> {
    let mut lines = prose.lines().skip_while(|line| !line.starts_with(name));
    let first = lines.next()?.strip_prefix(name)?.trim();
    let more = lines.take_while(|line| line.starts_with(' ')).map(str::trim);
    let words: Vec<&str> = std::iter::once(first).chain(more).collect();
    Some(words.join(" ")).filter(|it| !it.is_empty())
}

fn files(diff: &str) -> anyhow::Result<Vec<File>> {
    let mut files: Vec<File> = Vec::new();
    for line in diff.lines() {
        let file = files.last_mut();
        if line.starts_with("diff --git ") {
            files.push(File { path: String::new(), hunks: Vec::new() });
        } else if let Some(path) = line.strip_prefix("+++ b/") {
            file.context("a file without `diff --git`")?.path = path.to_owned();
        } else if line.starts_with("--- ") || line.starts_with("index ") || line.starts_with('\\') {
        } else if line.starts_with("@@ ") {
            file.context("a hunk without a file")?.hunks.push(Hunk::default());
        } else if let Some(hunk) = file.and_then(|file| file.hunks.last_mut()) {
            let (sign, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
            ensure!([" ", "-", "+"].contains(&sign), "a line of a hunk begins with `{sign}`");
            if sign != "+" {
                hunk.before += rest;
                hunk.before.push('\n');
            }
            if sign != "-" {
                hunk.after += rest;
                hunk.after.push('\n');
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const PATCH: &str = "\
Bug: two and two
  are five
Caught by: I1 arithmetic; I2 algebra

diff --git a/worker/src/a.rs b/worker/src/a.rs
index 12ab..34cd 100644
--- a/worker/src/a.rs
+++ b/worker/src/a.rs
@@ -1,3 +1,3 @@ fn sum() {
 fn sum() {
-    four()
+    five()
 }
";

    #[test]
    fn a_bug_is_planted_where_its_lines_stand_and_the_rest_stays() {
        let patch = Patch::parse(PATCH).unwrap();
        assert_eq!(patch.bug, "two and two are five");
        assert_eq!(patch.rules, ["I1 arithmetic", "I2 algebra"]);
        assert_eq!(patch.component(), Component::Worker);
        let planted = patch.files[0].plant("// moved\nfn sum() {\n    four()\n}\nfn rest() {}\n").unwrap();
        assert_eq!(planted, "// moved\nfn sum() {\n    five()\n}\nfn rest() {}\n");
    }

    #[test]
    fn lines_that_are_gone_or_stand_there_twice_are_an_error_that_names_the_file() {
        let file = &Patch::parse(PATCH).unwrap().files[0];
        let why = |text: &str| file.plant(text).unwrap_err().to_string();
        assert!(why("fn sum() {\n    4\n}\n").contains("worker/src/a.rs has no such lines"));
        let twice = "fn sum() {\n    four()\n}\n".repeat(2);
        assert!(why(&twice).contains("more than once"));
    }

    #[test]
    fn a_patch_that_does_not_say_what_it_is_about_is_none() {
        assert!(Patch::parse(&PATCH.replace("Bug:", "Thing:")).is_err());
        assert!(Patch::parse(&PATCH.replace("Caught by:", "By:")).is_err());
        assert!(Patch::parse("Bug: a\nCaught by: b\n").is_err());
    }
}
