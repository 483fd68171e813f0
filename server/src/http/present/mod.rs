//! Answers as JSON: `shapes` declares them, `show` and `timeline` fill them from rows of the store and the snapshot.

pub(crate) mod batch;
mod committed;
pub(crate) mod csv;
pub(crate) mod earlier;
mod members;
pub(crate) mod presenter;
pub mod shapes;
pub(crate) mod timeline;
