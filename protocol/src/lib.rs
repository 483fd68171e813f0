//! The protocol between a Longshore server and its workers: ids, time, orders, reports, wire format.
//!
//! A worker opens a WebSocket (subprotocol [`SUBPROTOCOL`]) and sends `Hello`; the server answers `Welcome`
//! or `Refused`. After that the server sends [`Order`]s and the worker sends [`Report`]s, one frame per
//! binary message. `docs/protocol.md` specifies every byte.
//!
//! This crate has the types ([`order`], [`report`], [`container`], [`signal`]) and their bytes ([`wire`]). What is to be run
//! ([`ContainerSpec`]) has a serde form as well: stores and attempt directories keep it. Sockets, clocks and SQL are elsewhere. The pure crates build on it, hence `no_std`.
//!
//! Version rule: nothing is frozen before the first tagged release. After it a body never changes; a change
//! gets a new tag, and a peer may skip unknown tags of 128 and above.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod availability;
pub mod close;
pub mod container;
pub mod ids;
pub mod labels;
pub mod milliseconds;
pub mod order;
pub mod output;
pub mod registry;
pub mod report;
pub mod resources;
pub mod secret;
pub mod signal;
pub mod terminal;
pub mod time;
pub mod usage;
pub mod version;
pub mod wire;

pub use container::{ContainerSpec, RuntimeKind};
pub use ids::{
    AttemptNo, ClusterId, Epoch, Fence, Incarnation, JobId, Nonce, ReportNo, Revision, SessionId, Token,
    WorkerId,
};
pub use order::Order;
pub use report::Report;
pub use time::{Now, Timestamp, Uptime};
pub use usage::{Usage, UsageSample};

/// The WebSocket subprotocol that both sides must name.
pub const SUBPROTOCOL: &str = "longshore.v1";

/// The scheme of the header `Authorization` with which a worker shows its own secret: see `docs/protocol.md`.
pub const WORKER_SCHEME: &str = "Longshore-Worker";

/// The revision of the wire format: the first field of every Hello. It grows with each change of a message until the first tagged
/// release; peers with different revisions cannot read each other. Revision 1 is that of Hellos before this field existed.
pub const WIRE_FORMAT: u16 = 5;

/// The lowest and the highest protocol version that this build speaks.
pub const VERSIONS: version::VersionRange = version::VersionRange { lowest: 1, highest: 2 };
