//! `longshore logs`: what a job wrote, byte for byte; and staying with a job until it has ended.
//!
//! Both streams come as the events of one connection, in the order in which they arrived; standard output goes to ours and standard
//! error to ours. An event has an id, its place: a connection that breaks while following is opened again behind the last one shown.

use std::time::{Duration, Instant};

use data_encoding::BASE64;
use reqwest::Method;
use reqwest::header::ACCEPT;
use serde_json::{Value, json};

use crate::api::{Api, read};
use crate::events::Events;
use crate::failure::{Exit, Failure};
use crate::screen::{self, Format, Stream};
use crate::text::Texts;
use crate::{Asking, view};

/// Show what a job wrote.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore logs 12                    what its latest attempt wrote
  longshore logs -f 12                 and what it will write, until it has ended
  longshore logs 12 --attempt 1 --stream stderr
  longshore logs 12 > out 2> err       the two streams, byte for byte")]
pub(crate) struct Flags {
    #[command(flatten)]
    asking: Asking,
    /// Which job.
    #[arg(value_name = "ID", value_parser = crate::jobs::number)]
    id: u64,
    /// Go on until the job has ended.
    #[arg(short = 'f', long)]
    follow: bool,
    /// Which attempt, counted from 1; the latest if not given.
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// Only this stream.
    #[arg(long, value_enum, value_name = "STREAM")]
    stream: Option<Stream>,
    /// Begin with the last lines, of both streams together.
    #[arg(long, value_name = "LINES")]
    tail: Option<u32>,
}

/// Shows a job's output.
pub(crate) async fn logs(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.asking.door)?;
    let wanted = Following {
        id: flags.id,
        attempt: flags.attempt,
        stream: flags.stream,
        tail: flags.tail,
        from_first: false,
        as_json: flags.asking.format == Format::Json,
        tells_end: flags.follow,
    };
    show(&api, &wanted, flags.follow).await
}

/// Which output is wanted.
#[derive(Debug)]
pub(crate) struct Following {
    id: u64,
    attempt: Option<u32>,
    stream: Option<Stream>,
    tail: Option<u32>,
    from_first: bool,
    as_json: bool,
    /// Whether whoever follows is told by this how the job ended.
    tells_end: bool,
}

impl Following {
    /// All that a job writes, from its first attempt on; how it ends is told elsewhere.
    pub(crate) const fn everything(id: u64) -> Self {
        Self {
            id,
            attempt: None,
            stream: None,
            tail: None,
            from_first: true,
            as_json: false,
            tells_end: false,
        }
    }

