//! The SQL of a part of a list. It consists of fixed text; all values of the request are bound.

use protocol::report::Outcome;
use rusqlite::types::Value;
use scheduler::job::State;

use super::parts::{Part, has_closed_attempt};
use super::{Leads, Query};
use crate::store::sqlite::pending_batch::Range;
use crate::store::sqlite::{codes, rows};

/// A statement under construction.
struct Statement {
    sql: String,
    values: Vec<Value>,
}

impl Statement {
    /// Binds a value. Returns the number of its parameter.
    fn bind(&mut self, value: impl Into<Value>) -> usize {
        self.values.push(value.into());
        self.values.len()
    }

    /// Adds a condition in which `{}` stands for the parameter of this value.
    fn add(&mut self, condition: &str, value: impl Into<Value>) {
        let parameter = format!("?{}", self.bind(value));
        self.sql += &condition.replace("{}", &parameter);
    }
}

impl Query<'_> {
    /// The statement that reads the jobs with these numbers, the newest first, and its values.
    pub(super) fn sql(&self, (lowest, highest): Range, limit: usize, leads: Leads) -> (String, Vec<Value>) {
        let mut statement = Statement {
            sql: format!("SELECT {} FROM ", rows::JOB_COLUMNS),
            values: vec![lowest.into(), highest.into()],
        };
        let key = self.add_tables(&mut statement, leads);
        statement.sql += " BETWEEN ?1 AND ?2";
        self.add_part(&mut statement);
        self.add_definition(&mut statement);
        self.add_last_attempt(&mut statement);
        self.add_request(&mut statement);
        statement.sql += &format!(" ORDER BY {key} DESC LIMIT ");
        statement.add("{}", i64::try_from(limit).unwrap_or(i64::MAX));
        (statement.sql, statement.values)
    }

    /// Adds the tables, and the beginning of the condition, which ends with the column of the job's number. Returns that column.
    fn add_tables(&self, statement: &mut Statement, leads: Leads) -> &'static str {
        let (source, joins) = (self.source(), rows::JOB_JOINS);
        let own_key = if self.part == Part::Unresolved { "u.job" } else { "j.id" };
        let Some(tag) = self.tag() else {
            statement.sql += &format!("{source} j {joins} WHERE {own_key}");
            return own_key;
        };
        let table = tag.table();
        let (pair, key) = match leads {
            Leads::Tags => (format!("{table} CROSS JOIN {source} j"), "tag.job"),
            Leads::Jobs => (format!("{source} j CROSS JOIN {table}"), own_key),
        };
        let condition = tag.condition(|value| statement.bind(value));
        statement.sql += &format!("{pair} ON j.id = tag.job {joins} WHERE {condition} AND {key}");
        key
    }

    const fn source(&self) -> &'static str {
        match self.part {
            Part::Live(_) | Part::RunningParents | Part::Backoff => {
                "(SELECT *, NULL AS ended_at, NULL AS reason, 0 AS confirmed FROM jobs)"
            }
            Part::Ended | Part::Succeeded | Part::SucceededNonZero | Part::Unsuccessful(_) => "ended",
            // The condition of the part joins the failures with their jobs, and with a tag that leads.
            Part::Unresolved => "unresolved u CROSS JOIN ended",
        }
    }

    /// Adds the condition of the part.
    fn add_part(&self, statement: &mut Statement) {
        match self.part {
            Part::Live(None) | Part::Ended => {}
            Part::RunningParents => statement.sql += " AND j.id IN (SELECT job FROM running_parents)",
            Part::Live(Some(State::Queued)) => {
                statement.sql += " AND j.state = 2 AND j.id NOT IN (SELECT job FROM running_parents)";
            }
            // Jobs that wait for a retry are fewer than those with a state: `+` leaves out the index by state.
            Part::Live(Some(state)) if has_closed_attempt(self.filter) => {
                statement.add(" AND +j.state = {}", codes::of_state(state));
            }
            // The second condition makes the partial index eligible; likewise below.
            Part::Live(Some(state)) => {
                statement.add(" AND j.state = {} AND j.state <> 2", codes::of_state(state));
            }
            Part::Succeeded => statement.sql += " AND j.state = 6",
            Part::SucceededNonZero => statement.sql += " AND j.state = 6 AND j.exit_code <> 0",
            Part::Unsuccessful(state) => {
                statement.add(" AND j.state = {} AND j.state <> 6", codes::of_state(state));
            }
            // An attempt that was given back unstarted has not failed.
            Part::Backoff => {
                statement.add(" AND j.state = 1 AND j.outcome <> {}", codes::of_outcome(Outcome::Released))
            }
            Part::Unresolved => {
                statement.sql += " AND j.id = u.job";
                if self.tag().is_some() {
                    statement.sql += " AND u.job = tag.job";
                }
                if let Some(names) = self.names {
                    // Before the job itself is read. `+` as in `add_definition`.
                    let firsts = names.firsts.clone();
                    statement.add(" AND +u.name IN (SELECT value FROM json_each({}))", firsts);
                }
                if let Some(name) = &self.filter.name {
                    let name = name.clone();
                    statement.add(" AND u.name = (SELECT min(id) FROM definitions WHERE name = {})", name);
                }
                if !self.filter.states.is_empty() {
                    let states: Vec<String> =
                        self.filter.states.iter().map(|state| codes::of_state(*state).to_string()).collect();
                    statement.sql += &format!(" AND +j.state IN ({})", states.join(", "));
                }
            }
        }
    }

    /// Adds the conditions about the definition, its revision and its schedule.
    fn add_definition(&self, statement: &mut Statement) {
        if let Some(name) = &self.filter.name {
            statement.add(" AND j.definition IN (SELECT id FROM definitions WHERE name = {})", name.clone());
        }
        if let Some(names) = self.names {
            // `+`: each job of the walk is looked up in the list. By an index, all jobs of these definitions would be read and sorted.
            let definitions = names.definitions.clone();
            statement.add(" AND +j.definition IN (SELECT value FROM json_each({}))", definitions);
        }
        if let (Some(schedule), Some(_)) = (&self.filter.schedule, &self.filter.label) {
            statement.add(
                " AND (EXISTS (SELECT 1 FROM fires f WHERE f.job = j.id AND f.reason IS NULL AND f.schedule = {})
                     OR EXISTS (SELECT 1 FROM carried_slots c WHERE c.job = j.id AND c.schedule = {}))",
                schedule.clone(),
            );
        }
        if let Some(revision) = self.filter.revision {
            let revision = revision.0.to_be_bytes().to_vec();
            statement.add(" AND j.definition IN (SELECT id FROM definitions WHERE revision = {})", revision);
        }
    }

    /// Adds the conditions about the last attempt and the end of a job.
    fn add_last_attempt(&self, statement: &mut Statement) {
        // One at most, see `singles`.
        for outcome in &self.filter.outcomes {
            statement.add(" AND j.outcome = {}", codes::of_outcome(*outcome));
        }
        if let Some(code) = self.filter.exit_code {
            statement.add(" AND j.exit_code = {}", i64::from(code));
        }
        if let Some(since) = self.filter.ended_since {
            statement.add(" AND j.ended_at >= {}", since.0);
        }
        if let Some(until) = self.filter.ended_until {
            statement.add(" AND j.ended_at < {}", until.0);
        }
        if let Some(text) = &self.filter.text {
            statement.add(" AND instr(lower(j.reason), {}) > 0", text.to_ascii_lowercase());
        }
        if let Some(worker) = self.filter.worker {
            statement.add(" AND j.worker = {}", worker.0.cast_signed());
        }
    }

    /// Adds the conditions about the request that made a job, and about jobs made together with it.
    fn add_request(&self, statement: &mut Statement) {
        if let Some(name) = &self.filter.submitted_by {
            // `+`: looked up once, and no reason to read jobs in another order.
            statement.add(" AND +j.submitter = (SELECT id FROM submitters WHERE name = {})", name.clone());
        }
        if let Some(batch) = self.filter.batch {
            statement.add(" AND j.batch = {}", batch.0.cast_signed());
        }
        if let Some(parent) = self.filter.parent {
            let parent = parent.0.cast_signed();
            statement.add(" AND j.id IN (SELECT job FROM members WHERE parent = {})", parent);
        }
        if self.filter.without_members {
            statement.sql += " AND NOT EXISTS (SELECT 1 FROM members m WHERE m.job = j.id)";
        }
        if let Some(since) = self.filter.since {
            statement.add(" AND j.created_at >= {}", since.0);
        }
        if let Some(until) = self.filter.until {
            statement.add(" AND j.created_at < {}", until.0);
        }
    }
}
