//! The reason in the answer to a refused upgrade: the code of a problem document, or the sentence of a server that does not speak the
//! protocol, such as `this port speaks TLS`.

use protocol::terminal::is_terminal_control;

/// Returns the text of a short plain-text body as one line without control characters. A longer body, or one of another type, has none.
#[must_use]
pub fn sentence_of_answer(content_type: Option<&[u8]>, body: &[u8]) -> Option<String> {
    let is_plain = content_type.is_some_and(|kind| kind.starts_with(b"text/plain"));
    if !is_plain || body.len() > BYTES_MAX {
        return None;
    }
    let words: String = String::from_utf8_lossy(body)
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| !is_terminal_control(*c))
        .collect();
    let sentence = words.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    Some(sentence).filter(|sentence| !sentence.is_empty())
}

/// Returns the code of a problem document (RFC 9457).
pub(crate) fn code_of_problem(content_type: Option<&[u8]>, body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Problem {
        code: String,
    }
    content_type.filter(|kind| kind.starts_with(b"application/problem+json"))?;
    serde_json::from_slice(body).ok().map(|Problem { code }| code)
}

/// Some lines of a terminal.
const BYTES_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_short_plain_text_is_a_sentence() {
        let of = |kind: &str, body: &[u8]| sentence_of_answer(Some(kind.as_bytes()), body);
        assert_eq!(
            of("text/plain; charset=utf-8", b"use\r\n\x1b[2Jhttps\n").as_deref(),
            Some("use [2Jhttps")
        );
        assert_eq!(of("text/plain", b" \n"), None);
        assert_eq!(of("text/plain", &[b'a'; BYTES_MAX + 1]), None);
        assert_eq!(of("text/html", b"<p>no"), None);
        assert_eq!(sentence_of_answer(None, b"no"), None);
    }
}
