//! Incremental UTF-8 decoding of job output. The output arrives in chunks, and a chunk may end within a character.
//!
//! At most three bytes of an incomplete character wait for the next chunk of their stream.

/// The decoder of one stream.
#[derive(Debug, Default)]
pub(crate) struct Utf8Stream {
    begun: Vec<u8>,
}

impl Utf8Stream {
    /// Returns the characters that are complete with these bytes. Invalid bytes become U+FFFD.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> String {
        self.begun.extend_from_slice(bytes);
        let whole = self.begun.len() - begun(&self.begun);
        let text = String::from_utf8_lossy(&self.begun[..whole]).into_owned();
        self.begun.drain(..whole);
        text
    }

    /// Returns the incomplete character at the end as U+FFFD, because its remaining bytes will not come.
    pub(crate) fn flush(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.begun)).into_owned()
    }
}

/// The number of bytes at the end that may be the start of a character.
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
            let mut text = Utf8Stream::default();
            let shown: String = whole.bytes().map(|byte| text.decode(&[byte])).collect();
            assert_eq!((shown.as_str(), text.flush().as_str()), (whole, ""));
        }
    }

    #[test]
    fn what_is_no_text_is_not_waited_for() {
        let mut text = Utf8Stream::default();
        assert_eq!(text.decode(b"\xffa\xac"), "\u{fffd}a\u{fffd}");
        assert_eq!(text.decode(b"\xe2"), "");
        assert_eq!(text.decode(b"b\xe2\x82"), "\u{fffd}b");
        assert_eq!((text.flush().as_str(), text.flush().as_str()), ("\u{fffd}", ""));
    }
}
