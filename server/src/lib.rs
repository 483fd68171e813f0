//! The server's body: sockets, disk and clock around the pure scheduler. It decides nothing.
//!
//! A request walks `http` → `engine` (which steps the scheduler) → `store` → and only then back to whoever asked, or through `ws` to a
//! worker. See ARCHITECTURE.md for the map.

pub mod auth;
pub mod catalogue;
pub mod clock;
pub mod config;
pub mod engine;
pub mod http;
pub mod listener;
pub mod logs;
pub mod store;
pub mod ws;
