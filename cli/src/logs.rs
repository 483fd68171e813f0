//! `longshore logs`: prints the output of a job byte for byte, and follows it until the job ends.
//!
//! Both streams arrive as events of one connection, in the order of their arrival at the server. Standard output goes to standard output,
//! standard error to standard error. Where output is missing, the line before it is ended, so that no line is made of two. Each event has an
//! id: if the connection breaks, the next one continues after the last event.

mod attempts;
mod member;
mod notes;
mod print;
mod printed_lines;
mod request;
mod together;

use std::time::{Duration, Instant};

use reqwest::Method;
use reqwest::header::ACCEPT;
use serde_json::Value;

use self::attempts::{AttemptChoice, parse_choice, show_all};
use self::member::{Member, OpenLines};
pub(crate) use self::notes::Notes;
use self::notes::ReportedEnds;
use self::print::{
    attempt_ended, end, end_last_lines, flush_streams, gap, late, output, switch_attempt, withheld,
};
use self::printed_lines::PrintedLines;
pub(crate) use self::request::LogRequest;
use self::together::show_together;
pub(crate) use self::together::{Together, follow_together};
use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::failure::{Exit, Failure, exit_of};
use crate::job_refs::{self, JobRef};
use crate::outage::{Awaited, Outage, until_answered};
use crate::records;
use crate::screen;
use crate::screen::job_output::JobOutputs;
use crate::sse::Events;
use crate::stream::Stream;
use crate::view::{self, JobView as _};

/// Show the output of a job.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore logs 12                    output of the latest attempt
  longshore logs -f 12                 and follow it until the job has ended
  longshore logs -f 12 --exit-code     and exit with its exit code
  longshore logs -t 12                 with the time of each line
  longshore logs 12 --since 10m        output of the last ten minutes
  longshore logs 12 --attempt 1 --stream stderr
  longshore logs 12 --attempt all      one attempt after the other
  longshore logs 12 > out 2> err       the two streams, byte for byte
  longshore logs '1064[3]'             the member with the index 3 of batch 1064

A job on several workers (run_on) has the output of its members; each line then begins with the worker.

On a terminal, colours and progress bars look as the job wrote them, unless NO_COLOR is set. Other control characters are shown as symbols.")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// Id of the job, or a member of a batch by its index, as `1064[3]`; in quotes, because shells expand brackets.
    #[arg(value_name = "ID", value_parser = job_refs::parse_one)]
    id: JobRef,
    /// Continue until the job has ended.
    #[arg(short = 'f', long)]
    follow: bool,
    /// With --follow, exit with the exit code of the job, as 'run --follow' does; 1 if it ended without one.
    #[arg(long, requires = "follow", conflicts_with = "attempt")]
    exit_code: bool,
    /// Number of the attempt, from 1, or `all` for one after the other, each below a heading [default: the latest].
    #[arg(long, value_name = "N|all", value_parser = parse_choice)]
    attempt: Option<AttemptChoice>,
    /// Only this stream.
    #[arg(long, value_enum, value_name = "STREAM")]
    stream: Option<Stream>,
    /// Start with the last lines of both streams together.
    #[arg(long, value_name = "LINES")]
    tail: Option<u32>,
    /// Start with the output that the server received at this instant (RFC 3339), from this date on (UTC), or so long ago (90s, 1h30m, 7d).
    #[arg(long, value_name = "TIME", value_parser = crate::run::date_or_instant_or_ago)]
    since: Option<String>,
    /// Begin each line with the time at which the server received it, in UTC; `-` if it is unknown.
    #[arg(short = 't', long)]
    timestamps: bool,
}

