//! Steps that every request passes before and after its handler.
//!
//! `front` checks access and limits and writes the headers of every answer, `body_budget` bounds the memory of large bodies,
//! `compression` compresses pages and JSON, `deprecation` marks answers of deprecated endpoints, `detached` runs changes to their end,
//! `problem`, `rejection`, `denial` and `code` turn errors into `application/problem+json`.

mod audited;
pub(crate) mod body_budget;
pub mod code;
pub(crate) mod compression;
mod cut_at_revocation;
mod denial;
pub(crate) mod deprecation;
pub(crate) mod detached;
pub(crate) mod front;
pub mod problem;
mod rejection;
