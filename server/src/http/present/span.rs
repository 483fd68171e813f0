//! Durations for people.

use std::time::Duration;

/// A duration in its two largest units: `1.25s`, `3m 20s`, `5h 2m`, `4d 1h`.
pub(crate) fn span(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    match seconds {
        0 => format!("{millis}ms"),
        1..10 => format!("{seconds}.{:02}s", millis / 10),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// A duration in milliseconds, as the API has it.
pub(crate) fn span_ms(ms: u64) -> String {
    span(Duration::from_millis(ms))
}
