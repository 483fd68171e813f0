//! Answers as JSON: `shapes` declares them, `presenter`, `timeline` and `ending` fill them from rows of the store and the snapshot.

pub(crate) mod batch;
mod committed;
pub(crate) mod csv;
pub(crate) mod earlier;
pub(crate) mod ending;
mod members;
pub(crate) mod presenter;
pub mod shapes;
pub(crate) mod span;
pub(crate) mod timeline;
