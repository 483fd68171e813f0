//! Ids as newtypes, so that a job id cannot be passed as a fence.
//!
//! The server assigns them, except [`Incarnation`] and [`ReportNo`], which the worker counts. Some have an order: fences within one job,
//! report numbers within one worker process, incarnations within one worker, epochs within one store.

use alloc::string::String;
use core::fmt;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

macro_rules! number_types {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode, Serialize, Deserialize,
        )]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

number_types! {
    /// A job: an integer from 1, never reused within a cluster.
    JobId(u64);
    /// Number of an attempt within its job, from 1; shown to people.
    AttemptNo(u32);
    /// The number of an attempt within its cluster. Fences of one job grow; fences of different jobs are never compared.
    Fence(u64);
    /// A worker's id, assigned by the server at its first join.
    WorkerId(u64);
    /// One WebSocket connection of a worker.
    SessionId(u64);
    /// One term of a server as the writer of the store.
    Epoch(u64);
    /// One start of a worker process, counted in its state directory.
    Incarnation(u64);
    /// The number of a report within one process of a worker, from 1; zero is "none yet".
    ReportNo(u64);
}

impl ReportNo {
    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A random value drawn with an attempt. It tells apart two attempts with the same fence after a database went back in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Nonce(pub u64);

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Id of a cluster (one Longshore installation), drawn at random when its store is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct ClusterId(pub u32);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// The first 128 bits of the SHA-256 of a definition's resolved content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Revision(pub u128);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Proof of being the current attempt of a job: only its bearer may change the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Token {
    /// The job's id.
    pub job: JobId,
    /// The fence of the attempt.
    pub fence: Fence,
    /// Drawn with the attempt.
    pub nonce: Nonce,
}

impl Token {
    /// The name of this attempt's container: `longshore-<cluster>-<job>-<fence>`.
    #[must_use]
    pub fn container_name(&self, cluster: ClusterId) -> String {
        alloc::format!("longshore-{cluster}-{}-{}", self.job, self.fence)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.job, self.fence)
    }
}
