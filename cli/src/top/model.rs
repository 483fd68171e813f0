//! The content of `longshore top`: the lists of the last re-read, the choice of the user, and the state of the connection.
//!
//! It is pure: updates and keys go in, requests come out. `draw` reads it. The selection follows a row by its key, because rows move.

use jiff::Timestamp;

use crate::view::{Definition, DefinitionView as _, Job, JobView as _, Worker, WorkerView as _};

/// One of the three tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Tab {
    /// Those that run, those that wait, and the last that ended.
    #[default]
    Jobs,
    /// Those that are connected or have jobs.
    Workers,
    /// All in jobs.yaml, and how many jobs of each wait.
    Definitions,
}

impl Tab {
    pub(super) const ALL: [Self; 3] = [Self::Jobs, Self::Workers, Self::Definitions];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Jobs => "Jobs",
            Self::Workers => "Workers",
            Self::Definitions => "Definitions",
        }
    }

    /// The tab this number of places to the right; after the last one comes the first.
    fn shifted(self, by: usize) -> Self {
        let at = Self::ALL.iter().position(|tab| *tab == self).unwrap_or_default();
        Self::ALL[(at + by) % Self::ALL.len()]
    }
}

/// Jobs as the last re-read found them.
#[derive(Debug, Default)]
pub(super) struct JobLists {
    /// On a worker, newest first.
    pub(super) active: Vec<Job>,
    /// Queued, scheduled or quarantined, newest first.
    pub(super) waiting: Vec<Job>,
    /// The last that were accepted of those that have ended.
    pub(super) ended: Vec<Job>,
    /// There are more active ones than were read.
    pub(super) more_active: bool,
    /// There are more waiting ones than were read.
    pub(super) more_waiting: bool,
}

/// A job with the end of its output.
#[derive(Clone, Debug, Default)]
pub(super) struct Details {
    /// Names and values.
    pub(super) facts: Vec<(&'static str, String)>,
    /// The last lines of its output.
    pub(super) output: Vec<String>,
    /// The job has not ended.
    pub(super) may_grow: bool,
}

/// News for the model.
#[derive(Debug)]
pub(super) enum Update {
    /// The stream of events is open.
    Connected,
    /// The server does not answer; it is asked again.
    Away(String),
    /// The server refuses the request, and would refuse it again.
    Refused(String),
    Jobs(Box<JobLists>),
    Workers(Vec<Worker>),
    Definitions(Vec<Definition>),
    /// Details of this job, or why there are none.
    Details(u64, Result<Box<Details>, String>),
    /// The effect of a command, in one line.
    Notice(String),
}

/// The state of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Connecting,
    Connected,
    /// Since when the server has not answered, and why.
    Away(Timestamp, String),
    Refused(String),
}

/// The meaning of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// They move in the table.
    #[default]
    Table,
    /// They write the filter.
    Filter,
    Help,
    /// They answer the question whether this job is to be cancelled.
    Confirm(u64),
    /// The details of this job are open; scrolled up by this number of lines.
    Details(u64, usize),
}

/// How a row looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Active,
    Good,
    Bad,
    Faint,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// The subject of the row: the id of a job or worker, or the name of a definition.
    pub(super) key: String,
    pub(super) cells: Vec<String>,
    pub(super) tone: Tone,
}

/// All that is shown.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) address: String,
    pub(super) link: Link,
    pub(super) jobs: JobLists,
    pub(super) workers: Vec<Worker>,
    pub(super) definitions: Vec<Definition>,
    pub(super) tab: Tab,
    pub(super) mode: Mode,
    pub(super) filter: String,
    pub(super) notice: String,
    /// The details that are open, once they have come.
    pub(super) details: Option<Result<Box<Details>, String>>,
    /// Key and place of the selected row.
    selected: (String, usize),
}

impl Model {
    pub(super) fn new(address: String, tab: Tab) -> Self {
        Self {
            address,
            link: Link::Connecting,
            jobs: JobLists::default(),
            workers: Vec::new(),
            definitions: Vec::new(),
            tab,
            mode: Mode::default(),
            filter: String::new(),
            notice: String::new(),
            details: None,
            selected: (String::new(), 0),
        }
    }

