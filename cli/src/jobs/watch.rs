//! `longshore ls --watch`: the list again at each change, until Ctrl-C.
//!
//! Events say when to look: an idle server is asked nothing, and a busy one once in a second. On a terminal a list replaces the last one;
//! elsewhere the lists follow each other, with an empty line between them.

use std::io::IsTerminal as _;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::ACCEPT;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout};

use super::{LIMIT, ListFlags, fetch_jobs, query, table};
use crate::api::Api;
use crate::failure::{Exit, Failure, exit_of};
use crate::records;
use crate::screen::{self, Format};
use crate::sse::Events;

/// Prints the list at each change.
///
/// # Errors
/// The server refuses the request, or standard output is closed. A server that is away is asked again.
pub(super) async fn watch(api: &Api, flags: &ListFlags) -> anyhow::Result<()> {
    if flags.common.format == Format::Csv {
        let failure = Failure::new(Exit::Usage, "--watch prints several lists, which are no CSV");
        return Err(failure.hint("use -o ndjson, or leave --watch out").into());
    }
    let mut shown = None;
    tokio::select! {
        ended = watch_for_ever(api, flags, &mut shown) => ended,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn watch_for_ever(api: &Api, flags: &ListFlags, shown: &mut Option<Vec<Value>>) -> anyhow::Result<()> {
    let mut is_away = false;
    loop {
        let Err(error) = watch_connection(api, flags, shown, &mut is_away).await else { return Ok(()) };
        if exit_of(&error) != Exit::Unavailable {
            return Err(error);
        }
        if !is_away {
            screen::note(&format!("longshore: {error:#}; trying again"));
        }
        is_away = true;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Prints until the connection ends, which is an error.
async fn watch_connection(
    api: &Api,
    flags: &ListFlags,
    shown: &mut Option<Vec<Value>>,
    is_away: &mut bool,
) -> anyhow::Result<()> {
    let kinds = [("kind", "job.*,attempt.*,batch.*")];
    let request =
        api.request(Method::GET, &["api", "events"]).header(ACCEPT, "text/event-stream").query(&kinds);
    let mut events = Events::of(api, api.send(request).await?)?;
    loop {
        let began = Instant::now();
        let limit = flags.limit.unwrap_or(LIMIT);
        let (jobs, _) = fetch_jobs(api, &query(flags), limit as usize).await?;
        *is_away = false;
        // Ages alone are no news.
        if shown.as_ref() != Some(&jobs) {
            print(api, flags, &jobs, shown.is_none())?;
            *shown = Some(jobs);
        }
        // The first change, and all that come before the list may be read again.
        while !is_change(&mut events).await? {}
        let again = began + EVERY;
        loop {
            tokio::select! {
                change = is_change(&mut events) => { change?; }
                () = sleep_until(again) => break,
            }
        }
    }
}

/// Waits for the next event, and returns true if it is a change.
async fn is_change(events: &mut Events<'_>) -> anyhow::Result<bool> {
    let away = |why: &str| anyhow::Error::from(Failure::new(Exit::Unavailable, why));
    let event = timeout(SILENCE_MAX, events.next()).await.map_err(|_| away("no answer"))??;
    match event.as_ref().map(|event| event.name.as_str()) {
        None => Err(away("the connection ended")),
        Some("leaving") => Err(away("the server is shutting down")),
        Some("gone") => Err(away("events came faster than they were read")),
        Some(name) => Ok(name == "change"),
    }
}

fn print(api: &Api, flags: &ListFlags, jobs: &[Value], is_first: bool) -> anyhow::Result<()> {
    let format = flags.common.format;
    if std::io::stdout().is_terminal() && format.is_text() {
        // Home, and clear from there: the lists before stay in the history of the terminal.
        screen::raw(b"\x1b[H\x1b[2J")?;
    } else if !is_first && format.is_text() {
        screen::line("")?;
    }
    if records::print(format, &Value::Array(jobs.to_vec()), "id")? {
        return Ok(());
    }
    let (heading, rows) = table(api, jobs, flags, format)?;
    screen::table(&heading, rows)
}

/// At most so often the list is read.
const EVERY: Duration = Duration::from_secs(1);
/// The server sends something every 15 s: after this time it is away.
const SILENCE_MAX: Duration = Duration::from_secs(40);
/// The pause before the server is asked again.
const PAUSE: Duration = Duration::from_secs(1);