    fn query(&self, follow: bool, resumed: bool) -> Vec<(&'static str, String)> {
        let query = [
            ("encoding", Some("base64".to_owned())),
            ("follow", follow.then(|| "1".to_owned())),
            ("attempt", self.attempt.map(|attempt| attempt.to_string())),
            ("stream", self.stream.map(|stream| stream.name().to_owned())),
            ("tail", self.tail.filter(|_| !resumed).map(|lines| lines.to_string())),
        ];
        query.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

/// Shows output until the job has ended, one attempt after the other; the job's last JSON.
pub(crate) async fn follow(api: &Api, wanted: &Following) -> anyhow::Result<Value> {
    show(api, wanted, true).await?;
    until_ended(api, wanted.id).await
}

/// Waits until a job has ended; its last JSON.
pub(crate) async fn until_ended(api: &Api, id: u64) -> anyhow::Result<Value> {
    let mut pause = PAUSE_MIN;
    let mut failures = 0;
    loop {
        let asked_at = Instant::now();
        let request = api.fetch(&["api", "jobs", &id.to_string()]).query(&[("wait", WAIT)]);
        match api.json(request).await {
            Ok(json) if read::<view::Job>(api, &json)?.has_ended() => return Ok(json),
            Ok(_) => failures = 0,
            Err(error) => give_up(error, &mut failures)?,
        }
        // A server that is leaving or busy does not wait.
        if asked_at.elapsed() < PAUSE_MAX {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Where we are.
#[derive(Debug, Default)]
struct Place {
    /// The id of the last event that was shown: the output goes on behind it.
    last: Option<String>,
    /// The attempt whose output is shown.
    attempt: u32,
    /// Connections in a row that broke before they brought anything.
    failures: u32,
    /// What has been begun of a character: it goes on behind a broken connection too.
    texts: Texts,
    /// The streams of this attempt that were said to be read from the engine's log.
    replayed: Vec<Stream>,
}

/// Shows output: what there is, or until it is over, through broken connections.
async fn show(api: &Api, wanted: &Following, follow: bool) -> anyhow::Result<()> {
    let mut place = Place { last: wanted.from_first.then(|| BEGINNING.to_owned()), ..Place::default() };
    loop {
        let opened_at = Instant::now();
        let Err(error) = pass_on(api, wanted, follow, &mut place).await else {
            return break_off_both(wanted, &mut place);
        };
        if !follow {
            return Err(error);
        }
        // A job may be silent for hours: a connection that stood for a while was none that failed.
        if opened_at.elapsed() >= STANDING {
            place.failures = 0;
        }
        give_up(error, &mut place.failures)?;
        tokio::time::sleep((PAUSE_MIN * place.failures * place.failures).min(PAUSE_MAX)).await;
    }
}

/// Shows what one request gives.
async fn pass_on(api: &Api, wanted: &Following, follow: bool, place: &mut Place) -> anyhow::Result<()> {
    let path = ["api", "jobs", &wanted.id.to_string(), "logs"];
    let query = wanted.query(follow, place.last.is_some());
    let mut request = api.request(Method::GET, &path).header(ACCEPT, "text/event-stream").query(&query);
    if let Some(last) = &place.last {
        request = request.header("last-event-id", last);
    }
    let mut events = Events::of(api, api.send(request).await?)?;
    while let Some(event) = events.next().await? {
        match event.name.as_str() {
            "attempt" => turn_to(wanted, &event.read(api)?, place)?,
            "output" => output(api, wanted, &event.read(api)?, place)?,
            "gap" => gap(wanted, &event.read(api)?, place)?,
            "late" => late(wanted, &event.read(api)?)?,
            "end" => return end(wanted, &event.read(api)?, place),
            "leaving" => return Err(away("the server is leaving")),
            "error" => return Err(away("the server cannot read the output")),
            _ => {}
        }
        // Each connection tells again which attempt it shows: that alone brings nothing.
        if event.id.is_some() && event.id != place.last {
            place.last = event.id;
            place.failures = 0;
        }
    }
    if follow { Err(away("the output broke off")) } else { Ok(()) }
}

#[derive(serde::Deserialize)]
struct Attempt {
    attempt: u32,
    worker: String,
}

/// Says that it is another attempt from here on.
fn turn_to(wanted: &Following, next: &Attempt, place: &mut Place) -> anyhow::Result<()> {
    // A new connection tells the old attempt again.
    if next.attempt != place.attempt {
        break_off_both(wanted, place)?;
        place.replayed.clear();
    }
    if place.attempt > 0 && next.attempt > place.attempt {
        screen::note(&format!("longshore: attempt {} on {}", next.attempt, next.worker));
    }
    place.attempt = next.attempt;
    Ok(())
}

#[derive(serde::Deserialize)]
struct Output {
    stream: Stream,
    base64: String,
    /// Whether it was read again from the engine's log.
    #[serde(default)]
    replayed: bool,
}

fn output(api: &Api, wanted: &Following, output: &Output, place: &mut Place) -> anyhow::Result<()> {
    let bytes = BASE64.decode(output.base64.as_bytes()).map_err(|_| api.stranger())?;
    if output.replayed && !place.replayed.contains(&output.stream) {
        label_replayed(wanted, output.stream, place);
    }
    let text = place.texts.of(output.stream);
    if wanted.as_json {
        let text = text.go_on(&bytes);
        return json_text(output.stream, &text, place);
    }
    screen::output(output.stream, &bytes, text)
}

/// Says once for a stream of an attempt that it is no longer what the container wrote, but what its engine kept of that. As JSON every
/// line says so.
fn label_replayed(wanted: &Following, stream: Stream, place: &mut Place) {
    place.replayed.push(stream);
    if !wanted.as_json {
        let stream = stream.name();
        screen::note(&format!("longshore: what follows of {stream} was read again from the engine's log"));
    }
}

/// Shows what a stream has begun of a character, since the rest of it will not come.
fn break_off(wanted: &Following, stream: Stream, place: &mut Place) -> anyhow::Result<()> {
    let text = place.texts.of(stream);
    let rest = text.break_off();
    if wanted.as_json {
        return json_text(stream, &rest, place);
    }
    screen::output(stream, rest.as_bytes(), text)
}

fn break_off_both(wanted: &Following, place: &mut Place) -> anyhow::Result<()> {
    break_off(wanted, Stream::Stdout, place)?;
    break_off(wanted, Stream::Stderr, place)
}

/// A line of JSON, unless all that came was the beginning of a character.
fn json_text(stream: Stream, text: &str, place: &Place) -> anyhow::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut line = json!({ "stream": stream.name(), "text": text });
    if place.replayed.contains(&stream) {
        line["replayed"] = true.into();
    }
    screen::line(&line.to_string())
}

#[derive(serde::Deserialize)]
struct Gap {
    stream: Stream,
    /// Absent where nobody knows.
    missing_bytes: Option<u64>,
}

fn gap(wanted: &Following, gap: &Gap, place: &mut Place) -> anyhow::Result<()> {
    break_off(wanted, gap.stream, place)?;
    let (stream, missing) = (gap.stream.name(), gap.missing_bytes);
    if wanted.as_json {
        return screen::line(&json!({ "stream": stream, "missing_bytes": missing }).to_string());
    }
    screen::note(&match missing {
        Some(missing) => format!("longshore: {missing} bytes of {stream} are missing"),
        None => format!("longshore: some of {stream} is missing"),
    });
    Ok(())
}

#[derive(serde::Deserialize)]
struct Late {
    late_bytes: u64,
}

fn late(wanted: &Following, late: &Late) -> anyhow::Result<()> {
    let late = late.late_bytes;
    if wanted.as_json {
        return screen::line(&json!({ "late_bytes": late }).to_string());
    }
    screen::note(&format!("longshore: {late} bytes of output have not arrived yet"));
    Ok(())
}

#[derive(serde::Deserialize)]
struct End {
    /// How the job ended, in the server's words.
    text: Option<String>,
    attempt: Option<u32>,
    outcome: Option<String>,
    exit_code: Option<i32>,
}

/// Says how it ended, behind all that was written.
fn end(wanted: &Following, end: &End, place: &mut Place) -> anyhow::Result<()> {
    break_off_both(wanted, place)?;
    let of_attempt = || {
        let (attempt, outcome) = (end.attempt?, view::in_words(end.outcome.as_deref()?));
        let code = end.exit_code.filter(|code| *code != 0);
        let exit = code.map(|code| format!(", exit {code}")).unwrap_or_default();
        Some(format!("longshore: attempt {attempt} of job {} {outcome}{exit}", wanted.id))
    };
    if wanted.tells_end
        && let Some(text) = end.text.clone().or_else(of_attempt)
    {
        screen::note(&text);
    }
    Ok(())
}

fn away(why: &str) -> anyhow::Error {
    Failure::new(Exit::Unavailable, why).hint("try again").into()
}

/// Only an absent server is waited for, and not for ever.
fn give_up(error: anyhow::Error, failures: &mut u32) -> anyhow::Result<()> {
    let is_away = error.downcast_ref::<Failure>().is_some_and(|failure| failure.exit == Exit::Unavailable);
    *failures += 1;
    if !is_away || *failures > FAILURES_MAX {
        return Err(error);
    }
    if *failures == 1 {
        screen::note("longshore: the connection broke; trying again");
    }
    Ok(())
}

/// A job that does nothing takes about as long.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// People do not notice; a server with hundreds of them does not either.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long the server is asked to wait for a job's end; less than the silence after which a connection counts as broken.
const WAIT: &str = "60s";
/// The place before all that a job writes.
const BEGINNING: &str = "1:0";
/// After as long, a connection is shown to live by what comes through it, and be it comments.
const STANDING: Duration = Duration::from_secs(10);
/// With [`PAUSE_MAX`]: a server may be away for half a minute, a restart takes seconds.
const FAILURES_MAX: u32 = 30;
