//! Faults of jobs files in the log, with their positions.

use crate::config::jobs_file::{Fault, Faults};

/// Logs each fault that is listed, and how many more there are.
pub(super) fn log_faults(faults: &Faults) {
    for fault in &faults.list {
        tracing::warn!(at = %position(fault), code = fault.code.name(), "fault in {}: {}", file_name(fault), fault.text);
    }
    if faults.more > 0 {
        tracing::warn!(more = faults.more, "there are more faults than are logged");
    }
}

fn file_name(fault: &Fault) -> &str {
    fault.file.rsplit('/').next().unwrap_or_default()
}

/// `jobs.yaml:4:5`, without directories: an API client does not need to know them.
pub(crate) fn position(fault: &Fault) -> String {
    let name = file_name(fault);
    match fault.at {
        at if at.is_whole_file() => name.to_owned(),
        at => format!("{name}:{}:{}", at.line, at.column),
    }
}
