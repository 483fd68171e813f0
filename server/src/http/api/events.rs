//! `GET /api/events`: committed changes as server-sent events, from now on, from an event on, or with some of the last ones.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, Uri};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use protocol::JobId;
use scheduler::job::State as JobState;
use tokio::time::{Instant, sleep_until};

use crate::events::{EventFilter, EventId, EventReader, EventsGone, KINDS, TooManyReaders};
use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::job_filter;
use crate::http::request::query::{Query, invalid_query, nearest};
use crate::http::state::AppState;
use crate::logs::AttemptKey;
use crate::wildcard::matches;

pub(crate) async fn stream(
    State(state): State<Arc<AppState>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let params = EventParams::of(&state, &uri, &headers).await?;
    let read = |after| state.services.events.read(after, params.filter.clone());
    let mut reader = match read(params.after)? {
        Ok(reader) => reader,
        // A page that wants summaries reads its content again when it is connected.
        Err(_) if params.is_summary => read(None)??,
        Err(gone) => return Err(gone.into()),
    };
    let until = (!params.follow).then(|| state.services.events.head());
    if let (Some(count), None) = (params.tail, params.after) {
        reader.rewind(count);
    }
    let follower = EventStream {
        watched: WatchedUsage::of(&state, params.usage),
        state,
        reader,
        is_summary: params.is_summary,
        until,
        ready: VecDeque::new(),
        last_sent_at: None,
        paused_until: Instant::now(),
        is_over: false,
    };
    Ok(Sse::new(follower.events()).into_response())
}

/// The parameters of a request for events.
struct EventParams {
    filter: EventFilter,
    after: Option<EventId>,
    tail: Option<usize>,
    follow: bool,
    /// Only how many events there are, not which.
    is_summary: bool,
    /// A job whose samples are sent as well.
    usage: Option<JobId>,
}

impl EventParams {
    async fn of(state: &AppState, uri: &Uri, headers: &HeaderMap) -> Result<Self, Problem> {
        let mut query = Query::of(uri)?;
        let mut filter = EventFilter {
            kinds: list(query.text("kind")?),
            names: list(query.text("name")?),
            states: list(query.text("state")?),
            worker: None,
            batch: query.number("batch")?.map(JobId),
            parent: query.number("member_of")?.map(JobId),
        };
        let worker = query.text("worker")?;
        let after = query.text("after")?;
        let tail = query.number("tail")?;
        let usage = query.number("usage")?.map(JobId);
        let is_summary = query.switch("summary")?;
        let follow = match query.text("follow")?.as_deref() {
            None | Some("" | "1" | "true") => true,
            Some("0" | "false") => false,
            Some(_) => return Err(invalid_query("follow", "it is 1 or 0")),
        };
        query.finish()?;
        filter.kinds.iter().try_for_each(|kind| check_kind(kind))?;
        filter.states.iter().try_for_each(|state| check_state(state))?;
        job_filter::check_names(state, &filter.names).await?;
        if let Some(worker) = worker {
            filter.worker = Some(job_filter::worker_named(state, worker).await?);
        }
        // A browser repeats the address when it reconnects, and says in the header what it had since.
        let given =
            headers.get(LAST_EVENT_ID).map(|value| ("Last-Event-ID", value.to_str().unwrap_or_default()));
        let after = match given.or(after.as_deref().map(|after| ("?after", after))) {
            None | Some((_, "")) => None,
            Some((field, text)) => Some(EventId::parse(text).ok_or_else(|| {
                let detail = format!("\"{}\" is not the id of an event", excerpt(text));
                Problem::new(ProblemCode::InvalidQuery, detail).field(field).hint("an id is written 3.120.4")
            })?),
        };
        let tail = tail.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        Ok(Self { filter, after, tail, follow, is_summary, usage })
    }
}

fn list(text: Option<String>) -> Vec<String> {
    text.map(|text| text.split(',').map(str::to_owned).collect()).unwrap_or_default()
}

fn check_kind(pattern: &str) -> Result<(), Problem> {
    if KINDS.iter().any(|kind| matches(pattern, kind)) {
        return Ok(());
    }
    let problem = invalid_query("kind", &format!("there is no kind of event \"{}\"", excerpt(pattern)));
    let near = nearest(pattern, KINDS.into_iter());
    Err(if near.is_empty() {
        problem.hint("for example job.ended, job.* or attempt.lost")
    } else {
        problem.near(near)
    })
}

fn check_state(state: &str) -> Result<(), Problem> {
    let known = || JobState::ALL.map(JobState::name).into_iter().chain(WORKER_STATES);
    if known().any(|name| name == state) {
        return Ok(());
    }
    let all = known().collect::<Vec<_>>().join(", ");
    Err(Problem::new(ProblemCode::InvalidState, format!("there is no state \"{}\"", excerpt(state)))
        .field("?state")
        .hint(format!("the states of jobs and workers are {all}")))
}

