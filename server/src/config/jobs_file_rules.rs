//! Rules about the jobs file: a start with a faulty one, definitions that it no longer has, and deploys.

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

/// Replacement of the jobs file by a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deploys {
    /// Every deploy is refused: it can run any image on the workers.
    #[default]
    Refused,
    /// Operators may deploy.
    Allowed,
}
