//! News for `longshore top`: the stream of events says when something has changed, and bounded re-reads say what.
//!
//! Only lists that are shown are read, each at most once in its interval and never while nothing changes. So an idle server is asked nothing,
//! and a busy one a few requests in a second, however many jobs it runs.

use std::time::Duration;

use reqwest::Method;
use reqwest::header::ACCEPT;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::details;
use super::model::{JobLists, Tab, Update};
use crate::api::{Api, parse};
use crate::definitions;
use crate::failure::{Exit, Failure, exit_of};
use crate::jobs::fetch_jobs;
use crate::sse::Events;
use crate::view::{ENDED_STATES, Job};

/// The part of the view that is on the screen, and so has to be fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Watched {
    pub(super) tab: Tab,
    /// The job whose details are open.
    pub(super) details: Option<u64>,
}

/// Follows the server until the view ends or the server refuses.
pub(super) async fn follow(api: Api, mut watched: watch::Receiver<Watched>, to: mpsc::Sender<Update>) {
    let mut pause = PAUSE_MIN;
    loop {
        let opened_at = Instant::now();
        let error = match follow_connection(&api, &mut watched, &to).await {
            Ok(Closed) => return,
            Err(error) => error,
        };
        if matches!(exit_of(&error), Exit::Auth | Exit::NotFound | Exit::Usage) {
            let _ = to.send(Update::Refused(format!("{error:#}"))).await;
            return;
        }
        if to.send(Update::Away(format!("{error:#}"))).await.is_err() {
            return;
        }
        pause = if opened_at.elapsed() > STABLE_AFTER { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        tokio::time::sleep(pause).await;
    }
}

/// The view is gone.
struct Closed;

/// Follows one connection. It ends with an error if the server is away.
async fn follow_connection(
    api: &Api,
    watched: &mut watch::Receiver<Watched>,
    to: &mpsc::Sender<Update>,
) -> anyhow::Result<Closed> {
    let request = api.request(Method::GET, &["api", "events"]).header(ACCEPT, "text/event-stream");
    let opening = timeout(REQUEST_TIMEOUT, api.send(request)).await.map_err(|_| silent())?;
    let mut events = Events::of(api, opening?)?;
    if to.send(Update::Connected).await.is_err() {
        return Ok(Closed);
    }
    // The stream is open before the lists are read: a change after the read is an event.
    let mut due = DueLists::all(Instant::now());
    loop {
        let now_watched = *watched.borrow_and_update();
        if let Some(list) = due.next(now_watched, Instant::now()) {
            let started = Instant::now();
            let update =
                timeout(REQUEST_TIMEOUT, read(api, list, now_watched)).await.map_err(|_| silent())??;
            due.was_read(list, started, &update);
            if to.send(update).await.is_err() {
                return Ok(Closed);
            }
            continue;
        }
        let earliest = due.earliest(now_watched);
        tokio::select! {
            event = timeout(SILENCE_MAX, events.next()) => match event.map_err(|_| silent())?? {
                None => return Err(away("the connection ended")),
                Some(event) if event.name == "leaving" => return Err(away("the server is shutting down")),
                Some(event) if event.name == "gone" => return Err(away("events came faster than they were read")),
                Some(event) if event.name == "change" => {
                    let kind: Kind = event.read(api)?;
                    due.has_changed(&kind.kind);
                }
                Some(_) => {}
            },
            () = sleep_until(earliest.unwrap_or_else(Instant::now)), if earliest.is_some() => {}
            changed = watched.changed() => if changed.is_err() { return Ok(Closed) },
        }
    }
}

/// The part of an event that matters here.
#[derive(serde::Deserialize)]
struct Kind {
    kind: String,
}

/// A list that is read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Jobs,
    Workers,
    Definitions,
    Details,
}

/// When a list is to be read again.
#[derive(Clone, Copy, Debug)]
struct Due {
    /// It may differ from what was read.
    is_stale: bool,
    /// The start of the last read.
    read_at: Option<Instant>,
}

impl Due {
    const STALE: Self = Self { is_stale: true, read_at: None };

    /// The next read, if one is needed. A list that was never read is due since `opened`.
    fn at(self, every: Duration, opened: Instant) -> Option<Instant> {
        self.is_stale.then(|| self.read_at.map_or(opened, |last| last + every))
    }
}

