//! The CLI's own words among a program's. Both come on the same standard error, so only how they sound tells them apart. Pure.
//!
//! Bytes are counted, never characters: what a program writes need not be text, and the CLI begins in the middle of its last line if that
//! has no end yet.

/// Where the last line of this begins to sound like the CLI's own complaint; its length if it does not.
pub(super) fn before_complaint(bytes: &[u8]) -> usize {
    let (before, line) = split_last_line(bytes);
    let begin = COMPLAINTS.iter().filter_map(|phrase| find(line, phrase)).min();
    begin.map_or(bytes.len(), |at| before + at)
}

/// How many of these bytes, the last of what was written to standard error, the CLI has said when the daemon died under it.
pub(super) fn last_words(bytes: &[u8]) -> u64 {
    let (before, line) = split_last_line(bytes);
    let Some(phrase) = find_last(line, DIED) else { return 0 };
    // Its logger puts the time and the level before the message.
    let begin = find_last(&line[..phrase], LOGGED).unwrap_or(phrase);
    (bytes.len() - before - begin) as u64
}

/// How much comes before the last line, and that line without its end.
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

/// How the CLI begins to say that it could not read all of a log.
const COMPLAINTS: [&str; 6] = [
    "unexpected EOF",
    "error from daemon in stream",
    "Error response from daemon",
    "Error: No such container",
    "error during connect",
    "Cannot connect to the Docker daemon",
];

/// What `docker run` says when the daemon dies under it: `time="…" level=error msg="error waiting for container: unexpected EOF"`.
const DIED: &str = "error waiting for container";
const LOGGED: &str = "time=\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sounds_like_the_cli_is_held_back_and_nothing_before_it() {
        for (bytes, before) in [
            ("one\ntwo\n", "one\ntwo\n"),
            ("one\nunexpected EOF\n", "one\n"),
            ("no line endunexpected EOF\n", "no line end"),
            ("one\nunexpected EOF\nof the program\n", "one\nunexpected EOF\nof the program\n"),
            ("error from daemon in stream: Error grabbing logs: unexpected EOF\n", ""),
            ("", ""),
        ] {
            assert_eq!(&bytes[..before_complaint(bytes.as_bytes())], before, "{bytes:?}");
        }
    }

    #[test]
    fn of_the_last_line_only_what_the_cli_said_is_not_the_programs() {
        let said =
            &b"time=\"2026-01-01T00:00:00Z\" level=error msg=\"error waiting for container: unexpected EOF\"\n"[..];
        let bare = &b"error waiting for container: unexpected EOF\n"[..];
        for programs in [&b""[..], b"one\n", b"one\ntwo", b"\xff\xfe\xff", b"\xff\n\xff", b"time=\"12\"\n"] {
            for said in [said, bare] {
                let all = [programs, said].concat();
                assert_eq!(last_words(&all), said.len() as u64, "{all:?}");
            }
            assert_eq!(last_words(programs), 0, "{programs:?}");
        }
        assert_eq!(last_words(&[b"time=\"12\" ", said].concat()), said.len() as u64, "it logs alike");
        assert_eq!(last_words(&[said, b"the program goes on\n"].concat()), 0);
    }
}
