//! Resources that a worker offers, and that jobs reserve.

use alloc::string::String;
use alloc::vec::Vec;

use bincode::{Decode, Encode};

/// Resources that a worker offers to the jobs on it together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct OfferedResources {
    /// Thousandths of a core. Absent: cores are not counted, so jobs may reserve any number.
    pub cpus_milli: Option<u32>,
    /// Memory in bytes. Absent: memory is not counted, so jobs may reserve any amount.
    pub memory_bytes: Option<u64>,
    /// Ids of the GPUs, as the engine or the jobs know them. Each is given to one job at a time.
    pub gpus: Vec<String>,
    /// Amounts of resources that the operator named. A name that is not here is not offered.
    pub custom: Vec<(String, u32)>,
}

/// Length of the longest id of a GPU and of the longest name of a custom resource, in bytes.
pub const RESOURCE_NAME_BYTES_MAX: usize = 63;

/// GPUs of one worker, and custom resources of one worker or job, at most.
pub const RESOURCES_MAX: usize = 64;

/// A text may be the id of a GPU or the name of a custom resource: `A-Z a-z 0-9 . _ : -`, beginning with a letter or a digit. It has no
/// comma, because ids are joined by commas.
#[must_use]
pub fn is_resource_name(text: &str) -> bool {
    text.len() <= RESOURCE_NAME_BYTES_MAX
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte))
}

/// The variable that tells a job the ids of its GPUs, joined by commas. A job without GPUs does not have it.
pub const GPUS_VARIABLE: &str = "LONGSHORE_GPUS";
