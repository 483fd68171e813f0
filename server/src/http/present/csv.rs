//! Jobs as CSV by RFC 4180: a heading, a record a line, CRLF after each.
//!
//! Written by hand: it is one function of quoting, and no library here protects a spreadsheet from formulas.

use serde_json::Value;

use super::shapes::ListedJob;

/// The names of the columns, in their order. A new column stands behind all others, in a
/// further part, so that programs may count.
const HEADING: &str = "id,name,state,outcome,exit_code,reason,created_at,started_at,ended_at,ran_ms,attempt_count,worker_id,\
                       worker,priority,schedule,scheduled_at,batch,retry_of,revision,labels";

/// Further columns of a list with results.
const RESULTS_HEADING: &str = ",index,params,result";

/// Columns that came later.
const LATER_HEADING: &str = ",submitted_by";

/// Columns of a list with results that came later still.
const LATER_RESULTS_HEADING: &str = ",note";

/// The names of the columns.
pub(crate) fn heading(with_results: bool) -> String {
    let (results, later_results) =
        if with_results { (RESULTS_HEADING, LATER_RESULTS_HEADING) } else { ("", "") };
    format!("{HEADING}{results}{LATER_HEADING}{later_results}\r\n")
}

/// Appends the record of a job. A result that is a text is written without quotes of JSON, so that it is a plain cell.
pub(crate) fn write_job(csv: &mut String, listed: &ListedJob, with_results: bool) {
    let job = &listed.job;
    let worker = job.worker.as_ref();
    let labels = if job.labels.is_empty() { None } else { serde_json::to_string(&job.labels).ok() };
    let cells = [
        plain(Some(job.id)),
        text(Some(&job.name)),
        text(Some(&job.state)),
        text(job.outcome.as_deref()),
        plain(job.exit_code),
        text(Some(&job.reason)),
        plain(Some(job.created_at)),
        plain(job.started_at),
        plain(job.ended_at),
        plain(job.ran_ms),
        plain(Some(job.attempt_count)),
        plain(worker.map(|worker| worker.id)),
        text(worker.map(|worker| worker.name.as_str())),
        plain(Some(job.priority)),
        text(job.schedule.as_deref()),
        plain(job.scheduled_at),
        plain(job.batch),
        plain(job.retry_of),
        text(Some(&job.revision)),
        text(labels.as_deref()),
    ];
    csv.push_str(&cells.join(","));
    if with_results {
        let params = if listed.params.is_empty() { None } else { serde_json::to_string(&listed.params).ok() };
        let result = match &listed.result {
            Some(number @ Value::Number(_)) => plain(Some(number)),
            Some(Value::String(result)) => text(Some(result)),
            result => text(result.as_ref().map(Value::to_string).as_deref()),
        };
        for cell in [plain(listed.index), text(params.as_deref()), result] {
            csv.push(',');
            csv.push_str(&cell);
        }
    }
    csv.push(',');
    csv.push_str(&text(job.submitted_by.as_deref()));
    if with_results {
        csv.push(',');
        csv.push_str(&text(listed.note.as_deref()));
    }
    csv.push_str("\r\n");
}

/// A cell with a number or an instant, which the server wrote itself.
fn plain(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// A cell with a text of users or of a container. A spreadsheet would run one that begins like a formula: an apostrophe makes it text.
fn text(value: Option<&str>) -> String {
    let value = value.unwrap_or_default();
    let is_formula = value.starts_with(FORMULA_STARTS);
    if !is_formula && !value.contains(['"', ',', '\r', '\n']) {
        return value.to_owned();
    }
    let apostrophe = if is_formula { "'" } else { "" };
    format!("\"{apostrophe}{}\"", value.replace('"', "\"\""))
}

/// First characters of formulas for Excel, LibreOffice and Google Sheets, also in full width.
const FORMULA_STARTS: [char; 11] = ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::shapes::Job;
    use super::*;

    /// A reader of RFC 4180, so that quoting is compared with something else than itself.
    fn read(csv: &str) -> Vec<String> {
        let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
        let mut chars = csv.strip_suffix("\r\n").expect("a record ends with CRLF").chars().peekable();
        while let Some(char) = chars.next() {
            match (char, quoted) {
                ('"', true) if chars.peek() == Some(&'"') => cell.extend(chars.next()),
                ('"', _) => quoted = !quoted,
                (',', false) => cells.push(std::mem::take(&mut cell)),
                (other, _) => cell.push(other),
            }
        }
        cells.push(cell);
        cells
    }

    fn column(csv: &str, name: &str) -> String {
        let cells = read(csv);
        let names = read(&heading(true));
        assert_eq!(cells.len(), names.len(), "{csv}");
        cells[names.iter().position(|known| known == name).expect("a column")].clone()
    }

    #[test]
    fn texts_are_quoted_and_numbers_stay_numbers() {
        let mut csv = String::new();
        let job = Job {
            id: 7,
            reason: "it said \"no, never\"\nand left".to_owned(),
            exit_code: Some(-1),
            priority: -5,
            labels: BTreeMap::from([("team".to_owned(), "=web".to_owned())]),
            ..Job::default()
        };
        let params = BTreeMap::from([("size".to_owned(), 640.into())]);
        let (result, note) = (Some("=HYPERLINK()".into()), Some("its result, too".to_owned()));
        let listed = ListedJob { job: job.clone(), index: Some(3), params, result, note };
        write_job(&mut csv, &listed, true);
        assert_eq!(column(&csv, "note"), "its result, too");
        assert_eq!(
            (column(&csv, "index"), column(&csv, "params")),
            ("3".to_owned(), r#"{"size":640}"#.to_owned())
        );
        assert_eq!(column(&csv, "result"), "'=HYPERLINK()");
        assert_eq!(column(&csv, "id"), "7");
        assert_eq!(column(&csv, "reason"), job.reason);
        assert_eq!((column(&csv, "exit_code"), column(&csv, "priority")), ("-1".to_owned(), "-5".to_owned()));
        assert_eq!(column(&csv, "labels"), r#"{"team":"=web"}"#);
        assert_eq!(column(&csv, "ended_at"), "");
    }

    #[test]
    fn a_text_that_begins_like_a_formula_is_made_text() {
        for start in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1"] {
            let mut csv = String::new();
            let reason = format!("{start},\"x\"");
            let job = Job { reason: reason.clone(), ..Job::default() };
            write_job(&mut csv, &ListedJob { job, ..ListedJob::default() }, true);
            assert_eq!(column(&csv, "reason"), format!("'{reason}"));
        }
        assert_eq!(text(Some("exit code 3")), "exit code 3");
    }
}
