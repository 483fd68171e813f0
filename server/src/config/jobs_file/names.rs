//! The names of jobs in all files of a reading: each stands for one job.

use super::fault::{FaultCode, Position, quoted};
use super::reader::Reader;

impl Reader<'_> {
    /// Records a fault for which jobs of the file are not read.
    pub(super) fn fault_of_jobs(&mut self, at: Position, code: FaultCode, text: impl Into<String>) {
        self.misses_jobs = true;
        self.fault(at, code, text);
    }

    /// Records the name of a job, and a fault if another job has it. A job without a name has a fault of its own.
    pub(super) fn add_name(&mut self, name: &str, at: Position) {
        self.hooks.add_name(name);
        let Some(first) = self.names.get(name).copied() else {
            self.names.extend((!name.is_empty()).then(|| (name.to_owned(), at)));
            return;
        };
        let place = if first.file == at.file {
            format!("line {}", first.line)
        } else {
            let file = self.collector.name_of(first.file);
            format!("{}:{}:{}", file.rsplit('/').next().unwrap_or_default(), first.line, first.column)
        };
        let text = format!("the job {} was first defined at {place}", self.shown_job(name));
        self.fault(at, FaultCode::DuplicateKey, text);
    }

    /// The name of a job as it may be shown.
    pub(super) fn as_written_job(&self, name: &str) -> String {
        self.names_with_variables.get(name).map_or(name, String::as_str).to_owned()
    }

    /// The name of a job in a message: quoted, with variables shown by their names.
    pub(super) fn shown_job(&self, name: &str) -> String {
        quoted(&self.as_written_job(name))
    }
}
