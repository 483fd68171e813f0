//! A real engine on a real store, without HTTP.

mod large_batches;
mod schedules;
mod support;
mod visible_with_answer;
