//! Answers as JSON: `shapes` declares them, the other modules fill them from rows of the store and the snapshot.

pub(crate) mod batch;
pub(crate) mod caller;
mod committed;
pub(crate) mod csv;
pub(crate) mod definition;
pub(crate) mod departed;
mod earlier;
pub mod ending;
mod members;
pub mod missing_output;
pub(crate) mod notification;
pub(crate) mod pending_text;
pub(crate) mod presenter;
pub(crate) mod schedule;
pub mod shapes;
mod silent;
pub(crate) mod size;
pub(crate) mod span;
pub(crate) mod timeline;
pub(crate) mod waiting;
pub(crate) mod worker;
