//! A store without tokens and without an audit log.

use longshore_server::auth::records::AccessRecords;
use longshore_server::engine::AccessWriter;
use longshore_server::store::{AccessArchive, AuditFilter, AuditRow, ReadError, TokenRow};

struct Empty;

impl AccessArchive for Empty {
    fn tokens(&self) -> Result<Vec<TokenRow>, ReadError> {
        Ok(Vec::new())
    }

    fn audit(&self, _: &AuditFilter) -> Result<Vec<AuditRow>, ReadError> {
        Ok(Vec::new())
    }
}

/// No tokens; changes are refused.
pub fn no_records() -> AccessRecords {
    AccessRecords::load(std::sync::Arc::new(Empty), AccessWriter::closed()).unwrap()
}
