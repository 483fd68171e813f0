//! Limits of the container spec of a definition.

use alloc::format;
use alloc::string::String;

use crate::container::{
    ContainerOptions, ContainerSpec, INPUT_BYTES_MAX, LOG_MASK_BYTES_MAX, LOG_MASKS_MAX, MEMORY_BYTES_MAX,
};
use crate::wire::values::{Checked, duration, ensure, inner};

/// The lists of a definition fit into a frame. A server checks this when it reads a definition.
///
/// # Errors
/// The field and its limit.
pub fn container_fits(spec: &ContainerSpec) -> Checked {
    inner("environment", spec.environment.len())?;
    inner("entrypoint", spec.entrypoint.as_ref().map_or(0, |words| words.len()))?;
    inner("command", spec.command.len())?;
    inner("volumes", spec.volumes.len())?;
    inner("tmpfs", spec.tmpfs.len())?;
    let shm = spec.shm_bytes.unwrap_or(1);
    ensure((1..=MEMORY_BYTES_MAX).contains(&shm), "shm_bytes", || {
        format!("{shm} is not between 1 and {MEMORY_BYTES_MAX}")
    })?;
    inner("cap_add", spec.cap_add.len())?;
    inner("cap_drop", spec.cap_drop.len())?;
    inner("labels", spec.labels.len())?;
    inner("resources.custom", spec.resources.custom.len())?;
    ensure(spec.log_mask.len() <= LOG_MASKS_MAX, "log_mask", || {
        format!("there are {} patterns, at most {LOG_MASKS_MAX} are allowed", spec.log_mask.len())
    })?;
    let longest = spec.log_mask.iter().map(String::len).max().unwrap_or(0);
    ensure(longest <= LOG_MASK_BYTES_MAX, "log_mask", || {
        format!("a pattern has {longest} bytes, at most {LOG_MASK_BYTES_MAX} are allowed")
    })?;
    let input = spec.input.as_ref().map_or(0, String::len);
    ensure(input <= INPUT_BYTES_MAX, "input", || {
        format!("it has {input} bytes, at most {INPUT_BYTES_MAX} are allowed")
    })?;
    options_fit(&spec.options)?;
    duration("pull_timeout", spec.pull_timeout)?;
    duration("stop_grace", spec.stop_grace)?;
    spec.self_fence.map_or(Ok(()), |fence| duration("self_fence", fence))
}

/// The worker checks limits and groups as it makes the command line.
fn options_fit(options: &ContainerOptions) -> Checked {
    inner("extra_hosts", options.extra_hosts.len())?;
    inner("dns", options.dns.len())?;
    inner("dns_search", options.dns_search.len())?;
    inner("ulimits", options.ulimits.len())?;
    inner("group_add", options.group_add.len())
}
