//! List cursors: the last id shown, in an opaque form.
//!
//! The checksum protects nothing; it turns a mangled cursor into an error instead of a wrong page. It stays valid over a restart.

use data_encoding::BASE64URL_NOPAD;
use protocol::JobId;
use sha2::{Digest, Sha256};

use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;

/// Encodes the cursor of a list of jobs.
pub(crate) fn write(last: JobId) -> String {
    encode(JOBS, last.0.to_be_bytes())
}

/// Decodes the cursor of a list of jobs.
///
/// # Errors
/// `invalid_cursor` if the checksum does not match.
pub(crate) fn read(text: &str) -> Result<JobId, Problem> {
    decode(JOBS, text).map(|id| JobId(u64::from_be_bytes(id)))
}

/// Encodes a position as a cursor. `list` tells lists apart, so that none takes the cursor of another.
pub(crate) fn encode<const N: usize>(list: &[u8], position: [u8; N]) -> String {
    BASE64URL_NOPAD.encode(&[&position[..], &check(list, &position)].concat())
}

/// Decodes a cursor of this list.
///
/// # Errors
/// `invalid_cursor` if the checksum does not match.
pub(crate) fn decode<const N: usize>(list: &[u8], text: &str) -> Result<[u8; N], Problem> {
    let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).ok();
    let position = bytes.as_deref().and_then(|bytes| {
        let (position, given) = bytes.split_first_chunk::<N>()?;
        (given == check(list, position)).then_some(*position)
    });
    position.ok_or_else(|| {
        Problem::new(ProblemCode::InvalidCursor, "the cursor is not one that this list gave")
            .field("?cursor")
            .hint("follow the Link header of the page before")
    })
}

fn check(list: &[u8], position: &[u8]) -> [u8; CHECK_BYTES] {
    let hash = Sha256::new().chain_update(list).chain_update(position).finalize();
    std::array::from_fn(|index| hash[index])
}

const JOBS: &[u8] = b"longshore jobs cursor 1";

const CHECK_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_a_mangled_one_does_not() {
        let cursor = write(JobId(4711));
        assert_eq!(read(&cursor).unwrap(), JobId(4711));
        for index in 0..cursor.len() {
            let mut mangled = cursor.clone().into_bytes();
            mangled[index] = if mangled[index] == b'A' { b'B' } else { b'A' };
            let mangled = String::from_utf8(mangled).unwrap();
            assert_eq!(read(&mangled).unwrap_err().code(), ProblemCode::InvalidCursor, "{mangled}");
        }
        assert!(read("").is_err());
        assert!(read("4711").is_err());
    }
}
