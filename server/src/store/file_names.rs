//! Names of files in a data directory.

/// The database.
pub(crate) const DATABASE: &str = "longshore.db";

/// The token of the first administrator.
pub(crate) const ADMIN_TOKEN: &str = "admin.token";

/// The record of the last complete backup.
pub(crate) const LAST_BACKUP: &str = "last-backup.json";

/// The record of the last failed backup, if no complete one followed.
pub(crate) const FAILED_BACKUP: &str = "failed-backup.json";

/// The store that is being restored. As long as it is there, nobody knows whether the store is whole.
pub const RESTORING: &str = "restoring";
