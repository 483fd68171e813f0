//! Reads the history of ended jobs, and makes their spans. Blocks on the disk.

use std::collections::HashMap;
use std::sync::Arc;

use opentelemetry_sdk::trace::SpanData;
use protocol::JobId;

use super::ids::{JobTrace, Tracer};
use super::job_spans::{JobSpans, Relation, relations};
use crate::store::{Archive, JobRecord, ReadError};

/// Reads jobs from the store.
pub(super) struct HistoryReader {
    pub(super) tracer: Arc<Tracer>,
    pub(super) archive: Arc<dyn Archive>,
    /// The address of the dashboard.
    pub(super) public_url: Option<String>,
}

/// The spans of some jobs.
#[derive(Debug, Default)]
pub(super) struct Histories {
    /// The spans of each job whose trace is exported.
    pub(super) spans: Vec<Vec<SpanData>>,
    /// Jobs that retention has deleted meanwhile.
    pub(super) removed: usize,
}

impl std::fmt::Debug for HistoryReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HistoryReader").field("tracer", &self.tracer).finish_non_exhaustive()
    }
}

impl HistoryReader {
    /// Makes the spans of those of these jobs that are sampled. Of the others little is read.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(super) fn read(&self, jobs: &[JobId]) -> Result<Histories, ReadError> {
        let mut histories = Histories::default();
        for (job, trace) in self.traces(jobs)?.into_iter().filter(|(_, trace)| trace.is_sampled) {
            let Some(record) = self.archive.job(job)? else {
                histories.removed += 1;
                continue;
            };
            let related = self.related(&record)?;
            let public_url = self.public_url.as_deref();
            let spans = JobSpans {
                tracer: &self.tracer,
                record: &record,
                trace: &trace,
                related: &related,
                public_url,
            };
            histories.spans.push(spans.make());
        }
        Ok(histories)
    }

    /// The jobs with their traces, in the same order.
    fn traces(&self, jobs: &[JobId]) -> Result<Vec<(JobId, JobTrace)>, ReadError> {
        // As a worker gets them: the same variables have to give the same trace.
        let overrides: HashMap<_, _> = self.archive.overrides(jobs)?.into_iter().collect();
        let trace = |job: &JobId| {
            let environment = overrides.get(job).map_or(&[][..], |overrides| &overrides.environment);
            (*job, self.tracer.trace(*job, environment))
        };
        Ok(jobs.iter().map(trace).collect())
    }

    fn related(&self, record: &JobRecord) -> Result<Vec<(Relation, JobTrace)>, ReadError> {
        let relations = relations(record);
        if relations.is_empty() {
            return Ok(Vec::new());
        }
        let jobs: Vec<JobId> = relations.iter().map(|relation| relation.job).collect();
        let traces = self.traces(&jobs)?.into_iter().map(|(_, trace)| trace);
        Ok(relations.into_iter().zip(traces).collect())
    }
}
