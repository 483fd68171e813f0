//! Refusals of a Hello.

use alloc::string::{String, ToString};
use core::time::Duration;

use protocol::order::Refused;

/// Retry delay of a refused worker; the reason needs a person.
const REFUSED_RETRY: Duration = Duration::from_secs(15);

/// The answer to a worker that may not join, with the reason for people.
pub(crate) fn refused(code: &str, text: String) -> Refused {
    Refused { code: code.to_string(), text, retry_after: REFUSED_RETRY }
}
