//! Collects the faults and warnings of one reading, of a file or of the files of a directory.

use std::sync::Arc;

use super::fault::{FAULTS_MAX, Fault, FaultCode, Faults, FileIndex, Position};
use super::sources::{SourceKind, Sources};

/// Collects the faults and warnings of one reading.
#[derive(Debug)]
pub(super) struct Collector {
    /// The names of the files.
    files: Vec<Arc<str>>,
    /// The file that is being read.
    current: FileIndex,
    kind: SourceKind,
    faults: Vec<Fault>,
    uncounted: usize,
    warnings: Vec<Fault>,
    /// True while no fault may show a value.
    hides_values: bool,
}

impl Collector {
    /// Of these files. The position in them is that of their set, until a file is entered.
    pub(super) fn new(sources: &Sources<'_>) -> Self {
        let mut files = Vec::with_capacity(sources.files.len() + 1);
        if sources.kind == SourceKind::Directory {
            files.push(sources.name.clone());
        }
        files.extend(sources.files.iter().map(|file| file.shown.clone()));
        Self {
            files,
            current: FileIndex::SET,
            kind: sources.kind,
            faults: Vec::new(),
            uncounted: 0,
            warnings: Vec::new(),
            hides_values: false,
        }
    }

    /// The index of the file with this number among the sources.
    pub(super) fn index_of(&self, number: usize) -> FileIndex {
        let before = usize::from(self.kind == SourceKind::Directory);
        FileIndex(u16::try_from(before + number).unwrap_or(u16::MAX))
    }

    /// From here on, positions are those of this file.
    pub(super) const fn enter(&mut self, file: FileIndex) {
        self.current = file;
    }

    /// The file that is being read.
    pub(super) const fn current(&self) -> FileIndex {
        self.current
    }

    pub(super) const fn kind(&self) -> SourceKind {
        self.kind
    }

    /// The name of a file in faults.
    pub(super) fn name_of(&self, file: FileIndex) -> Arc<str> {
        self.files.get(usize::from(file.0)).cloned().unwrap_or_default()
    }

    /// The faults so far.
    pub(super) const fn count(&self) -> usize {
        self.faults.len() + self.uncounted
    }

    /// Records a fault. The same fault at the same position, reached again through `defaults` or an alias, counts once.
    pub(super) fn fault(&mut self, at: Position, code: FaultCode, text: impl Into<String>) {
        self.record_fault(self.of_position(at, code, text.into(), self.hides_values));
    }

    /// Records a fault of a value that must not be shown.
    pub(super) fn fault_without_value(&mut self, at: Position, code: FaultCode, text: impl Into<String>) {
        self.record_fault(self.of_position(at, code, text.into(), true));
    }

    /// Records a fault of another file.
    pub(super) fn fault_in_file(
        &mut self,
        file: &str,
        at: Position,
        code: FaultCode,
        text: impl Into<String>,
    ) {
        // Several jobs files may name it: its faults count once.
        let at = Position { file: FileIndex::SET, ..at };
        self.record_fault(Fault {
            file: file.into(),
            at,
            code,
            text: text.into(),
            snippet: None,
            private: true,
        });
    }

    pub(super) fn warning(&mut self, at: Position, code: FaultCode, text: impl Into<String>) {
        let warning = self.of_position(at, code, text.into(), true);
        if self.warnings.len() < FAULTS_MAX && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// From here on, shows or hides the values of faults.
    pub(super) const fn hide_values(&mut self, hides: bool) {
        self.hides_values = hides;
    }

    pub(super) fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    /// The warnings if there are no faults, otherwise the faults, sorted.
    pub(super) fn finish(mut self) -> Result<Vec<Fault>, Faults> {
        let list = if self.faults.is_empty() { &mut self.warnings } else { &mut self.faults };
        list.sort_by_key(|fault| {
            (self.files.get(usize::from(fault.at.file.0)) != Some(&fault.file), fault.at)
        });
        let more = list.len().saturating_sub(FAULTS_MAX) + self.uncounted;
        list.truncate(FAULTS_MAX);
        if self.faults.is_empty() { Ok(self.warnings) } else { Err(Faults { list: self.faults, more }) }
    }

    fn of_position(&self, at: Position, code: FaultCode, text: String, private: bool) -> Fault {
        let at = if at.is_whole_file() { Position { file: self.current, ..at } } else { at };
        Fault { file: self.name_of(at.file), at, code, text, snippet: None, private }
    }

    fn record_fault(&mut self, fault: Fault) {
        if self.faults.len() >= KEPT_FAULTS_MAX {
            self.uncounted += 1;
        } else if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }
}

/// Faults that are kept before they are only counted, so that a hostile file costs little.
const KEPT_FAULTS_MAX: usize = 500;
