//! A whole server with its store and its engine, over HTTP.

mod batch_retry;
mod batches;
mod limits;
mod queue_full;
mod retention;
mod support;
mod unique;
mod unique_batches;
