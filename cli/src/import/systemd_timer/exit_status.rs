//! `SuccessExitStatus=`: exit codes and signals that count as a success.

use protocol::signal;

/// The meaning of a word of `SuccessExitStatus=`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// The exit code in jobs.yaml: that of a signal is 128 and its number.
    Code(u8),
    /// It cannot be a success, for this reason.
    Refused(&'static str),
    /// It is neither a code, nor a name, nor a signal.
    Unknown,
}

impl Status {
    pub(super) fn read(word: &str) -> Self {
        let named = || {
            let name = ["EXIT_", "EX_"].iter().find_map(|prefix| word.strip_prefix(prefix)).unwrap_or(word);
            NAMES.iter().find(|(known, _)| *known == name).map(|(_, code)| *code)
        };
        let signal = || word.starts_with("SIG").then(|| signal::number(word)).flatten();
        match word.parse().ok().or_else(named).or_else(|| signal().map(|number| 128 + number)) {
            Some(125..=127) => Self::Refused("containers that could not be started end with it"),
            Some(137 | 143 | 255) => Self::Refused("containers whose engine died or killed them end with it"),
            Some(code) => Self::Code(code),
            None => Self::Unknown,
        }
    }
}

/// The names that systemd.exec(5) lists for codes of programs, without `EXIT_` and `EX_`.
const NAMES: [(&str, u8); 23] = [
    ("SUCCESS", 0),
    ("FAILURE", 1),
    ("INVALIDARGUMENT", 2),
    ("NOTIMPLEMENTED", 3),
    ("NOPERMISSION", 4),
    ("NOTINSTALLED", 5),
    ("NOTCONFIGURED", 6),
    ("NOTRUNNING", 7),
    ("USAGE", 64),
    ("DATAERR", 65),
    ("NOINPUT", 66),
    ("NOUSER", 67),
    ("NOHOST", 68),
    ("UNAVAILABLE", 69),
    ("SOFTWARE", 70),
    ("OSERR", 71),
    ("OSFILE", 72),
    ("CANTCREAT", 73),
    ("IOERR", 74),
    ("TEMPFAIL", 75),
    ("PROTOCOL", 76),
    ("NOPERM", 77),
    ("CONFIG", 78),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_names_and_signals_are_exit_codes() {
        for (word, expected) in [
            ("24", Status::Code(24)),
            ("0", Status::Code(0)),
            ("TEMPFAIL", Status::Code(75)),
            ("EX_TEMPFAIL", Status::Code(75)),
            ("EXIT_FAILURE", Status::Code(1)),
            ("SIGINT", Status::Code(130)),
            ("256", Status::Unknown),
            ("INT", Status::Unknown),
            ("SIGNONE", Status::Unknown),
        ] {
            assert_eq!(Status::read(word), expected, "{word}");
        }
        for word in ["126", "SIGTERM", "SIGKILL", "255"] {
            assert!(matches!(Status::read(word), Status::Refused(_)), "{word}");
        }
    }
}