/// Shows the output of a job.
pub(crate) async fn logs(flags: Flags) -> anyhow::Result<()> {
    records::refuse_records(flags.common.format)?;
    let api = Api::new(&flags.common.server_args)?;
    let mut outage = flags.follow.then(|| Outage::before_first_answer(None));
    let id = until_answered(outage.as_mut(), Awaited::Nothing, async || flags.id.id(&api).await).await?;
    let wanted = LogRequest {
        id,
        attempt: flags.attempt.and_then(AttemptChoice::number),
        names_attempt: false,
        stream: flags.stream,
        tail: flags.tail,
        since: flags.since,
        from_first: false,
        as_json: flags.common.format.is_json(),
        timestamps: flags.timestamps,
        prints_end: flags.follow,
        member: None,
    };
    let mut notes = Notes::default();
    if flags.attempt == Some(AttemptChoice::All) {
        if flags.follow {
            let text = "--attempt all shows what is there, and does not go together with --follow";
            return Err(Failure::new(Exit::Usage, text)
                .hint("--follow alone goes on with each further attempt")
                .into());
        }
        return show_all(&api, &wanted).await;
    }
    if flags.follow {
        // A member was looked up by a request.
        let outage = match flags.id {
            JobRef::Id(_) => Outage::before_first_answer(None),
            JobRef::Members(..) => Outage::default(),
        };
        let parent = print_until_end(&api, &wanted, &mut notes, outage).await?;
        if let Some(parent) = &parent {
            let parent: view::Job = parse(&api, parent)?;
            screen::note(&format!("longshore: job {} {}", parent.id, parent.end_text()));
        }
        if flags.exit_code {
            let ended = match parent {
                Some(parent) => parent,
                None => notes.beside(&api, id, wait_for_end(&api, id)).await?,
            };
            let exit = parse::<view::Job>(&api, &ended)?.failure_exit();
            return exit.map_or(Ok(()), |exit| Err(Failure::silent(exit).into()));
        }
    } else if has_members(&api, id).await.unwrap_or(false) {
        show_together(&api, &wanted, Together::MembersOf(id)).await?;
    } else if show(&api, &wanted, false, &notes.reported_ends).await? == NO_ATTEMPT {
        notes::tell_unstarted(&api, &wanted).await;
    }
    Ok(())
}

/// Prints the output of a job, or of its members, until it has ended, and returns its final JSON.
pub(crate) async fn follow(api: &Api, wanted: &LogRequest, notes: &mut Notes) -> anyhow::Result<Value> {
    match print_until_end(api, wanted, notes, Outage::default()).await? {
        Some(parent) => Ok(parent),
        None => notes.beside(api, wanted.id, wait_for_end(api, wanted.id)).await,
    }
}

/// Prints the output of a job, or of its members, until it has ended. Returns the final JSON of a job that has members.
async fn print_until_end(
    api: &Api,
    wanted: &LogRequest,
    notes: &mut Notes,
    mut outage: Outage,
) -> anyhow::Result<Option<Value>> {
    let id = wanted.id;
    let ask = async || has_members(api, id).await;
    if !until_answered(Some(&mut outage), wanted.awaited(), ask).await? {
        let reported_ends = notes.reported_ends.clone();
        let got_members = tokio::select! {
            biased;
            attempt = show(api, wanted, true, &reported_ends) => attempt? == NO_ATTEMPT && notes.look(api, id).await,
            // It was not due at first.
            () = notes.watch(api, id) => true,
        };
        if !got_members {
            return Ok(None);
        }
    }
    follow_together(api, wanted, Together::MembersOf(id)).await.map(Some)
}

/// The job runs on several workers, and has members by now. The request for its output reports a refusal.
///
/// # Errors
/// The server is unavailable.
async fn has_members(api: &Api, id: u64) -> anyhow::Result<bool> {
    match api.json(api.get(&["api", "jobs", &id.to_string()])).await {
        Err(error) if exit_of(&error) == Exit::Unavailable => Err(error),
        job => Ok(job.is_ok_and(|job| !job["members"].is_null())),
    }
}

