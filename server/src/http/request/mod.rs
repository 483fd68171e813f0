//! Parsing of requests: path, query, headers and body. A handler sees only values that passed the checks here.

pub(crate) mod accept;
pub(crate) mod batch;
pub(crate) mod batch_patch;
pub(crate) mod body;
pub(crate) mod cleared_fields;
pub(crate) mod content_type;
pub(crate) mod cursor;
pub(crate) mod definition;
pub(crate) mod field_errors;
pub(crate) mod idempotency_key;
pub(crate) mod intervention;
pub(crate) mod job_filter;
pub(crate) mod job_request;
pub(crate) mod labels;
pub(crate) mod paging;
pub(crate) mod path;
pub(crate) mod positions;
pub(crate) mod predecessors;
pub(crate) mod query;
pub(crate) mod reason;
pub(crate) mod request_id;
pub(crate) mod stored_size;
pub(crate) mod submission;
pub(crate) mod submit_params;
pub(crate) mod trace_context;
