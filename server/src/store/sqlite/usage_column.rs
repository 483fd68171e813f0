//! The column `usage`: the figures of [`Usage`] as a JSON list, in the order of [`Usage::figures`].

use protocol::Usage;
use rusqlite::Row;

use super::json_column;

/// The stored form; null if nothing was measured.
pub(super) fn code(usage: &Usage) -> Option<String> {
    (!usage.is_unknown()).then(|| {
        let figures = usage.figures().map(|(_, figure)| figure);
        // Numbers always have a JSON form.
        serde_json::to_string(&figures).unwrap_or_default()
    })
}

/// Reads the column at this index. A later version may have appended figures; these are left out.
pub(super) fn read(row: &Row<'_>, index: usize) -> rusqlite::Result<Usage> {
    let figures: Vec<Option<u64>> = json_column::read(row, index)?.unwrap_or_default();
    let figure = |index: usize| figures.get(index).copied().flatten();
    Ok(Usage {
        cpu_ms: figure(0),
        memory_peak_bytes: figure(1),
        network_received_bytes: figure(2),
        network_sent_bytes: figure(3),
        disk_read_bytes: figure(4),
        disk_written_bytes: figure(5),
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    fn read_again(code: Option<String>) -> Usage {
        let connection = Connection::open_in_memory().unwrap();
        connection.query_row("SELECT ?1", [code], |row| read(row, 0)).unwrap()
    }

    #[test]
    fn what_was_stored_is_read_and_what_nobody_measured_stays_unknown() {
        let usage = Usage { cpu_ms: Some(1_730), disk_written_bytes: Some(0), ..Usage::default() };
        assert_eq!(code(&usage).as_deref(), Some("[1730,null,null,null,null,0]"));
        assert_eq!(read_again(code(&usage)), usage);
        assert_eq!(code(&Usage::default()), None);
        assert_eq!(read_again(None), Usage::default());
    }

    #[test]
    fn figures_of_a_later_version_are_left_out() {
        let known = Usage { cpu_ms: Some(1), ..Usage::default() };
        assert_eq!(read_again(Some("[1,null,null,null,null,null,99]".into())), known);
        assert_eq!(read_again(Some("[1]".into())), known);
    }
}