    /// Takes news.
    pub(super) fn apply(&mut self, update: Update, now: Timestamp) {
        match update {
            Update::Connected => self.link = Link::Connected,
            Update::Away(why) => {
                let since = match self.link {
                    Link::Away(since, _) => since,
                    _ => now,
                };
                self.link = Link::Away(since, why);
            }
            Update::Refused(why) => self.link = Link::Refused(why),
            Update::Jobs(lists) => self.jobs = *lists,
            Update::Workers(workers) => self.workers = workers,
            Update::Definitions(definitions) => self.definitions = definitions,
            // Details of a job that was left meanwhile are late.
            Update::Details(id, found) if matches!(self.mode, Mode::Details(open, _) if open == id) => {
                self.details = Some(found);
            }
            Update::Details(..) => {}
            Update::Notice(text) => self.notice = text,
        }
        self.follow_selection(now);
    }

    /// The columns of the table; `>` aligns to the right.
    pub(super) const fn heading(&self) -> &'static [&'static str] {
        match self.tab {
            Tab::Jobs => &Job::HEADING,
            Tab::Workers => &Worker::HEADING,
            Tab::Definitions => &Definition::HEADING,
        }
    }

    /// The rows that pass the filter.
    pub(super) fn rows(&self, now: Timestamp) -> Vec<Row> {
        let mut rows: Vec<Row> = match self.tab {
            Tab::Jobs => {
                let all = self.jobs.active.iter().chain(&self.jobs.waiting).chain(&self.jobs.ended);
                all.map(|job| job_row(job, now)).collect()
            }
            Tab::Workers => self.workers.iter().map(|worker| worker_row(worker, now)).collect(),
            Tab::Definitions => self.definitions.iter().map(|it| definition_row(it, now)).collect(),
        };
        let wanted = self.filter.to_lowercase();
        rows.retain(|row| row.cells.iter().any(|cell| cell.to_lowercase().contains(&wanted)));
        rows
    }

    /// The place of the selected row.
    pub(super) const fn selected(&self) -> usize {
        self.selected.1
    }

    /// The job of the selected row.
    pub(super) fn selected_job(&self, now: Timestamp) -> Option<u64> {
        if self.tab != Tab::Jobs {
            return None;
        }
        self.rows(now).get(self.selected.1)?.key.parse().ok()
    }

    /// Selects the row that is this number of places away.
    pub(super) fn move_by(&mut self, by: isize, now: Timestamp) {
        let rows = self.rows(now);
        let last = rows.len().saturating_sub(1);
        let place = self.selected.1.saturating_add_signed(by).min(last);
        self.selected = (rows.get(place).map(|row| row.key.clone()).unwrap_or_default(), place);
    }

    /// Shows another table.
    pub(super) fn show(&mut self, tab: Tab) {
        if self.tab != tab {
            self.tab = tab;
            self.selected = (String::new(), 0);
        }
    }

    /// Shows the next table, or the one before.
    pub(super) fn turn(&mut self, forward: bool) {
        self.show(self.tab.shifted(if forward { 1 } else { Tab::ALL.len() - 1 }));
    }

    /// Keeps the selection on its row, or near its place if the row is gone.
    pub(super) fn follow_selection(&mut self, now: Timestamp) {
        let rows = self.rows(now);
        let (key, place) = &self.selected;
        // The first row stays selected while the user has not moved: new jobs come above.
        let place =
            if key.is_empty() { 0 } else { rows.iter().position(|row| row.key == *key).unwrap_or(*place) };
        let place = place.min(rows.len().saturating_sub(1));
        if !key.is_empty() {
            self.selected.0 = rows.get(place).map(|row| row.key.clone()).unwrap_or_default();
        }
        self.selected.1 = place;
    }
}

fn job_row(job: &Job, now: Timestamp) -> Row {
    let tone = match &*job.state {
        "running" | "assigned" => Tone::Active,
        "succeeded" => Tone::Good,
        "quarantined" => Tone::Bad,
        state if is_bad_end(state) => Tone::Bad,
        "cancelled" | "expired" | "scheduled" => Tone::Faint,
        _ => Tone::Plain,
    };
    Row { key: job.id.to_string(), cells: job.row(now), tone }
}

