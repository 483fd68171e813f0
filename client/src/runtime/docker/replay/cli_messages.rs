//! Finds the CLI's own messages in a standard error that it shares with the program. Only the text tells them apart. Pure.
//!
//! Offsets count bytes: the program's output need not be text, and the CLI's message begins in the middle of an unfinished line.

/// Number of these bytes that are certainly the program's. The rest may be a message of the CLI, and is held until its exit code is known:
/// the last line, or, while a log is followed, a last line that is not complete or looks like such a message.
pub(super) fn certain_bytes(bytes: &[u8], follows: bool) -> usize {
    let (before, line) = split_last_line(bytes);
    let certain = if follows && bytes.ends_with(b"\n") {
        let message = COMPLAINTS.iter().filter_map(|phrase| find(line, phrase)).min();
        message.map_or(bytes.len(), |at| before + at)
    } else {
        before
    };
    certain.max(bytes.len().saturating_sub(MESSAGE_BYTES_MAX))
}

/// Number of bytes at the end that are the CLI's message about a daemon that died.
pub(super) fn cli_death_message_len(bytes: &[u8]) -> u64 {
    let (before, line) = split_last_line(bytes);
    let Some(phrase) = find_last(line, DIED) else { return 0 };
    // The logger of the CLI puts time and level before the message.
    let begin = find_last(&line[..phrase], LOGGED).unwrap_or(phrase);
    (bytes.len() - before - begin) as u64
}

/// Offset of the last line, and that line without its end.
fn split_last_line(bytes: &[u8]) -> (usize, &[u8]) {
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let before = text.iter().rposition(|it| *it == b'\n').map_or(0, |at| at + 1);
    (before, &text[before..])
}

fn find(bytes: &[u8], phrase: &str) -> Option<usize> {
    bytes.windows(phrase.len()).position(|it| it == phrase.as_bytes())
}

fn find_last(bytes: &[u8], phrase: &str) -> Option<usize> {
    bytes.windows(phrase.len()).rposition(|it| it == phrase.as_bytes())
}

/// The longest message of the CLI; of a longer line only this much is held.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Messages of the CLI about a log that it could not read.
const COMPLAINTS: [&str; 6] = [
    "unexpected EOF",
    "error from daemon in stream",
    "Error response from daemon",
    "Error: No such container",
    "error during connect",
    "Cannot connect to the Docker daemon",
];

/// The message of `docker run` if the daemon dies: `time="…" level=error msg="error waiting for container: unexpected EOF"`.
const DIED: &str = "error waiting for container";
const LOGGED: &str = "time=\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_may_be_the_clis_are_held_back() {
        let long = "x".repeat(2 * MESSAGE_BYTES_MAX);
        for (bytes, followed, read) in [
            ("one\ntwo\n", "one\ntwo\n", "one\n"),
            ("one\nunexpected EOF\n", "one\n", "one\n"),
            ("no line endunexpected EOF\n", "no line end", ""),
            (
                "one\nunexpected EOF\nof the program\n",
                "one\nunexpected EOF\nof the program\n",
                "one\nunexpected EOF\n",
            ),
            ("one\nError respo", "one\n", "one\n"),
            ("error from daemon in stream: Error grabbing logs: unexpected EOF\n", "", ""),
            (&long, &long[MESSAGE_BYTES_MAX..], &long[MESSAGE_BYTES_MAX..]),
            ("", "", ""),
        ] {
            assert_eq!(&bytes[..certain_bytes(bytes.as_bytes(), true)], followed, "{bytes:?}");
            assert_eq!(&bytes[..certain_bytes(bytes.as_bytes(), false)], read, "{bytes:?}");
        }
    }

    #[test]
    fn only_the_cli_message_of_the_last_line_is_cut() {
        let said =
            &b"time=\"2026-01-01T00:00:00Z\" level=error msg=\"error waiting for container: unexpected EOF\"\n"[..];
        let bare = &b"error waiting for container: unexpected EOF\n"[..];
        for programs in [&b""[..], b"one\n", b"one\ntwo", b"\xff\xfe\xff", b"\xff\n\xff", b"time=\"12\"\n"] {
            for said in [said, bare] {
                let all = [programs, said].concat();
                assert_eq!(cli_death_message_len(&all), said.len() as u64, "{all:?}");
            }
            assert_eq!(cli_death_message_len(programs), 0, "{programs:?}");
        }
        assert_eq!(
            cli_death_message_len(&[b"time=\"12\" ", said].concat()),
            said.len() as u64,
            "it logs alike"
        );
        assert_eq!(cli_death_message_len(&[said, b"the program goes on\n"].concat()), 0);
    }
}
