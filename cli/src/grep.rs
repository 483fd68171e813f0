//! `longshore grep`: prints the lines of stored output that fit a text or a regular expression.
//!
//! The server searches a part per request; this verb follows its cursor. The exit codes are those of `grep`.

use server::http::present::shapes::{OutputLine, OutputSearch};

use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::failure::{Exit, Failure};
use crate::job_refs::{self, JobRef};
use crate::jobs::Filters;
use crate::outage::{Awaited, Outage};
use crate::records;
use crate::screen::{self, Format};
use crate::stream::Stream;
use crate::utf8::Utf8Stream;

/// Search the output of jobs, the newest job first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore grep 'out of memory' --since 1d        a text
  longshore grep -i error --name 'resize-*'        in any case of letters
  longshore grep -E 'took [0-9]{4,} ms' --job 12   a regular expression
  longshore grep panicked --batch 40               the jobs of a batch
  longshore grep panicked --state failed -o json   a JSON object a line

Exit codes: 0 a line was found, 1 none, 2 an error.")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// The text to search.
    #[arg(value_name = "PATTERN")]
    pattern: String,
    /// PATTERN is a regular expression.
    #[arg(short = 'E', long)]
    regex: bool,
    /// PATTERN is the text itself, as without this flag.
    #[arg(short = 'F', long, conflicts_with = "regex")]
    fixed: bool,
    /// Upper and lower case are the same.
    #[arg(short = 'i', long)]
    ignore_case: bool,
    /// Only the output of this job; `1064[3]` is a member of a batch.
    #[arg(long, value_name = "ID", value_parser = job_refs::parse_one)]
    job: Option<JobRef>,
    /// Only the output of the jobs of this batch.
    #[arg(long, value_name = "ID", value_parser = crate::jobs::parse_job_id, conflicts_with = "job")]
    batch: Option<u64>,
    /// Only this stream.
    #[arg(long, value_enum, value_name = "STREAM")]
    stream: Option<Stream>,
    /// Stop after this number of lines.
    #[arg(short = 'm', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_count: Option<u64>,
    #[command(flatten)]
    filters: Filters,
}

impl Flags {
    fn query(&self, job: Option<u64>) -> Vec<(&'static str, String)> {
        let on = |flag: bool| flag.then(|| "1".to_owned());
        let own = [
            ("q", Some(self.pattern.clone())),
            ("regex", on(self.regex)),
            ("ignore_case", on(self.ignore_case)),
            ("job", job.map(|job| job.to_string())),
            ("batch", self.batch.map(|batch| batch.to_string())),
            ("stream", self.stream.map(|stream| stream.name().to_owned())),
        ];
        let own = own.into_iter().filter_map(|(key, value)| Some((key, value?)));
        own.chain(self.filters.query()).collect()
    }
}

/// Searches output. Ends with [`Exit::Failed`] if no line fits.
pub(crate) async fn grep(flags: Flags) -> anyhow::Result<()> {
    match search(&flags).await {
        Ok(0) => Err(Failure::silent(Exit::Failed).into()),
        Ok(_) => Ok(()),
        Err(error) => Err(with_exit_of_grep(error)),
    }
}

/// Any error exits with 2, because 1 means that no line fits.
fn with_exit_of_grep(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Failure>() {
        Ok(failure) if failure.exit == Exit::OutputClosed => failure.into(),
        Ok(failure) => failure.with_exit(Exit::Usage).into(),
        Err(error) => Failure::new(Exit::Usage, format!("{error:#}")).into(),
    }
}

