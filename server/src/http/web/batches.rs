//! `/batches` and `/batches/{id}`.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use protocol::JobId;

use super::chart::{self, Bar, Share};
use super::definitions::PauseLine;
use super::format::{self, Moment};
use super::jobs::Row;
use super::list_address::ListAddress;
use super::page::{Frame, render};
use crate::http::api::{batches, job_list};
use crate::http::middleware::problem::Problem;
use crate::http::present::shapes::{BatchSummary, Dependency};
use crate::http::request::path::Id;
use crate::http::request::query::{Query, encode};
use crate::http::state::AppState;
use crate::store::BatchState;

/// A batch as a row.
struct BatchRow {
    batch: BatchSummary,
    tone: &'static str,
    created: Moment,
    ended_at: Option<Moment>,
    eta: Option<Moment>,
    ended: u32,
    failures: u32,
    /// Its members by what became of them, without those that wait.
    shares: Vec<Share>,
}

impl BatchRow {
    fn of(batch: BatchSummary) -> Self {
        Self {
            shares: shares(&batch),
            tone: format::tone(&batch.state),
            created: format::moment(batch.created_at),
            ended_at: batch.ended_at.map(format::moment),
            eta: batch.eta.map(format::moment),
            ended: batch.count.saturating_sub(batch.counts.live()),
            failures: batch.counts.failures(),
            batch,
        }
    }

    /// The bar of the shares.
    fn bars(&self) -> Vec<Bar> {
        chart::shares(&self.shares, u64::from(self.batch.count))
    }

    /// Members that are neither on workers nor have ended.
    const fn waiting(&self) -> u32 {
        let counts = &self.batch.counts;
        counts.live().saturating_sub(counts.running + counts.assigned)
    }

    /// The shares in words, for the label of the bar.
    fn in_words(&self) -> String {
        let words: Vec<&str> = self.shares.iter().map(|share| share.words.as_str()).collect();
        format!(
            "{} members: {}",
            self.batch.count,
            if words.is_empty() { "all wait".to_owned() } else { words.join(", ") }
        )
    }
}

/// The members that have ended or are on workers. They have the colours of their states, but cancelled ones differ from waiting ones.
fn shares(batch: &BatchSummary) -> Vec<Share> {
    let counts = &batch.counts;
    let all = [
        ("good", counts.succeeded, "succeeded", "succeeded"),
        ("bad", counts.failures(), "failed", "failed,expired,lost"),
        ("warn", counts.cancelled, "cancelled", "cancelled"),
        ("live", counts.running + counts.assigned, "on workers", "running,assigned"),
    ];
    let share = |(tone, count, word, states): (&'static str, u32, &str, &str)| Share {
        tone,
        count: u64::from(count),
        words: format!("{count} {word}"),
        link: format!("/jobs?{}", encode([("batch", batch.id.to_string().as_str()), ("state", states)])),
    };
    all.into_iter().filter(|(_, count, ..)| *count > 0).map(share).collect()
}

#[derive(Template)]
#[template(path = "batches.html")]
struct BatchesPage {
    frame: Frame,
    name: String,
    state: String,
    states: [&'static str; 5],
    rows: Vec<BatchRow>,
    /// The query of the next page.
    older: Option<String>,
}

/// `GET /batches`
pub(crate) async fn list(State(state): State<Arc<AppState>>, uri: Uri) -> Result<Response, Problem> {
    let address = ListAddress::of(&uri)?;
    let page = batches::page(&state, address.query()).await?;
    render(&BatchesPage {
        frame: Frame::new(&state, "batches", "Batches"),
        name: address.value("name"),
        state: address.value("state"),
        states: BatchState::ALL.map(BatchState::name),
        rows: page.entries.into_iter().map(BatchRow::of).collect(),
        older: address.next_page(page.next.as_deref()),
    })
}

#[derive(Template)]
#[template(path = "batch.html")]
struct BatchPage {
    frame: Frame,
    row: BatchRow,
    /// States with members, and their number.
    members: Vec<(&'static str, u32)>,
    /// Outcomes of members that ended badly, and their number.
    outcomes: Vec<(String, u32)>,
    failures: Vec<Row>,
    /// Its own pause.
    pause: Option<PauseLine>,
    dependents: Vec<Dependency>,
    /// True if the sender may act on the members.
    may_act: bool,
    /// Members have ended without success.
    can_retry: bool,
    /// The query that selects the members.
    selection: String,
}

/// `GET /batches/{id}`
pub(crate) async fn one(State(state): State<Arc<AppState>>, Id(id): Id) -> Result<Response, Problem> {
    let full = batches::full(&state, JobId(id)).await?;
    let title = match &full.batch.name {
        Some(name) => format!("Batch {id} {name}"),
        None => format!("Batch {id}"),
    };
    let frame = Frame::new(&state, "batches", title);
    let selection = encode([("batch", id.to_string().as_str())]);
    // The members are read only for a sender who may not act on all definitions; of a large batch the latest ones decide.
    let members_shown = match frame.has_whole_scope() {
        true => Vec::new(),
        false => {
            let address = format!("/jobs?{selection}").parse().map_err(Problem::internal)?;
            job_list::page(&state, Query::of(&address)?).await?.entries
        }
    };
    render(&BatchPage {
        may_act: frame.may_run_all(members_shown.iter().map(|it| it.job.name.as_str())),
        frame,
        can_retry: full.batch.counts.failures() + full.batch.counts.cancelled > full.batch.skipped,
        pause: full.batch.pause.as_ref().map(PauseLine::of),
        members: full.batch.counts.by_state().collect(),
        outcomes: full.outcomes.into_iter().collect(),
        row: BatchRow::of(full.batch),
        failures: full.failures.into_iter().map(Row::listed).collect(),
        dependents: full.dependents,
        selection,
    })
}
