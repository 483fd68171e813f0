//! Every file of the workspace, with its path and its text.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// Paths relative to the workspace, with `/`, and the text of each file; an empty text if it is not UTF-8. Files whose names are not UTF-8 are
/// left out.
#[derive(Debug, Default)]
pub(super) struct Tree(BTreeMap<String, String>);

impl Tree {
    /// Reads everything below `root` except build outputs and hidden directories of other programs.
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut tree = Self::default();
        tree.read_directory(root, "")?;
        Ok(tree)
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        Self(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    /// Path and text of every file.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Path and text of every Rust file.
    pub(super) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(|(path, _)| path.ends_with(".rs"))
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// True if there is a file or a directory of this name.
    pub(super) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        path.is_empty()
            || self.0.keys().any(|file| {
                file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    }

    fn read_directory(&mut self, root: &Path, below: &str) -> anyhow::Result<()> {
        let directory = root.join(below);
        for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
            let kind = entry.file_type()?;
            if kind.is_dir() && !is_skipped(&name) {
                self.read_directory(root, &path)?;
            } else if kind.is_file() {
                let bytes = fs::read(entry.path()).with_context(|| path.clone())?;
                self.0.insert(path, String::from_utf8(bytes).unwrap_or_default());
            }
        }
        Ok(())
    }
}

fn is_skipped(directory: &str) -> bool {
    OUTPUTS.contains(&directory) || (directory.starts_with('.') && !OURS.contains(&directory))
}

/// Outputs of builds, property tests and fuzzing.
const OUTPUTS: [&str; 4] = ["target", "proptest-regressions", "corpus", "artifacts"];

/// Hidden directories that belong to the project.
const OURS: [&str; 3] = [".cargo", ".ci", ".config"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_outputs_and_foreign_hidden_directories_are_not_read() {
        let root = tempfile::tempdir().unwrap();
        for path in ["a/b.rs", "target/c.rs", ".git/d", ".ci/run"] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "text").unwrap();
        }
        let tree = Tree::read(root.path()).unwrap();
        assert_eq!(tree.files().map(|(path, _)| path).collect::<Vec<_>>(), [".ci/run", "a/b.rs"]);
        assert!(tree.has("a") && tree.has("a/b.rs") && !tree.has("a/b"));
    }
}