/// Waits until a job has ended, and returns its final JSON.
pub(crate) async fn wait_for_end(api: &Api, id: u64) -> anyhow::Result<Value> {
    let mut pause = PAUSE_MIN;
    let mut outage = Outage::default();
    loop {
        let asked_at = Instant::now();
        let request = api.get(&["api", "jobs", &id.to_string()]).query(&[("wait", WAIT)]);
        match api.json(request).await {
            Ok(json) if parse::<view::Job>(api, &json)?.has_ended() => return Ok(json),
            Ok(_) => outage.end(),
            Err(error) => outage.retry_or_fail(error, Awaited::Job(id))?,
        }
        // A server that is stopping or busy answers at once.
        if asked_at.elapsed() < PAUSE_MAX {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// The state that survives broken connections.
#[derive(Debug, Default)]
struct ResumeState {
    /// Id of the last event; the output continues after it.
    last: Option<String>,
    /// Number of the attempt whose output is printed.
    attempt: u32,
    /// The failed connections since the last event.
    outage: Outage,
    /// The look of each stream, with incomplete characters at its end.
    looks: JobOutputs,
    /// The job, if others are printed beside it.
    member: Option<Member>,
    /// Its incomplete lines.
    lines: OpenLines,
    /// JSON lines have the number of the attempt.
    names_attempt: bool,
    /// The lines that were printed byte for byte or with times.
    printed: PrintedLines,
    /// Streams of this attempt for which the note about replayed output was printed.
    replayed: Vec<Stream>,
    /// The note about withheld output of this attempt was printed.
    withheld: bool,
    /// The latest attempt whose end was printed as JSON.
    ended: u32,
    reported_ends: ReportedEnds,
}

impl ResumeState {
    /// Prints a JSON line about the job.
    fn print_json(&self, mut line: Value) -> anyhow::Result<()> {
        if let Some(member) = &self.member {
            member.add_to(&mut line);
        }
        if self.names_attempt {
            line["attempt"] = self.attempt.into();
        }
        screen::line(&line.to_string())
    }
}

/// Prints the output, and returns the number of its last attempt; when following, reconnects until the job has ended.
async fn show(
    api: &Api,
    wanted: &LogRequest,
    follow: bool,
    reported_ends: &ReportedEnds,
) -> anyhow::Result<u32> {
    let last = wanted.from_first.then(|| START_EVENT_ID.to_owned());
    let member = wanted.member.clone();
    let looks = JobOutputs::new(wanted.timestamps);
    let (names_attempt, reported_ends) = (wanted.names_attempt, reported_ends.clone());
    let mut resume =
        ResumeState { last, looks, member, names_attempt, reported_ends, ..ResumeState::default() };
    loop {
        let opened_at = Instant::now();
        let Err(error) = print_response(api, wanted, follow, &mut resume).await else {
            flush_streams(wanted, &mut resume)?;
            end_last_lines(follow, &mut resume)?;
            return Ok(resume.attempt);
        };
        // A verb that follows has asked for the job before.
        if !follow {
            return Err(error);
        }
        // A job may be silent for hours, so a connection that lasted a while did not fail.
        if opened_at.elapsed() >= STABLE_AFTER {
            resume.outage.end();
        }
        resume.outage.retry_or_fail(error, wanted.awaited())?;
        tokio::time::sleep(resume.outage.growing_pause(PAUSE_MIN, PAUSE_MAX)).await;
    }
}

/// Prints the events of one response.
async fn print_response(
    api: &Api,
    wanted: &LogRequest,
    follow: bool,
    resume: &mut ResumeState,
) -> anyhow::Result<()> {
    let path = ["api", "jobs", &wanted.id.to_string(), "logs"];
    let query = wanted.query(follow, resume.last.is_some());
    let mut request = api.request(Method::GET, &path).header(ACCEPT, "text/event-stream").query(&query);
    if let Some(last) = &resume.last {
        request = request.header("last-event-id", last);
    }
    let mut events = Events::of(api, api.send(request).await?)?;
    while let Some(event) = events.next().await? {
        match event.name.as_str() {
            "attempt" => switch_attempt(wanted, &event.read(api)?, resume)?,
            "output" => output(api, wanted, &event.read(api)?, resume)?,
            "gap" => gap(wanted, &event.read(api)?, resume)?,
            "withheld" => withheld(wanted, &event.read(api)?, resume)?,
            "attempt_ended" => attempt_ended(wanted, &event.read(api)?, resume)?,
            "late" => late(wanted, &event.read(api)?, resume)?,
            "end" => return end(wanted, &event.read(api)?, resume),
            "leaving" => return Err(unavailable("the server is shutting down")),
            "error" => return Err(unavailable("the server cannot read the output")),
            _ => {}
        }
        // Every connection repeats the attempt event, which alone is no progress.
        if event.id.is_some() && event.id != resume.last {
            resume.last = event.id;
            resume.outage.end();
        }
    }
    if follow { Err(unavailable("the output ended early")) } else { Ok(()) }
}

fn unavailable(why: &str) -> anyhow::Error {
    Failure::new(Exit::Unavailable, why).hint("try again").into()
}

/// About the duration of the shortest job.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Short enough for people, and cheap for a server with hundreds of clients.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The server waits this long for the end of the job; less than the read timeout.
const WAIT: &str = "60s";
/// The job has not been tried: there is no output.
const NO_ATTEMPT: u32 = 0;
/// The event id before the first byte.
const START_EVENT_ID: &str = "1:0";
/// A connection that lasted longer than this counts as working.
const STABLE_AFTER: Duration = Duration::from_secs(10);
