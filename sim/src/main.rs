//! Both state machines against each other, in virtual time, from one number.
//!
//! A world has one server and some machines with workers. The programs around them are models of the real ones: they drive the real state machines, and
//! everything that can happen to a body happens to them. What is decided is held against the truth, which only the simulation knows.
//!
//! ```text
//! seed ─▶ swarm (which faults, how often) ─▶ script (acts, drawn before the run)
//!                                               │
//! agenda (virtual time) ─▶ world: clients ─▶ server, disk ◀─ network ─▶ machines, engines
//!                                               │
//!                        oracle (each decision)  ·  quiet (once the faults are over)  ─▶ violation ─▶ shrink ─▶ a story
//! ```
//!
//! A *transition* is a step of a state machine that changed something or had an effect; a worker's `flush` is one, if it says something.

mod agenda;
mod backup;
mod clients;
mod clock;
mod connection;
mod copies;
mod coverage;
mod dice;
mod disk;
mod docker;
mod faults;
mod freeze;
mod machine;
mod network;
mod options;
mod oracle;
mod quiet;
mod request;
mod restore;
mod result;
mod run;
mod runs;
mod script;
mod server;
mod shrink;
mod swarm;
mod trace;
mod workload;
mod world;

use std::process::ExitCode;

use clap::Parser;

use crate::options::Options;

fn main() -> ExitCode {
    let options = Options::parse();
    match options.replay {
        Some(seed) => runs::replay(seed, &options),
        None => runs::many(&options),
    }
}
