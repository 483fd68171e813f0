//! Messages in the format of Discord's own webhooks: limited in length, without mentions, and with no text that formats itself.

use serde_json::json;

/// Characters that Discord takes in one message. They are counted in UTF-16, which never counts less than Discord does.
const CHARS_MAX: usize = 2_000;

/// The longest link that is added. A longer one would leave little room for the text.
const LINK_CHARS_MAX: usize = 1_000;

/// Characters of Discord's formatting, of links with another text, and of mentions.
const SPECIAL: &str = r"\*_~`|<>[]()#@";

/// The JSON of a message: its text, cut if it is too long, and the link behind it.
pub(super) fn body(text: &str, url: Option<&str>) -> String {
    // Angle brackets keep Discord from showing a preview of the page.
    let link = url.map(|url| format!("\n<{url}>")).unwrap_or_default();
    let link = if length(&link) > LINK_CHARS_MAX { String::new() } else { link };
    let content = format!("{}{link}", escaped(text, CHARS_MAX - length(&link)));
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

fn length(text: &str) -> usize {
    text.encode_utf16().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str, url: Option<&str>) -> String {
        let body: serde_json::Value = serde_json::from_str(&body(text, url)).unwrap();
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
