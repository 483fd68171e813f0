//! WebSocket connections of workers: `upgrade` turns a request into a socket, `accept` checks the Hello, `session` exchanges frames.
//!
//! Nothing here decides about jobs: a session passes reports to the engine and sends the engine's orders.

mod accept;
mod acceptor;
mod fragments;
mod grants;
mod join_audit;
mod late_reports;
mod machine;
mod missing_secrets;
mod orders;
mod output;
mod output_limits;
mod rate_limit;
mod reader;
mod results;
mod secrets;
mod session;
mod session_log;
mod unknown_attempts;
mod unsent;
mod upgrade;

pub use accept::router;
pub use acceptor::WorkerAcceptor;
pub use machine::{Machine, MachineGuard, Machines};
pub(crate) use missing_secrets::SecretsWatch;
pub use missing_secrets::{MissingByRevision, MissingSecret, MissingSecrets};
