//! A parsed request for one job.

use std::borrow::Cow;

use scheduler::dependencies::RequiredEnd;
use scheduler::new_jobs::NewJob;
use serde_json::Value;

use super::batch_fields::BatchFields;
use crate::http::request::cleared_fields::ClearedFields;

/// A parsed request for one job; its revision is not known yet.
#[derive(Debug, Default)]
pub(crate) struct JobRequest<'b> {
    /// The definition's name, in entries of a batch.
    pub(crate) name: Option<Cow<'b, str>>,
    /// Its own name within its list.
    pub(crate) entry_name: Option<String>,
    /// Names of entries of its list that it comes after.
    pub(crate) after_entries: Vec<(String, RequiredEnd)>,
    /// The job with its overrides.
    pub(crate) job: NewJob,
    /// Values for the parameters of the definition; not checked yet.
    pub(crate) params: Vec<(String, Value)>,
    /// Fields that a retry does not take over from the earlier job.
    pub(crate) cleared: ClearedFields,
    /// Present if it asks for several jobs.
    pub(crate) batch: Option<Box<BatchFields>>,
}
