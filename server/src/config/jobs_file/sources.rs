//! The texts of a reading with their names: of one file, or of several that are read as one set.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fault::{Fault, FaultCode, Faults};
use super::grammar::ValueFault;
use super::texts::{self, JobsText, NamedText};
use super::{FILE_BYTES_MAX, source};

/// The texts of a reading.
#[derive(Debug)]
pub(super) struct Sources<'t> {
    /// The name of the file or the directory in faults.
    pub(super) name: Arc<str>,
    /// The directory to which paths in the files are relative.
    pub(super) directory: PathBuf,
    pub(super) files: Vec<SourceFile<'t>>,
    pub(super) kind: SourceKind,
}

/// The origin of the texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceKind {
    File,
    Directory,
}

/// A text of a reading.
#[derive(Debug)]
pub(super) struct SourceFile<'t> {
    /// The name in faults.
    pub(super) shown: Arc<str>,
    /// The text, or the reason why it cannot be read.
    pub(super) text: Result<&'t str, &'t ValueFault>,
}

impl<'t> Sources<'t> {
    /// One file.
    pub(super) fn of_file(text: &'t str, path: &Path) -> Self {
        let name: Arc<str> = path.display().to_string().into();
        Self {
            directory: path.parent().unwrap_or(Path::new("")).to_owned(),
            files: vec![SourceFile { shown: name.clone(), text: Ok(text) }],
            name,
            kind: SourceKind::File,
        }
    }

    /// The files of the directory at `path`.
    pub(super) fn of_directory(
        files: &'t [NamedText],
        unreadable: &'t [(String, ValueFault)],
        path: &Path,
    ) -> Self {
        let readable = files.iter().map(|file| (&*file.name, Ok(&*file.text)));
        let mut all: Vec<(&str, Result<&str, &ValueFault>)> = readable.collect();
        all.extend(unreadable.iter().map(|(name, wrong)| (&**name, Err(wrong))));
        all.sort_by_key(|(name, _)| *name);
        let shown = |name: &str| path.join(name).display().to_string().into();
        let files = all.into_iter().map(|(name, text)| SourceFile { shown: shown(name), text });
        Self {
            name: texts::without_last_slash(path).display().to_string().into(),
            directory: path.to_owned(),
            files: files.collect(),
            kind: SourceKind::Directory,
        }
    }

    pub(super) fn of(text: &'t JobsText, path: &Path) -> Self {
        match text {
            JobsText::File(text) => Self::of_file(text, path),
            JobsText::Directory(files) => Self::of_directory(files, &[], path),
        }
    }

    /// The name of a file within the directory; none for a single file.
    pub(super) fn name_in_directory(&self, number: usize) -> Option<Arc<str>> {
        let file = self.files.get(number).filter(|_| self.kind == SourceKind::Directory)?;
        file.shown.rsplit('/').next().map(Into::into)
    }

    /// The texts that could be read.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'t str> {
        self.files.iter().filter_map(|file| file.text.ok())
    }

    /// Checks the length of all texts together.
    ///
    /// # Errors
    /// They are too long.
    pub(super) fn check_length(&self) -> Result<(), Faults> {
        let bytes = self.texts().map(str::len).sum();
        let refuse = |code: FaultCode, text: String| Err(Faults::one(Fault::of_file(&self.name, code, text)));
        match (source::check_length(bytes, FILE_BYTES_MAX), self.kind) {
            (Ok(()), _) => Ok(()),
            (Err(wrong), SourceKind::File) => refuse(wrong.code, wrong.to_string()),
            (Err(wrong), SourceKind::Directory) => refuse(wrong.code, texts::too_large()),
        }
    }
}
