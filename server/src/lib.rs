//! The server's body.

pub mod store;
