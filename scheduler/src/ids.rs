//! Numbers of the scheduler, beside those that `protocol` gives to jobs, workers and attempts.
//!
//! Most of them name an entry of a table within this process. They are here, below the tables, so that tables can name each other's entries.

/// Identifies the request that an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Number of a commit of the store, counted in the cluster (docs/design/storage.md, S2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupNo(pub u64);

/// Number of a join token in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JoinTokenId(pub u64);

/// Index of a definition in the table: four bytes in each job instead of a whole revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DefinitionNo(pub u32);

/// Identifies a need until the next load of jobs.yaml.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NeedId(pub(crate) u32);

/// Names a schedule within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScheduleNo(pub u32);

/// Names an expectation within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExpectationNo(pub u32);
