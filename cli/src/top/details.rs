//! One job in `longshore top`: its facts and the last lines of its output.

use crate::api::{Api, parse, root_cause};
use crate::failure::{Exit, Failure};
use crate::utf8::Utf8Stream;
use crate::view::{FullJob, JobView as _, WorkerRefView as _, pairs};

use super::model::Details;

/// Reads a job and the end of its output.
pub(super) async fn read(api: &Api, id: u64) -> anyhow::Result<Details> {
    let id = id.to_string();
    let full: FullJob = parse(api, &api.json(api.get(&["api", "jobs", &id])).await?)?;
    let job = &full.job;
    let facts = vec![
        ("job", format!("{} {}", job.id, job.name)),
        ("state", job.state_text()),
        ("why", job.reason_text_at(jiff::Timestamp::now())),
        ("worker", job.worker.as_ref().map(|worker| worker.label()).unwrap_or_default()),
        ("attempts", job.attempt_count.to_string()),
        ("accepted", job.created_at.to_string()),
        ("started", job.started_at.map(|at| at.to_string()).unwrap_or_default()),
        ("ended", job.ended_at.map(|at| at.to_string()).unwrap_or_default()),
        ("labels", pairs(&job.labels)),
    ];
    // A job without an attempt has no output to ask for.
    let output = if job.attempt_count > 0 { read_output(api, &id).await? } else { Vec::new() };
    Ok(Details { facts, output, may_grow: !job.has_ended() })
}

/// The last lines of both streams. A line is cut at [`LINE_CHARS_MAX`].
async fn read_output(api: &Api, id: &str) -> anyhow::Result<Vec<String>> {
    let request = api.request(reqwest::Method::GET, &["api", "jobs", id, "logs"]);
    let mut response = api.send(request.query(&[("tail", LINES_MAX)])).await?;
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(more)) => bytes.extend_from_slice(&more),
            Ok(None) => break,
            Err(error) => return Err(Failure::new(Exit::Unavailable, root_cause(&error)).into()),
        }
        // Lines may be long: only the end is kept.
        if bytes.len() > 2 * BYTES_MAX {
            bytes.drain(..bytes.len() - BYTES_MAX);
        }
    }
    Ok(last_lines(&bytes))
}

fn last_lines(bytes: &[u8]) -> Vec<String> {
    let bytes = &bytes[bytes.len().saturating_sub(BYTES_MAX)..];
    let mut decoder = Utf8Stream::default();
    let text = decoder.decode(bytes) + &decoder.flush();
    let cut = |line: &str| line.chars().take(LINE_CHARS_MAX).collect();
    let mut lines: Vec<String> = text.lines().map(cut).collect();
    lines.drain(..lines.len().saturating_sub(LINES_MAX));
    lines
}

/// Lines of output: a few screens.
const LINES_MAX: usize = 200;
/// Bytes of output that are kept.
const BYTES_MAX: usize = 256 << 10;
/// Wider than any terminal.
const LINE_CHARS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_the_output_is_kept() {
        let mut text = String::new();
        for n in 0..500 {
            text += &format!("line {n}\n");
        }
        let lines = last_lines(text.as_bytes());
        assert_eq!((lines.len(), lines[0].as_str(), lines[199].as_str()), (200, "line 300", "line 499"));
    }

    #[test]
    fn a_line_without_end_and_bytes_that_are_no_text_are_harmless() {
        assert_eq!(last_lines(b"a\xff\nb"), ["a\u{fffd}", "b"]);
        let long = vec![b'x'; 3 * BYTES_MAX];
        assert_eq!(last_lines(&long)[0].len(), LINE_CHARS_MAX);
        assert!(last_lines(b"").is_empty());
    }
}
