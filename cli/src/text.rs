//! A container's output as text. It comes in parts, and a part may end within a character.
//!
//! What a part has begun of a character, at most three bytes, waits for its rest. Each stream has a text of its own, since parts of the
//! other may come in between.

use crate::screen::Stream;

/// The text of one stream.
#[derive(Debug, Default)]
pub(crate) struct Text {
    begun: Vec<u8>,
}

impl Text {
    /// The characters that are complete with these bytes. What is no text is U+FFFD.
    pub(crate) fn go_on(&mut self, bytes: &[u8]) -> String {
        self.begun.extend_from_slice(bytes);
        let whole = self.begun.len() - begun(&self.begun);
        let text = String::from_utf8_lossy(&self.begun[..whole]).into_owned();
        self.begun.drain(..whole);
        text
    }

    /// What was begun, when its rest will not come.
    pub(crate) fn break_off(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.begun)).into_owned()
    }
}

/// The texts of both streams.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    stdout: Text,
    stderr: Text,
}

impl Texts {
    /// The text of a stream.
    pub(crate) const fn of(&mut self, stream: Stream) -> &mut Text {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

/// How many bytes at the end begin a character that may still be completed.
fn begun(bytes: &[u8]) -> usize {
    let Some(last) = bytes.utf8_chunks().last() else { return 0 };
    match std::str::from_utf8(last.invalid()) {
        Err(error) if error.error_len().is_none() => last.invalid().len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_comes_in_parts_is_whole() {
        for whole in ["€", "🚢", "aä"] {
            let mut text = Text::default();
            let shown: String = whole.bytes().map(|byte| text.go_on(&[byte])).collect();
            assert_eq!((shown.as_str(), text.break_off().as_str()), (whole, ""));
        }
    }

    #[test]
    fn what_is_no_text_is_not_waited_for() {
        let mut text = Text::default();
        assert_eq!(text.go_on(b"\xffa\xac"), "\u{fffd}a\u{fffd}");
        assert_eq!(text.go_on(b"\xe2"), "");
        assert_eq!(text.go_on(b"b\xe2\x82"), "\u{fffd}b");
        assert_eq!((text.break_off().as_str(), text.break_off().as_str()), ("\u{fffd}", ""));
    }
}
