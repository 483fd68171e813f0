//! Directories that only the owner may read.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use super::{Error, io_error_at};

/// Creates a directory, and those above it that are missing.
pub(super) fn make_private(path: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io_error_at(path))
}