fn worker_row(worker: &Worker, now: Timestamp) -> Row {
    let tone = match &*worker.state {
        "ready" if worker.working => Tone::Active,
        "ready" => Tone::Plain,
        "suspect" | "unreachable" | "cloned" => Tone::Bad,
        _ => Tone::Faint,
    };
    Row { key: worker.id.to_string(), cells: worker.row(now), tone }
}

fn definition_row(definition: &Definition, now: Timestamp) -> Row {
    let is_met = definition.expect.as_ref().is_none_or(|it| it.condition == "met");
    let last_failed = definition.last_ended.as_ref().is_some_and(|job| is_bad_end(&job.state));
    let tone = match definition.enabled {
        _ if !is_met || last_failed => Tone::Bad,
        true => Tone::Plain,
        false => Tone::Faint,
    };
    Row { key: definition.name.clone(), cells: definition.row(now), tone }
}

fn is_bad_end(state: &str) -> bool {
    matches!(state, "failed" | "lost")
}

#[cfg(test)]
pub(super) mod tests {
    use serde::Deserialize as _;
    use serde_json::json;

    use super::*;

    pub(in crate::top) fn now() -> Timestamp {
        "2026-03-01T09:30:10Z".parse().unwrap()
    }

    pub(in crate::top) fn job(id: u64, state: &str) -> Job {
        let json =
            json!({ "id": id, "name": "resize", "state": state, "created_at": "2026-03-01T09:30:00.000Z" });
        Job::deserialize(&json).unwrap()
    }

    pub(in crate::top) fn model(waiting: &[u64]) -> Model {
        let mut model = Model::new("127.0.0.1:8080".to_owned(), Tab::Jobs);
        model.apply(Update::Connected, now());
        model.apply(lists(waiting), now());
        model
    }

    fn lists(waiting: &[u64]) -> Update {
        let waiting = waiting.iter().map(|id| job(*id, "queued")).collect();
        Update::Jobs(Box::new(JobLists { waiting, ..JobLists::default() }))
    }

    #[test]
    fn the_selection_stays_on_its_job_when_others_come_and_go() {
        let mut model = model(&[3, 2, 1]);
        model.move_by(1, now());
        assert_eq!(model.selected_job(now()), Some(2));
        model.apply(lists(&[5, 4, 3, 2, 1]), now());
        assert_eq!((model.selected_job(now()), model.selected()), (Some(2), 3));
        model.apply(lists(&[5, 4, 3, 1]), now());
        assert_eq!(model.selected_job(now()), Some(1), "the row at its place");
        model.apply(lists(&[]), now());
        assert_eq!(model.selected_job(now()), None);
    }

    #[test]
    fn nothing_is_selected_beyond_the_ends() {
        let mut model = model(&[2, 1]);
        model.move_by(-1, now());
        assert_eq!(model.selected_job(now()), Some(2));
        model.move_by(99, now());
        assert_eq!(model.selected_job(now()), Some(1));
    }

    #[test]
    fn the_filter_looks_into_every_cell_and_ignores_case() {
        let mut model = model(&[31, 22]);
        model.filter = "31".to_owned();
        assert_eq!(model.rows(now()).len(), 1);
        model.filter = "RESIZE".to_owned();
        assert_eq!(model.rows(now()).len(), 2);
        model.filter = "nothing".to_owned();
        assert_eq!(model.selected_job(now()), None);
    }

    #[test]
    fn the_time_without_a_server_is_counted_from_its_first_failure() {
        let mut model = model(&[]);
        let since = now();
        model.apply(Update::Away("refused".to_owned()), since);
        let later = since + std::time::Duration::from_secs(9);
        model.apply(Update::Away("reset".to_owned()), later);
        assert_eq!(model.link, Link::Away(since, "reset".to_owned()));
        model.apply(Update::Connected, later);
        assert_eq!(model.link, Link::Connected);
    }

    #[test]
    fn details_of_a_job_that_is_not_open_are_dropped() {
        let mut model = model(&[1]);
        model.mode = Mode::Details(1, 0);
        model.apply(Update::Details(2, Ok(Box::default())), now());
        assert!(model.details.is_none());
        model.apply(Update::Details(1, Ok(Box::default())), now());
        assert!(model.details.is_some());
    }
}
