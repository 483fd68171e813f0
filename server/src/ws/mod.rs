//! Workers' connections: `upgrade` makes a socket of a request, `accept` checks the Hello, `session` turns frames into reports and orders into frames.
//!
//! Nothing here decides about jobs: a session reports to the engine, and says what the engine lets it say.

mod accept;
mod chatter;
mod grants;
mod machine;
mod orders;
mod output;
mod pieces;
mod presence;
mod reader;
mod session;
mod strangers;
mod unsent;
mod upgrade;

pub use accept::{Door, router};
pub use machine::{Entry, Machine, Machines};
