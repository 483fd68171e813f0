//! The server's body.

pub mod catalogue;
pub mod config;
pub mod engine;
pub mod http;
pub mod logs;
pub mod store;
