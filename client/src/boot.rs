//! The boot of the machine, and instants that keep their meaning over restarts, clock steps and reboots.

use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

use protocol::{Now, Timestamp, Uptime};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The kernel's id of one boot of the machine; zero if the kernel does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BootId(pub u128);

impl BootId {
    /// The running boot.
    #[must_use]
    pub fn current() -> Self {
        static CURRENT: OnceLock<BootId> = OnceLock::new();
        *CURRENT.get_or_init(|| {
            let text = fs::read_to_string(BOOT_ID).unwrap_or_default();
            let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
            Self(u128::from_str_radix(&digits, 16).unwrap_or_default())
        })
    }

    /// `true` for the running boot, if the kernel names it.
    #[must_use]
    pub fn is_current(self) -> bool {
        self != Self::default() && self == Self::current()
    }
}

/// Written as hexadecimal text, because JSON numbers cannot hold 128 bits.
impl Serialize for BootId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", self.0))
    }
}

impl<'de> Deserialize<'de> for BootId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map(Self).map_err(serde::de::Error::custom)
    }
}

/// An instant on disk. Within one boot the monotonic clock decides, which a step of the wall clock does not change; after a reboot only
/// the wall clock has a meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedInstant {
    /// Wall-clock time.
    pub utc: Timestamp,
    /// Time since the boot `boot`.
    pub up: Uptime,
    /// The boot that `up` counts from; zero if it is unknown.
    pub boot: BootId,
}

impl RecordedInstant {
    /// An instant of the running boot.
    #[must_use]
    pub fn of(now: Now) -> Self {
        Self { utc: now.utc, up: now.up, boot: BootId::current() }
    }

    /// An earlier instant of the running boot.
    #[must_use]
    pub fn of_uptime(at: Uptime, now: Now) -> Self {
        Self { utc: now.utc - now.up.since(at), up: at, boot: BootId::current() }
    }

    /// The same instant by the monotonic clock of the running boot; never later than now, and never zero.
    #[must_use]
    pub fn by_uptime(self, now: Now) -> Uptime {
        if self.boot.is_current() {
            return self.up.min(now.up);
        }
        (now.up - now.utc.since(self.utc)).max(EARLIEST)
    }

    /// `true` if this instant came before the other one.
    #[must_use]
    pub fn is_before(self, other: Self) -> bool {
        if self.boot != BootId::default() && self.boot == other.boot {
            self.up < other.up
        } else {
            self.utc < other.utc
        }
    }

    /// This instant, earlier by the error of a conversion, so that it sorts before each conversion of the same instant.
    #[must_use]
    pub fn just_before(self, now: Now) -> Uptime {
        self.by_uptime(now) - CONVERSION_ERROR_MAX
    }
}

/// Two conversions of one instant differ by less than this.
const CONVERSION_ERROR_MAX: Duration = Duration::from_millis(5);
/// Leaves time for instants before it.
const EARLIEST: Uptime = Uptime(10_000_000);

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

#[cfg(test)]
mod tests {
    use super::*;

    fn now(utc: i64, seconds: u64) -> Now {
        Now { utc: Timestamp(utc), up: Uptime(seconds * 1_000_000_000) }
    }

    #[test]
    fn an_instant_before_another_exists_for_every_clock() {
        for boot in [BootId::current(), BootId(7)] {
            let at = RecordedInstant { utc: Timestamp(1_700_000_000_000), up: Uptime(59_000_000_000), boot };
            for now in [now(1_700_000_001_000, 60), now(1_700_099_999_000, 60), now(1_600_000_000_000, 60)] {
                assert!(at.just_before(now) < at.by_uptime(now) && at.by_uptime(now) <= now.up, "{now:?}");
            }
        }
    }

    #[test]
    fn the_order_of_two_instants_survives_a_step_of_the_wall_clock() {
        let end = RecordedInstant::of(now(1_700_000_000_000, 60));
        let stop = RecordedInstant::of(now(1_600_000_000_000, 61));
        assert!(end.is_before(stop) && !stop.is_before(end));
        let rebooted = RecordedInstant { boot: BootId(7), ..stop };
        assert!(rebooted.is_before(end), "after a reboot the wall clock decides");
    }

    #[test]
    fn a_boot_id_survives_json() {
        let text = serde_json::to_string(&BootId(0xab)).expect("written");
        assert_eq!(text, format!("\"{:032x}\"", 0xab));
        assert_eq!(serde_json::from_str::<BootId>(&text).expect("read"), BootId(0xab));
    }
}
