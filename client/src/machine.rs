//! What a heartbeat tells about the machine.

use std::path::Path;

/// How the machine is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// The load average of one minute, in thousandths.
    pub(crate) load_milli: u32,
    /// Free bytes for us where the state directory is; zero if that cannot be told.
    pub(crate) disk_free_bytes: u64,
}

/// Two system calls.
pub(crate) fn measure(state_dir: &Path) -> Machine {
    let load = rustix::system::sysinfo().loads[0];
    Machine {
        load_milli: u32::try_from(load.saturating_mul(1000) >> LOAD_FRACTION_BITS).unwrap_or(u32::MAX),
        disk_free_bytes: rustix::fs::statvfs(state_dir)
            .map_or(0, |it| it.f_bavail.saturating_mul(it.f_frsize)),
    }
}

/// `SI_LOAD_SHIFT` of sysinfo(2).
const LOAD_FRACTION_BITS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_a_disk_and_a_sane_load() {
        let machine = measure(&std::env::temp_dir());
        assert!(machine.disk_free_bytes > 0);
        assert!(machine.load_milli < 10_000_000, "{}", machine.load_milli);
        assert_eq!(measure(Path::new("/nonexistent")).disk_free_bytes, 0);
    }
}