/// Prints all lines that fit, and returns their number.
async fn search(flags: &Flags) -> anyhow::Result<u64> {
    let api = Api::new(&flags.common.server_args)?;
    let job = match &flags.job {
        Some(job) => Some(job.id(&api).await?),
        None => None,
    };
    let (query, has_colour) = (flags.query(job), screen::stdout_has_colour());
    let max = flags.max_count.unwrap_or(u64::MAX);
    let (mut printed, mut cursor, mut cut) = (0, None::<String>, CutJobs::default());
    let mut outage = Outage::of_at_most(OUTAGE_MAX);
    if flags.common.format == Format::Csv {
        screen::records(CSV_HEADING.as_bytes(), &mut Utf8Stream::default())?;
    }
    loop {
        let limit = (max - printed).min(PAGE_MAX);
        let mut request = api.get(&["api", "logs", "search"]).query(&query).query(&[("limit", limit)]);
        if let Some(cursor) = &cursor {
            request = request.query(&[("cursor", cursor)]);
        }
        let page: OutputSearch = match api.json(request).await {
            Ok(json) => parse(&api, &json)?,
            Err(error) if cursor.is_some() => {
                outage.retry_or_fail(error, Awaited::Nothing)?;
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        outage.end();
        for line in &page.lines {
            match flags.common.format {
                Format::Json | Format::Ndjson => screen::line(&serde_json::to_string(line)?)?,
                Format::Table | Format::Wide => screen::line(&shown(line, has_colour))?,
                Format::Name => screen::line(&line.job.to_string())?,
                Format::Csv => screen::records(csv_record(line).as_bytes(), &mut Utf8Stream::default())?,
            }
        }
        printed += page.lines.len() as u64;
        cut.add(&page.cut_jobs);
        match page.next {
            Some(next) if printed < max => cursor = Some(next),
            _ => {
                cut.print_note();
                return Ok(printed);
            }
        }
    }
}

/// The jobs whose output was cut, so that lines of them cannot be found.
#[derive(Default)]
struct CutJobs {
    /// Some of them, in the order of the search.
    named: Vec<u64>,
    count: u64,
    last: Option<u64>,
}

impl CutJobs {
    /// Adds those of a part of the search. A job at its end can be in the next part, too.
    fn add(&mut self, jobs: &[u64]) {
        for job in jobs {
            if self.last.replace(*job) == Some(*job) {
                continue;
            }
            self.count += 1;
            if self.named.len() < NAMED_MAX {
                self.named.push(*job);
            }
        }
    }

    fn print_note(&self) {
        let names: Vec<String> = self.named.iter().map(ToString::to_string).collect();
        let more = match self.count - self.named.len() as u64 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let jobs = if self.count == 1 { "job" } else { "jobs" };
        if self.count > 0 {
            screen::note(&format!(
                "longshore: output of {jobs} {}{more} was cut at log.max_bytes: only what is stored was searched",
                names.join(", ")
            ));
        }
    }
}

/// Jobs that a note names; the rest is counted.
const NAMED_MAX: usize = 5;

/// A line of CSV, in the order of [`CSV_HEADING`].
fn csv_record(line: &OutputLine) -> String {
    let cells = [line.job.to_string(), line.attempt.to_string(), line.stream.to_string(), line.text.clone()];
    records::record(cells.iter().map(|cell| records::cell(cell)))
}

const CSV_HEADING: &str = "job,attempt,stream,text\r\n";

/// `job 12 stdout: …`, the matches in colour. Control characters are shown as symbols.
fn shown(line: &OutputLine, has_colour: bool) -> String {
    let attempt = if line.attempt > 1 { format!(" attempt {}", line.attempt) } else { String::new() };
    let mut shown = format!("job {}{attempt} {}: ", line.job, screen::visible(&line.stream));
    let mut at = 0;
    let ranges = if has_colour { line.matches.as_slice() } else { &[] };
    for [begin, end] in ranges {
        // A server of another version may count otherwise.
        let (Some(before), Some(found)) = (line.text.get(at..*begin), line.text.get(*begin..*end)) else {
            break;
        };
        shown.push_str(&screen::visible(before));
        shown.push_str(MATCH);
        shown.push_str(&screen::visible(found));
        shown.push_str(PLAIN);
        at = *end;
    }
    shown.push_str(&screen::visible(line.text.get(at..).unwrap_or_default()));
    if line.truncated {
        shown.push('…');
    }
    shown
}

/// Bold red, as `grep` has it.
const MATCH: &str = "\x1b[1;31m";
const PLAIN: &str = "\x1b[0m";

/// The most lines of one answer.
const PAGE_MAX: u64 = 500;

/// Shorter than for a wait: a person looks at the lines as they come.
const OUTAGE_MAX: std::time::Duration = std::time::Duration::from_secs(30);

/// Pause before a request is repeated.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_have_colour_and_escapes_of_the_output_are_harmless() {
        let line = OutputLine {
            job: 12,
            name: "resize".into(),
            attempt: 2,
            stream: "stdout".into(),
            offset: 0,
            text: "\u{1b}[2Ja bad end".into(),
            matches: vec![[6, 9], [10, 13]],
            truncated: true,
            started_at: None,
        };
        assert_eq!(shown(&line, false), "job 12 attempt 2 stdout: ␛[2Ja bad end…");
        let coloured = "job 12 attempt 2 stdout: ␛[2Ja \u{1b}[1;31mbad\u{1b}[0m \u{1b}[1;31mend\u{1b}[0m…";
        assert_eq!(shown(&line, true), coloured);
        let wrong = OutputLine { matches: vec![[900, 901]], ..line };
        assert_eq!(shown(&wrong, true), shown(&wrong, false));
    }
}
