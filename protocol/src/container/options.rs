//! Options of a container that protocol version 1 does not know.

use alloc::string::String;
use alloc::vec::Vec;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// Names, limits and groups of a container. A definition with one of them goes only to workers that speak [`Self::VERSION`]. A field that
/// is added later needs a higher version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerOptions {
    /// The name of the container within itself; its own id if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Lines of `/etc/hosts`: a name, and its address or [`HOST_GATEWAY`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_hosts: Vec<(String, String)>,
    /// Addresses of name servers; the engine's own if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<String>,
    /// Domains in which short names are looked up; the engine's own if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns_search: Vec<String>,
    /// Limits of its processes, sorted by name; names are unique.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ulimits: Vec<Ulimit>,
    /// Groups of its first process beside that of its user, by name or number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub group_add: Vec<String>,
}

impl ContainerOptions {
    /// The lowest protocol version that has them.
    pub const VERSION: u16 = 2;

    /// None is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A limit of the kernel for each process of a container (`setrlimit`).
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
pub struct Ulimit {
    /// One of [`ULIMITS`].
    pub name: String,
    /// The limit that holds, in the unit of the kernel; [`UNLIMITED`] for none.
    pub soft: i64,
    /// A process may raise its soft limit up to this.
    pub hard: i64,
}

/// The address that the engine replaces with that of its host (Docker 20.10).
pub const HOST_GATEWAY: &str = "host-gateway";

/// A limit of this value is none.
pub const UNLIMITED: i64 = -1;

/// The limits that a container may set. `core` is not among them, because a core dump may hold secrets; nor are `nice`, `rtprio` and `rttime`,
/// because a process with the priority of real time takes the machine from the worker, whatever `cpus` says.
pub const ULIMITS: [&str; 11] =
    ["cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nofile", "nproc", "rss", "sigpending", "stack"];
