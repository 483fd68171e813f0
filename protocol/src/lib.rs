//! The language that a Longshore server and its workers share: ids, time, orders, reports, bytes.
//!
//! A worker opens a WebSocket (subprotocol [`SUBPROTOCOL`]) and says `Hello`; the server answers `Welcome` or `Refused`. From then
//! on the server says [`Order`]s and the worker says [`Report`]s, one frame per binary message. `docs/protocol.md` specifies every byte.
//!
//! What lives here is meaning ([`order`], [`report`], [`container`], [`signal`]) and its bytes ([`wire`]). What deliberately does not: sockets,
//! clocks, JSON, SQL. Both brains build on this crate, hence `no_std`.
//!
//! Version rule: nothing is frozen before the first tagged release. After it a body never changes; a change is a new tag, and
//! tags of 128 and above may be skipped by a peer that does not know them.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod close;
pub mod container;
pub mod ids;
pub mod order;
pub mod output;
pub mod report;
pub mod signal;
pub mod time;
pub mod wire;

pub use container::{ContainerSpec, RuntimeKind};
pub use ids::{
    AttemptNo, ClusterId, Epoch, Fence, Incarnation, JobId, Nonce, ReportNo, Revision, SessionId, Token,
    WorkerId,
};
pub use order::Order;
pub use report::Report;
pub use time::{Now, Timestamp, Uptime};

/// The WebSocket subprotocol that both sides must name.
pub const SUBPROTOCOL: &str = "longshore.v1";

/// The lowest and the highest protocol version that this build speaks.
pub const VERSIONS: order::VersionRange = order::VersionRange { lowest: 1, highest: 1 };