/// One answer under way.
struct EventStream {
    state: Arc<AppState>,
    watched: Option<WatchedUsage>,
    reader: EventReader,
    is_summary: bool,
    /// The last event of an answer that does not follow.
    until: Option<EventId>,
    ready: VecDeque<Event>,
    /// The time of the last bytes that were sent.
    last_sent_at: Option<Instant>,
    /// New events are sent together until then.
    paused_until: Instant,
    is_over: bool,
}

impl EventStream {
    fn events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut this| async move {
            let event = this.next().await?;
            this.last_sent_at = Some(Instant::now());
            Some((Ok(event), this))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            match self.take_new() {
                Ok(false) => {}
                Ok(true) => continue,
                Err(gone) => {
                    self.is_over = true;
                    return Some(ending("gone", &gone));
                }
            }
            if self.until.is_some_and(|until| self.reader.last() >= until) {
                // A reader that asks again from time to time goes on here, also if nothing that it selects was among the events.
                self.is_over = true;
                return Some(self.position());
            }
            // The first bytes show the client that it is connected, and where.
            let Some(last_sent_at) = self.last_sent_at else { return Some(self.position().retry(RETRY)) };
            if let Some(job) = self.watched.as_mut().and_then(|it| it.changed(&self.state)) {
                return Some(Event::default().event("usage").data(format!("{{\"job\":{job}}}")));
            }
            let shutdown = self.state.services.shutdown.clone();
            let look = self.watched.as_ref().map_or(HEARTBEAT, |_| LOOK_FOR_USAGE);
            tokio::select! {
                () = self.reader.changed() => {
                    tokio::select! {
                        () = sleep_until(self.paused_until) => {}
                        () = shutdown.cancelled() => {}
                    }
                }
                () = sleep_until(last_sent_at + HEARTBEAT) => return Some(self.position()),
                () = tokio::time::sleep(look) => {}
                () = shutdown.cancelled() => {
                    self.is_over = true;
                    return Some(Event::default().event("leaving").data("{}"));
                }
            }
        }
    }

    /// Makes what is new ready to be sent; false if nothing is.
    fn take_new(&mut self) -> Result<bool, EventsGone> {
        if self.is_summary {
            if Instant::now() < self.paused_until {
                return Ok(false);
            }
            let count = self.reader.count_selected();
            if count > 0 {
                self.paused_until = Instant::now() + SUMMARY_PAUSE;
                let summary = Event::default().event("summary").id(self.reader.last().to_string());
                self.ready.push_back(summary.data(format!("{{\"events\":{count}}}")));
            }
            return Ok(count > 0);
        }
        let selected = self.reader.next_selected()?;
        if !selected.is_empty() {
            self.paused_until = Instant::now() + PAUSE;
        }
        self.ready.extend(selected.iter().map(|record| {
            let json = record.json(|record| self.state.event_json(record));
            Event::default().event("change").id(record.id.to_string()).data(json)
        }));
        Ok(!selected.is_empty())
    }

    /// A block with an id and no data: no event for the client, but the place to resume from. Without it, a reader that selects rare events
    /// would resume from one that is long gone.
    fn position(&self) -> Event {
        Event::default().id(self.reader.last().to_string()).comment("")
    }
}

/// A job whose samples are sent.
struct WatchedUsage {
    job: JobId,
    sent_version: Option<(AttemptKey, u64)>,
}

impl WatchedUsage {
    fn of(state: &AppState, job: Option<JobId>) -> Option<Self> {
        job.map(|job| Self { job, sent_version: state.services.usage.version(job) })
    }

    /// The job, if it has a sample that was not sent.
    fn changed(&mut self, state: &AppState) -> Option<JobId> {
        let latest = state.services.usage.version(self.job);
        let sent = std::mem::replace(&mut self.sent_version, latest);
        (sent != latest).then_some(self.job)
    }
}

/// The last event of a reader that was too slow.
fn ending(name: &str, gone: &EventsGone) -> Event {
    let data = serde_json::json!({ "last_event_id": gone.head.to_string() });
    Event::default().event(name).data(data.to_string())
}

impl From<EventsGone> for Problem {
    fn from(gone: EventsGone) -> Self {
        let head = gone.head.to_string();
        Self::new(ProblemCode::EventsGone, gone.to_string())
            .hint(format!("read the lists again, and then the events after {head}"))
            .last_event_id(head)
    }
}

impl From<TooManyReaders> for Problem {
    fn from(_: TooManyReaders) -> Self {
        Self::new(ProblemCode::Busy, "too many clients read events").retry_after(5)
    }
}

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The states of workers in events.
const WORKER_STATES: [&str; 9] =
    ["joining", "ready", "suspect", "draining", "disconnected", "unreachable", "cloned", "revoked", "gone"];

/// Shorter than the idle timeout of common proxies.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Samples of a watched job are looked for this often. Workers take them as seldom.
const LOOK_FOR_USAGE: Duration = Duration::from_secs(2);

/// A browser waits this long before it reconnects.
const RETRY: Duration = Duration::from_secs(1);

/// Summaries are at least this far apart.
const SUMMARY_PAUSE: Duration = Duration::from_secs(1);

/// Under load a reader is woken this often, and not for each group. Nobody sees the difference, and a thousand readers cost little.
const PAUSE: Duration = Duration::from_millis(20);
