//! Amounts of memory and disk for people.

/// A number of bytes with a binary unit.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut whole = bytes;
    let mut tenths = 0;
    while whole >= 1024 && unit + 1 < UNITS.len() {
        tenths = whole % 1024 * 10 / 1024;
        whole /= 1024;
        unit += 1;
    }
    match unit {
        0 => format!("{whole} B"),
        _ if whole >= 100 => format!("{whole} {}", UNITS[unit]),
        _ => format!("{whole}.{tenths} {}", UNITS[unit]),
    }
}
