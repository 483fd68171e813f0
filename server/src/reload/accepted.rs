//! A copy of the jobs file that was accepted last, or of the files of a directory, in the data directory.
//!
//! A server whose jobs file has become faulty starts with this copy, so that schedules go on after a restart at night. Only the text is
//! kept, as `text` or as `files`: variables and environment files are read again, and the policy of that moment applies.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::config::jobs_file::{self, Environment, Faults, JobsText, LoadedFile};
use crate::file_replacement;
use crate::rfc3339::Time;

/// The copy of a jobs file or a directory of them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AcceptedFile<'a> {
    /// The path of the original. A copy of another file is not used.
    path: PathBuf,
    /// The time at which the server accepted it.
    pub(crate) accepted_at: Time,
    #[serde(flatten)]
    text: Cow<'a, JobsText>,
}

impl AcceptedFile<'_> {
    /// Reads the copy of this jobs file; none if there is no copy of it. Blocks on the disk.
    ///
    /// # Errors
    /// The copy is there and cannot be read.
    pub(crate) fn read(data_dir: &Path, jobs_file: &Path) -> io::Result<Option<Self>> {
        let text = match fs::read(data_dir.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let copy: Self = serde_json::from_slice(&text)?;
        let path = absolute(jobs_file);
        Ok((normalized(&copy.path) == normalized(&path)).then_some(Self { path, ..copy }))
    }

    /// The text of the copy.
    pub(crate) fn into_text(self) -> JobsText {
        self.text.into_owned()
    }

    /// Parses the copy. Environment files are looked up where the original is. Blocks on the disk.
    ///
    /// # Errors
    /// All faults that the text has under the present environment and policy.
    pub(crate) fn load(&self, environment: &Environment) -> Result<LoadedFile, Faults> {
        jobs_file::parse_text(self.text.clone().into_owned(), &self.path, environment)
    }
}

/// Keeps a copy of this text of the jobs file or directory in place of the last one. Blocks on the disk. An error is logged: it takes nothing from the
/// definitions in force.
pub(crate) fn keep(data_dir: &Path, jobs_file: &Path, text: &JobsText) {
    let accepted_at = Time(clock::now().utc);
    let copy = AcceptedFile { path: absolute(jobs_file), accepted_at, text: Cow::Borrowed(text) };
    let file = data_dir.join(FILE);
    let kept = serde_json::to_vec(&copy).map_err(io::Error::from);
    if let Err(error) = kept.and_then(|content| file_replacement::replace(&file, &content)) {
        tracing::warn!(
            %error, file = %file.display(),
            "cannot keep a copy of the accepted jobs file; a start with a faulty jobs file would go back to an earlier one"
        );
    }
}

/// The path from the root, so that the directory in which the server is started does not matter. Links are not followed: the copy of a
/// file that is gone has the same path.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The path without `..`, to compare it with another spelling.
fn normalized(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut whole, component| {
        match component {
            // Nothing is above the root.
            Component::ParentDir => drop(whole.pop()),
            component => whole.push(component),
        }
        whole
    })
}

/// The name of the copy.
pub(crate) const FILE: &str = "accepted-jobs.json";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::jobs_file::NamedText;

    const TEXT: &str = "version: 1\njobs:\n  a: { image: b }\n";

    #[test]
    fn a_copy_is_found_under_the_path_of_its_original_only() {
        let data = tempfile::tempdir().unwrap();
        let read = |path: &str| AcceptedFile::read(data.path(), Path::new(path));
        assert!(read("/etc/jobs.yaml").unwrap().is_none(), "nothing was accepted yet");
        let text = JobsText::File(TEXT.to_owned());
        keep(data.path(), Path::new("/etc/jobs.yaml"), &text);
        keep(data.path(), Path::new("/etc/jobs.yaml"), &text);
        let copy = read("/etc/jobs.yaml").unwrap().expect("the copy");
        assert_eq!(copy.load(&Environment::default()).expect("valid").definitions.len(), 1);
        assert!(read("/etc/other.yaml").unwrap().is_none());
        assert!(
            read("/etc/x/./..//jobs.yaml").unwrap().is_some() && read("/../etc/jobs.yaml").unwrap().is_some()
        );
    }

    #[test]
    fn the_form_of_earlier_versions_is_read_and_kept_for_one_file() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join(FILE);
        let earlier = serde_json::json!({ "path": "/etc/jobs.yaml", "accepted_at": "2026-01-02T03:04:05.000Z", "text": TEXT });
        fs::write(&path, earlier.to_string()).unwrap();
        let copy = AcceptedFile::read(data.path(), Path::new("/etc/jobs.yaml")).unwrap().expect("the copy");
        assert_eq!(*copy.text, JobsText::File(TEXT.to_owned()));
        keep(data.path(), Path::new("/etc/jobs.yaml"), &copy.text);
        let kept: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!((&kept["path"], &kept["text"]), (&earlier["path"], &earlier["text"]));
        assert_eq!(kept.as_object().map(serde_json::Map::len), Some(3), "{kept}");
    }

    #[test]
    fn a_copy_of_a_directory_has_all_files() {
        let data = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| NamedText { name: name.to_owned(), text: text.to_owned() };
        let files = vec![file("b.yaml", TEXT), file("a.yml", "[{name: c, image: d, hooks: {on_end: a}}]")];
        let text = JobsText::of_files(files).expect("good names");
        keep(data.path(), Path::new("/etc/jobs.d"), &text);
        let copy = AcceptedFile::read(data.path(), Path::new("/etc/jobs.d/")).unwrap().expect("the copy");
        assert_eq!(*copy.text, text);
        let loaded = copy.load(&Environment::default()).expect("valid");
        let files = loaded.definitions.iter().map(|entry| entry.file.as_deref());
        assert_eq!(files.collect::<Vec<_>>(), [Some("a.yml"), Some("b.yaml")]);
    }

    #[test]
    fn a_copy_that_cannot_be_read_is_an_error() {
        let data = tempfile::tempdir().unwrap();
        fs::write(data.path().join(FILE), "{").unwrap();
        assert!(AcceptedFile::read(data.path(), Path::new("jobs.yaml")).is_err());
    }
}
