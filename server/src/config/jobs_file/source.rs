//! Files as text: opened without blocking on a FIFO, and refused with a reason.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::fault::FaultCode;
use super::grammar::ValueFault;

/// The text of a regular file of at most `bytes_max` bytes, without a byte order mark.
pub(super) fn read(path: &Path, bytes_max: usize) -> Result<String, ValueFault> {
    let cannot = |reason: String| ValueFault::new(FaultCode::CannotRead, reason);
    // Without O_NONBLOCK, opening a FIFO blocks until a writer opens it.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)
        .map_err(|error| cannot(reason(&error)))?;
    let metadata = file.metadata().map_err(|error| cannot(reason(&error)))?;
    if metadata.is_dir() {
        return Err(cannot("it is a directory".to_owned()));
    }
    if !metadata.is_file() {
        return Err(cannot("it is not a regular file".to_owned()));
    }
    let mut content = Vec::new();
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    file.by_ref()
        .take(limit.saturating_add(1))
        .read_to_end(&mut content)
        .map_err(|error| cannot(reason(&error)))?;
    decode(content, bytes_max)
}

/// Checks the length of a text against its limit.
pub(super) fn check_length(length: usize, bytes_max: usize) -> Result<(), ValueFault> {
    if length <= bytes_max {
        return Ok(());
    }
    Err(ValueFault::new(FaultCode::FileTooLarge, format!("it is larger than {bytes_max} bytes")))
}

fn decode(content: Vec<u8>, bytes_max: usize) -> Result<String, ValueFault> {
    check_length(content.len(), bytes_max)?;
    if content.starts_with(&[0xff, 0xfe]) || content.starts_with(&[0xfe, 0xff]) {
        return Err(ValueFault::new(
            FaultCode::NotUtf8,
            "it begins with a mark of UTF-16 at byte offset 0; save it as UTF-8",
        ));
    }
    let text = String::from_utf8(content).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        ValueFault::new(
            FaultCode::NotUtf8,
            format!("it is not UTF-8 at byte offset {offset}; save it as UTF-8"),
        )
    })?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

pub(super) fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "it does not exist".to_owned(),
        std::io::ErrorKind::PermissionDenied => {
            "permission denied; the server's user must be able to read it".to_owned()
        }
        std::io::ErrorKind::NotADirectory => "a part of its path is not a directory".to_owned(),
        _ => error.to_string(),
    }
}
