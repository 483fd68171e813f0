//! `longshore logs`: what a job wrote, byte for byte; and staying with a job until it has ended.
//!
//! Standard output goes to ours and standard error to ours, each by a request of its own. Only if both of ours are the same file (a
//! terminal, or `2>&1`) they are asked for together, so that they come in the order in which they were written. A connection that
//! breaks while following is opened again at the byte where it broke.

use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::ACCEPT;
use serde_json::{Value, json};

use crate::api::{Api, read};
use crate::failure::{Exit, Failure};
use crate::screen::{self, Format, Stream};
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
    #[arg(value_name = "ID")]
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
    /// Begin with the last lines.
    #[arg(long, value_name = "LINES")]
    tail: Option<u32>,
}

/// Shows a job's output.
pub(crate) async fn logs(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.asking.address)?;
    let wanted = Following {
        id: flags.id,
        attempt: flags.attempt,
        stream: flags.stream,
        tail: flags.tail,
        from_first: false,
        as_json: flags.asking.format == Format::Json,
    };
    if flags.follow {
        return follow(&api, &wanted).await.map(|_| ());
    }
    for pipe in wanted.pipes() {
        let mut place = Place::default();
        copy(&api, &wanted, pipe, false, &mut place).await?;
    }
    Ok(())
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
}

impl Following {
    /// All that a job writes, from its first attempt on.
    pub(crate) const fn everything(id: u64) -> Self {
        Self { id, attempt: None, stream: None, tail: None, from_first: true, as_json: false }
    }

    /// The requests that it takes: a stream each, or none of them for both together.
    fn pipes(&self) -> Vec<Option<Stream>> {
        match self.stream {
            Some(stream) => vec![Some(stream)],
            None if !self.as_json && both_go_to_the_same_file() => vec![None],
            None => vec![Some(Stream::Stdout), Some(Stream::Stderr)],
        }
    }
}

/// Shows output until the job has ended, one attempt after the other; the job's last JSON.
pub(crate) async fn follow(api: &Api, wanted: &Following) -> anyhow::Result<Value> {
    if let Some(attempt) = wanted.attempt {
        show_attempt(api, wanted, attempt).await?;
        return fetch(api, wanted.id).await;
    }
    let mut shown = 0;
    loop {
        let json = until(api, wanted.id, |job| job.has_ended() || job.attempt_count > shown).await?;
        let job: view::Job = read(api, &json)?;
        if job.attempt_count <= shown {
            return Ok(json);
        }
        shown = if shown == 0 && !wanted.from_first { job.attempt_count } else { shown + 1 };
        show_attempt(api, wanted, shown).await?;
    }
}

async fn show_attempt(api: &Api, wanted: &Following, attempt: u32) -> anyhow::Result<()> {
    let one = Following { attempt: Some(attempt), ..*wanted };
    let pipes = one.pipes().into_iter().map(|pipe| to_the_end(api, &one, pipe));
    futures_util::future::try_join_all(pipes).await.map(|_| ())
}

/// Waits until a job has ended; its last JSON.
pub(crate) async fn until_ended(api: &Api, id: u64) -> anyhow::Result<Value> {
    until(api, id, view::Job::has_ended).await
}

/// Asks for a job until it is as wished, less and less often.
async fn until(api: &Api, id: u64, wish: impl Fn(&view::Job) -> bool) -> anyhow::Result<Value> {
    let mut pause = PAUSE_MIN;
    let mut failures = 0;
    loop {
        match fetch(api, id).await {
            Ok(json) => {
                if wish(&read::<view::Job>(api, &json)?) {
                    return Ok(json);
                }
                failures = 0;
            }
            Err(error) => give_up(error, &mut failures)?,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn fetch(api: &Api, id: u64) -> anyhow::Result<Value> {
    api.json(api.fetch(&["api", "jobs", &id.to_string()])).await
}

/// Where we are in a stream.
#[derive(Debug, Default)]
struct Place {
    /// Bytes seen.
    seen: u64,
    /// Whether any came since the connection was opened.
    moved: bool,
}

/// Copies a stream until its attempt is over, through broken connections.
async fn to_the_end(api: &Api, wanted: &Following, pipe: Option<Stream>) -> anyhow::Result<()> {
    let mut place = Place::default();
    let mut failures = 0;
    loop {
        place.moved = false;
        let Err(error) = copy(api, wanted, pipe, true, &mut place).await else {
            return Ok(());
        };
        if place.moved {
            failures = 0;
        }
        give_up(error, &mut failures)?;
        tokio::time::sleep((PAUSE_MIN * failures * failures).min(PAUSE_MAX)).await;
    }
}

/// Copies what one request gives.
async fn copy(
    api: &Api,
    wanted: &Following,
    pipe: Option<Stream>,
    follow: bool,
    place: &mut Place,
) -> anyhow::Result<()> {
    let resumed = place.seen > 0;
    let query = [
        ("follow", follow.then(|| "1".to_owned())),
        ("attempt", wanted.attempt.map(|attempt| attempt.to_string())),
        ("stream", pipe.map(|stream| stream.name().to_owned())),
        ("tail", wanted.tail.filter(|_| !resumed).map(|lines| lines.to_string())),
        ("offset", resumed.then(|| place.seen.to_string())),
    ];
    let query: Vec<_> = query.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    let path = ["api", "jobs", &wanted.id.to_string(), "logs"];
    let request = api.request(Method::GET, &path).header(ACCEPT, "text/plain").query(&query);
    let mut response = api.send(request).await?;
    while let Some(bytes) = response.chunk().await.map_err(|error| api.unreachable(&error))? {
        show(wanted, pipe, &bytes)?;
        place.seen += bytes.len() as u64;
        place.moved = true;
    }
    Ok(())
}

fn show(wanted: &Following, pipe: Option<Stream>, bytes: &[u8]) -> anyhow::Result<()> {
    let stream = pipe.unwrap_or(Stream::Stdout);
    if wanted.as_json {
        let text = String::from_utf8_lossy(bytes);
        return screen::line(&json!({ "stream": stream.name(), "text": text }).to_string());
    }
    screen::output(stream, bytes)
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

fn both_go_to_the_same_file() -> bool {
    let file = |path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    file("/dev/fd/1").is_some_and(|stdout| Some(stdout) == file("/dev/fd/2"))
}

/// A job that does nothing takes about as long.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// People do not notice; a server with hundreds of them does not either.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// With [`PAUSE_MAX`]: a server may be away for half a minute, a restart takes seconds.
const FAILURES_MAX: u32 = 30;