/// When each list is to be read again.
#[derive(Debug)]
struct DueLists {
    /// The time at which the connection was opened.
    opened: Instant,
    jobs: Due,
    workers: Due,
    definitions: Due,
    details: Due,
    /// The job that `details` is about.
    detailed: Option<u64>,
}

impl DueLists {
    /// All are stale, as after a connection was opened.
    const fn all(opened: Instant) -> Self {
        let stale = Due::STALE;
        Self { opened, jobs: stale, workers: stale, definitions: stale, details: stale, detailed: None }
    }

    /// Marks the lists that an event of this kind changes.
    fn has_changed(&mut self, kind: &str) {
        let family = kind.split('.').next().unwrap_or_default();
        if matches!(family, "job" | "attempt" | "batch" | "hook") {
            // Workers are busy with jobs, and definitions show how many wait.
            for due in [&mut self.jobs, &mut self.workers, &mut self.definitions, &mut self.details] {
                due.is_stale = true;
            }
        }
        match family {
            "worker" => {
                self.workers.is_stale = true;
                // The reasons why jobs wait name workers.
                self.jobs.is_stale = true;
            }
            "definition" | "schedule" => self.definitions.is_stale = true,
            _ => {}
        }
    }

    /// The lists on the screen, with the time at which each is read.
    fn times(&self, watched: Watched) -> impl Iterator<Item = (List, Instant)> {
        let details = if self.detailed == watched.details { self.details } else { Due::STALE };
        // The first line counts jobs and workers on every tab.
        let every = |tab: Tab| if watched.tab == tab { VISIBLE_EVERY } else { BEHIND_EVERY };
        let opened = self.opened;
        let all = [
            (List::Details, details.at(VISIBLE_EVERY, opened).filter(|_| watched.details.is_some())),
            (List::Jobs, self.jobs.at(every(Tab::Jobs), opened)),
            (List::Workers, self.workers.at(every(Tab::Workers), opened)),
            (
                List::Definitions,
                self.definitions.at(BEHIND_EVERY, opened).filter(|_| watched.tab == Tab::Definitions),
            ),
        ];
        all.into_iter().filter_map(|(list, at)| Some((list, at?)))
    }

    /// A list that is due.
    fn next(&self, watched: Watched, now: Instant) -> Option<List> {
        self.times(watched).filter(|(_, at)| *at <= now).min_by_key(|(_, at)| *at).map(|(list, _)| list)
    }

    /// When the next list will be due.
    fn earliest(&self, watched: Watched) -> Option<Instant> {
        self.times(watched).map(|(_, at)| at).min()
    }

    /// Notes a read. Progress of a pull and output are no events: while there may be some, the list stays stale.
    fn was_read(&mut self, list: List, started: Instant, update: &Update) {
        let is_moving = match update {
            Update::Jobs(lists) => lists.active.iter().any(|job| job.state == "assigned"),
            Update::Details(_, Ok(details)) => details.may_grow,
            _ => false,
        };
        if let Update::Details(id, _) = update {
            self.detailed = Some(*id);
        }
        let due = match list {
            List::Jobs => &mut self.jobs,
            List::Workers => &mut self.workers,
            List::Definitions => &mut self.definitions,
            List::Details => &mut self.details,
        };
        *due = Due { is_stale: is_moving, read_at: Some(started) };
    }
}

async fn read(api: &Api, list: List, watched: Watched) -> anyhow::Result<Update> {
    Ok(match list {
        List::Jobs => Update::Jobs(Box::new(read_jobs(api).await?)),
        List::Workers => Update::Workers(read_workers(api).await?),
        List::Definitions => {
            let request = api.get(&definitions::LIST).query(&[definitions::LAST_ENDED]);
            Update::Definitions(parse(api, &api.json(request).await?)?)
        }
        List::Details => {
            let id = watched.details.unwrap_or_default();
            match details::read(api, id).await {
                Ok(details) => Update::Details(id, Ok(Box::new(details))),
                // A job that retention has deleted meanwhile is no reason to end.
                Err(error) if exit_of(&error) == Exit::NotFound => {
                    Update::Details(id, Err(format!("{error:#}")))
                }
                Err(error) => return Err(error),
            }
        }
    })
}

/// Reads the workers.
pub(super) async fn read_workers(api: &Api) -> anyhow::Result<Vec<crate::view::Worker>> {
    parse(api, &api.json(api.get(&["api", "workers"])).await?)
}

