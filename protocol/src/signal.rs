//! Signals by name or number, as Docker takes them; used in definitions and by workers.

/// The number of a signal, 1 to 64. `text` is its name in any case, with or without `SIG`, or the number itself.
#[must_use]
pub fn number(text: &str) -> Option<u8> {
    if let Ok(number) = text.parse() {
        return (1..=MAX).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = || NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    named().or_else(|| real_time(name))
}

/// `RTMIN`, `RTMIN+1` to `RTMIN+15`, `RTMAX-14` to `RTMAX-1`, `RTMAX`.
fn real_time(name: &str) -> Option<u8> {
    let distance = |digits: &str, max: u8| {
        let distance = digits.parse().ok().filter(|distance| (1..=max).contains(distance))?;
        (!digits.starts_with(['0', '+'])).then_some(distance)
    };
    match name {
        "RTMIN" => Some(RTMIN),
        "RTMAX" => Some(MAX),
        _ => {
            let up = || Some(RTMIN + distance(name.strip_prefix("RTMIN+")?, 15)?);
            let down = || Some(MAX - distance(name.strip_prefix("RTMAX-")?, 14)?);
            up().or_else(down)
        }
    }
}

/// The names without `SIG`, other names of the same signal among them, with the numbers that Linux gives them on x86 and ARM.
pub const NAMES: [(&str, u8); 34] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("IOT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("POLL", 29),
    ("PWR", 30),
    ("SYS", 31),
];

/// The highest that has a name of its own; those above are the real-time signals.
pub const NAMED_MAX: u8 = 31;

/// The first real-time signal that the C library leaves to programs, and the last of all.
const RTMIN: u8 = 34;
const MAX: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_a_name_in_any_case_or_a_number() {
        for (text, expected) in [
            ("SIGTERM", 15),
            ("term", 15),
            ("SigUsr1", 10),
            ("2", 2),
            ("64", 64),
            ("SIGCLD", 17),
            ("RTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("RTMAX-14", 50),
            ("sigrtmax", 64),
        ] {
            assert_eq!(number(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_docker_knows_no_signal_by_is_none() {
        for text in [
            "",
            "SIG",
            "SIGFOO",
            "SIGSIGINT",
            "0",
            "65",
            "-9",
            "256",
            "2.0",
            "RTMIN+0",
            "RTMIN+16",
            "RTMIN+01",
            "RTMIN++1",
            "RTMAX-15",
            "RTMAX+1",
            "TERM ",
        ] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
