//! Messages in the format of Discord's own webhooks: limited in length, without mentions, and with no text that formats itself.

use serde_json::json;

use super::message::code_block;

/// Characters that Discord takes in one message. They are counted in UTF-16, which never counts less than Discord does.
const CHARS_MAX: usize = 2_000;

/// The longest link that is added. A longer one would leave little room for the text.
const LINK_CHARS_MAX: usize = 1_000;

/// Characters of Discord's formatting, of links with another text, and of mentions.
const SPECIAL: &str = r"\*_~`|<>[]()#@";

/// The JSON of a message: its text, cut if it is too long, the link after it, and as many of the last lines of output as there is room for.
pub(super) fn body(text: &str, url: Option<&str>, output_tail: Option<&str>) -> String {
    // Angle brackets keep Discord from showing a preview of the page.
    let link = url.map(|url| format!("\n<{url}>")).unwrap_or_default();
    let link = if length(&link) > LINK_CHARS_MAX { String::new() } else { link };
    let text = escaped(text, CHARS_MAX - length(&link));
    let room = CHARS_MAX - length(&text) - length(&link);
    let output = output_tail.and_then(|tail| last_lines(tail, room)).unwrap_or_default();
    let content = format!("{text}{link}{output}");
    json!({ "content": content, "allowed_mentions": { "parse": [] } }).to_string()
}

/// The text with its special characters escaped, and an ellipsis if it has to be cut.
fn escaped(text: &str, chars_max: usize) -> String {
    let (mut escaped, mut chars) = (String::new(), 0);
    // The longest beginning that leaves room for an ellipsis.
    let mut fits = 0;
    for char in text.chars() {
        let is_special = SPECIAL.contains(char);
        chars += char.len_utf16() + usize::from(is_special);
        if chars > chars_max {
            escaped.truncate(fits);
            escaped.push('…');
            break;
        }
        escaped.extend(is_special.then_some('\\'));
        escaped.push(char);
        if chars < chars_max {
            fits = escaped.len();
        }
    }
    escaped
}

/// A block of the last whole lines that fit; `None` if not even one does.
fn last_lines(tail: &str, chars_max: usize) -> Option<String> {
    let starts = std::iter::once(0).chain(tail.match_indices('\n').map(|(at, _)| at + 1));
    let mut blocks = starts.map(|start| format!("\n{}", code_block(&tail[start..])));
    blocks.find(|block| length(block) <= chars_max)
}

fn length(text: &str) -> usize {
    text.encode_utf16().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str, url: Option<&str>) -> String {
        let body: serde_json::Value = serde_json::from_str(&body(text, url, None)).unwrap();
        assert_eq!(body["allowed_mentions"], json!({ "parse": [] }), "no reason may call a whole channel");
        body["content"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_message_has_the_text_and_the_link() {
        let url = Some("https://jobs.example/jobs/12");
        assert_eq!(
            content("report failed: exit 3", url),
            "report failed: exit 3\n<https://jobs.example/jobs/12>"
        );
        assert_eq!(content("report failed", None), "report failed");
    }

    #[test]
    fn formatting_and_mentions_are_shown_as_they_are_written() {
        assert_eq!(
            content(r"nightly_report: [here](https://evil.example) <@12> @everyone `a|b` \", None),
            r"nightly\_report: \[here\]\(https://evil.example\) \<\@12\> \@everyone \`a\|b\` \\"
        );
    }

    #[test]
    fn output_stands_in_a_block_with_as_many_of_its_last_lines_as_fit() {
        let content = |text: &str, tail: &str| {
            let body: serde_json::Value = serde_json::from_str(&body(text, None, Some(tail))).unwrap();
            body["content"].as_str().unwrap().to_owned()
        };
        assert_eq!(content("a_b", "*one*\n```two"), "a\\_b\n```\n*one*\n'''two\n```");
        let tail = format!("{}\n{}\nlast", "x".repeat(1_500), "y".repeat(1_000));
        assert_eq!(content("failed", &tail), format!("failed\n```\n{}\nlast\n```", "y".repeat(1_000)));
        assert_eq!(content("failed", &"x".repeat(2_000)), "failed");
        assert_eq!(length(&content(&"a".repeat(3_000), "last")), CHARS_MAX);
    }

    #[test]
    fn a_long_text_is_cut_and_keeps_its_link() {
        let url = Some("https://jobs.example/jobs/12");
        for text in ["_".repeat(3_000), "a".repeat(2_500), "🚢".repeat(2_500)] {
            let content = content(&text, url);
            assert!((1_998..=CHARS_MAX).contains(&length(&content)), "{}", length(&content));
            assert!(content.ends_with("…\n<https://jobs.example/jobs/12>"), "{content}");
            assert!(!content.contains(r"\…"), "no escape is cut in two");
        }
        let whole = "a".repeat(CHARS_MAX);
        assert_eq!(content(&whole, None), whole, "this one fits");
        let long = format!("https://jobs.example/{}", "a".repeat(LINK_CHARS_MAX));
        assert_eq!(content("report failed", Some(&long)), "report failed");
    }
}