/// Reads the first jobs of each kind.
pub(super) async fn read_jobs(api: &Api) -> anyhow::Result<JobLists> {
    let read = async |states: &str, limit| -> anyhow::Result<(Vec<Job>, bool)> {
        let (jobs, more) = fetch_jobs(api, &[("state", states.to_owned())], limit).await?;
        Ok((jobs.iter().map(|job| parse(api, job)).collect::<anyhow::Result<_>>()?, more))
    };
    let (active, more_active) = read("running,assigned", LIVE_MAX).await?;
    let (waiting, more_waiting) = read("queued,scheduled,quarantined", LIVE_MAX).await?;
    let (ended, _) = read(&ENDED_STATES.join(","), ENDED_MAX).await?;
    Ok(JobLists { active, waiting, ended, more_active, more_waiting })
}

fn silent() -> anyhow::Error {
    away("no answer")
}

fn away(why: &str) -> anyhow::Error {
    Failure::new(Exit::Unavailable, why).into()
}

/// Jobs that are read of each live kind: more do not fit on a screen.
const LIVE_MAX: usize = 200;
/// Ended jobs that are read.
const ENDED_MAX: usize = 50;
/// At most so often what is visible is read: jobs, workers, output.
const VISIBLE_EVERY: Duration = Duration::from_secs(1);
/// At most so often a list is read of which only a number is shown, or which changes rarely.
const BEHIND_EVERY: Duration = Duration::from_secs(3);
/// A server answers these requests within milliseconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The server sends something every 15 s: after this time it is away.
const SILENCE_MAX: Duration = Duration::from_secs(40);
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// A connection that lasted longer counts as working.
const STABLE_AFTER: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::super::model::tests::job;
    use super::*;

    fn read_all(due: &mut DueLists, watched: Watched, now: Instant) -> Vec<List> {
        let mut read = Vec::new();
        while let Some(list) = due.next(watched, now) {
            let update = match list {
                List::Details => Update::Details(watched.details.unwrap(), Ok(Box::default())),
                List::Jobs => Update::Jobs(Box::default()),
                List::Workers => Update::Workers(Vec::new()),
                List::Definitions => Update::Definitions(Vec::new()),
            };
            due.was_read(list, now, &update);
            read.push(list);
        }
        read
    }

    #[test]
    fn nothing_is_read_again_until_something_changes() {
        let (now, watched) = (Instant::now(), Watched::default());
        let mut due = DueLists::all(now);
        assert_eq!(read_all(&mut due, watched, now), [List::Jobs, List::Workers]);
        assert_eq!(due.earliest(watched), None);
        for _ in 0..1_000 {
            due.has_changed("job.ended");
        }
        assert_eq!(due.next(watched, now), None, "it was read just now");
        assert_eq!(due.earliest(watched), Some(now + VISIBLE_EVERY));
        assert_eq!(read_all(&mut due, watched, now + VISIBLE_EVERY), [List::Jobs]);
        assert_eq!(due.earliest(watched), Some(now + BEHIND_EVERY), "the workers, for the first line");
    }

    #[test]
    fn only_visible_lists_are_read() {
        let now = Instant::now();
        let mut due = DueLists::all(now);
        read_all(&mut due, Watched::default(), now);
        let definitions = Watched { tab: Tab::Definitions, details: None };
        assert_eq!(read_all(&mut due, definitions, now), [List::Definitions]);
        due.has_changed("definition.removed");
        assert_eq!(due.earliest(Watched::default()), None);
        assert_eq!(due.earliest(definitions), Some(now + BEHIND_EVERY));
    }

    #[test]
    fn details_of_another_job_are_read_at_once() {
        let now = Instant::now();
        let mut due = DueLists::all(now);
        for id in [7, 8] {
            let watched = Watched { tab: Tab::Jobs, details: Some(id) };
            assert!(read_all(&mut due, watched, now).contains(&List::Details), "{id}");
            assert_eq!(due.next(watched, now), None);
        }
    }

    #[test]
    fn a_pull_is_looked_at_without_an_event() {
        let now = Instant::now();
        let mut due = DueLists::all(now);
        read_all(&mut due, Watched::default(), now);
        let lists = JobLists { active: vec![job(1, "assigned")], ..JobLists::default() };
        due.was_read(List::Jobs, now, &Update::Jobs(Box::new(lists)));
        assert_eq!(due.earliest(Watched::default()), Some(now + VISIBLE_EVERY));
    }
}
