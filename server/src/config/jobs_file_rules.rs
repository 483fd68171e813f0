//! Rules about the jobs file: a start with a faulty one, and definitions that it no longer has.

/// Treatment of waiting jobs whose definition jobs.yaml no longer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemovedDefinitions {
    /// They run as they were submitted.
    #[default]
    Run,
    /// They are cancelled.
    Cancel,
}

/// The start of a server whose jobs file has faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaultyJobsFile {
    /// It starts with the definitions that it accepted last, if there are any.
    #[default]
    UseLast,
    /// It does not start.
    Refuse,
}
