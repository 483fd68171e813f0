//! Rows of the history of the definitions, and the trait by which they are read. They are no part of the scheduler's state.

use std::collections::BTreeMap;

use protocol::{Revision, Timestamp};
use serde::{Deserialize, Serialize};

use super::ReadError;

/// The cause of a load of definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadCause {
    /// The server was started with other definitions than those that were in force before.
    Start,
    /// A request or SIGHUP.
    Reload,
    /// The watch of the file.
    Watch,
    /// A deploy.
    Deploy,
}

impl LoadCause {
    /// Every cause.
    pub const ALL: [Self; 4] = [Self::Start, Self::Reload, Self::Watch, Self::Deploy];

    /// Its name in the store and in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Reload => "reload",
            Self::Watch => "watch",
            Self::Deploy => "deploy",
        }
    }

    /// The cause of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.name() == name)
    }
}

/// Names of definitions: the first ones of a list, and the number of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedNames {
    /// The first names, in order.
    pub names: Vec<String>,
    /// As many more are not kept.
    pub more: u64,
}

impl ChangedNames {
    /// Keeps the first 100 of these names.
    #[must_use]
    pub fn of(names: &[String]) -> Self {
        let kept = &names[..names.len().min(NAMES_MAX)];
        Self { names: kept.to_vec(), more: (names.len() - kept.len()) as u64 }
    }
}

/// Names of a list that a row keeps: a row has some 10 KB at most, and a person reads no longer list.
const NAMES_MAX: usize = 100;

/// A load that has changed definitions or the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionChangeRow {
    /// Its number; later rows have higher ones. 0 before it is stored.
    pub id: u64,
    /// The time of the load.
    pub at: Timestamp,
    /// The cause of the load.
    pub cause: LoadCause,
    /// The name of the token, or of the user; absent for SIGHUP, the watch and starts, and for requests without a token.
    pub by: Option<String>,
    /// The reason that the requester gave.
    pub reason: Option<String>,
    /// Revision of the whole set before; absent if no set before is known.
    pub before: Option<Revision>,
    /// Revision of the whole set afterwards.
    pub after: Revision,
    /// New definitions.
    pub added: ChangedNames,
    /// Definitions with other keys.
    pub changed: ChangedNames,
    /// Definitions that are gone.
    pub removed: ChangedNames,
    /// The policy has other rules.
    pub policy_changed: bool,
}

/// The definitions of a load as hashes, for the comparison with those of the next start. Hashes leave out secrets of webhooks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedSet {
    /// The program that made the hashes. [`EntryHashes::all`] and `policy` can be compared with those of the same one only.
    pub program: String,
    /// Revision of the whole set.
    pub revision: String,
    /// A hash of the policy.
    pub policy: String,
    /// The definitions by name.
    pub definitions: BTreeMap<String, EntryHashes>,
}

/// The hashes of a definition that is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefinitionHash {
    /// Its revision.
    pub revision: Revision,
    /// A hash of all its keys, apart from secrets of webhooks.
    pub all: Revision,
}

/// The definitions of a load as hashes, by name.
pub type DefinitionHashes = BTreeMap<String, DefinitionHash>;

/// The hashes of a definition in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryHashes {
    /// Its revision, which is the same in each version of the server.
    pub revision: String,
    /// A hash of all its keys.
    pub all: String,
}

/// A deploy that is about to replace the jobs file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployIntent {
    /// The name of the token, or of the user.
    pub by: Option<String>,
    /// The reason that the requester gave.
    pub reason: Option<String>,
    /// Revision that the whole set will have.
    pub after: String,
}

/// The facts by which a start sees what it loads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastLoad {
    /// The definitions after the last load; none if no load was recorded.
    pub loaded: Option<LoadedSet>,
    /// A deploy that has begun, and whose load was not recorded.
    pub deploying: Option<DeployIntent>,
}

/// A change of the history of the definitions.
#[derive(Clone, Debug)]
pub enum DefinitionChange {
    /// A deploy is about to replace the jobs file.
    Deploying(DeployIntent),
    /// The deploy that was about to begin has replaced nothing.
    NotDeployed,
    /// Definitions were loaded.
    Loaded {
        /// The row about the change; absent if nothing has changed.
        row: Option<Box<DefinitionChangeRow>>,
        /// The definitions afterwards.
        loaded: LoadedSet,
        /// The number of rows that are kept, the latest ones.
        rows_max: u64,
    },
}

/// Reads the history of the definitions. Calls block on the disk.
pub trait DefinitionArchive: Send + Sync {
    /// At most `limit` rows with numbers below `before`, the newest first.
    ///
    /// # Errors
    /// The store cannot be read.
    fn definition_changes(&self, before: u64, limit: usize) -> Result<Vec<DefinitionChangeRow>, ReadError>;

    /// The last load.
    ///
    /// # Errors
    /// The store cannot be read.
    fn last_load(&self) -> Result<LastLoad, ReadError>;
}
