//! The text of a mail. Names and reasons come from workers and users, so every header is made of one line of visible text.

use std::time::{Duration, UNIX_EPOCH};

use lettre::message::header::{ContentType, Header, HeaderName, HeaderValue};
use protocol::Timestamp;

use super::Recipient;
use super::error::MailError;
use super::server::Sender;
use crate::notifications::details;
use crate::notifications::message::Message;

/// A mail that is ready to be sent.
#[derive(Debug)]
pub struct Mail {
    /// The mailbox that gets it.
    pub(super) recipient: Recipient,
    /// Headers and text, in ASCII.
    pub(super) bytes: Vec<u8>,
}

impl Mail {
    /// Writes the mail about a message. Its `Message-ID` follows from `id`, so tries after a lost answer are recognized as the same mail.
    ///
    /// # Errors
    /// The library refuses a header.
    pub fn compose(
        message: &Message<'_>,
        recipient: &Recipient,
        sender: &Sender,
        id: &str,
        now: Timestamp,
    ) -> Result<Self, MailError> {
        let subject: String = one_line(&format!("[longshore] {}", message.text()));
        let date = UNIX_EPOCH + Duration::from_millis(now.0.try_into().unwrap_or(0));
        let mail = lettre::Message::builder()
            .from(sender.0.clone())
            .to(recipient.address().clone().into())
            .subject(subject)
            .date(date)
            .message_id(Some(format!("<{id}@{}>", sender.domain())))
            .header(AutoSubmitted)
            .header(ContentType::TEXT_PLAIN)
            .body(text(message))
            .map_err(MailError::Compose)?;
        Ok(Self { recipient: recipient.clone(), bytes: mail.formatted() })
    }
}

/// The text for a person: the fact in one line, the details, and the link.
fn text(message: &Message<'_>) -> String {
    let mut lines = vec![one_line(&message.text()), String::new()];
    let facts = details::list(message);
    lines.extend(facts.into_iter().map(|(name, value)| format!("{name:<12}{}", one_line(&value))));
    if let Some(url) = message.url() {
        lines.extend([String::new(), url]);
    }
    if let Some(tail) = &message.output_tail {
        lines.extend([String::new(), "The last lines of its output:".to_owned(), String::new()]);
        // Indented, so that no line of it looks like the end of the mail.
        lines.extend(tail.lines().map(|line| format!("    {line}")));
    }
    lines.extend([String::new(), "-- ".to_owned(), FOOTER.to_owned(), String::new()]);
    lines.join("\r\n")
}

const FOOTER: &str = "Sent by Longshore, because the key notify of this definition names your address.";

/// Text without control characters, and short enough for a line.
fn one_line(text: &str) -> String {
    let text: String = text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    match text.char_indices().nth(LINE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Longer subjects are cut by mail programs, and nobody reads longer reasons.
const LINE_CHARS_MAX: usize = 300;

/// `Auto-Submitted: auto-generated` (RFC 3834): no out-of-office answers come back.
#[derive(Clone)]
struct AutoSubmitted;

impl Header for AutoSubmitted {
    fn name() -> HeaderName {
        HeaderName::new_from_ascii_str("Auto-Submitted")
    }

    fn parse(_: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Self)
    }

    fn display(&self) -> HeaderValue {
        HeaderValue::new(Self::name(), "auto-generated".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use protocol::JobId;

    use super::*;
    use crate::notifications::occasion::Occasion;
    use crate::notifications::target_key::{TargetKey, TargetKind};
    use crate::store::{NotificationId, NotificationRow, NotificationState};

    fn row(count: u64) -> NotificationRow {
        NotificationRow {
            id: NotificationId(1),
            message: "ab12".to_owned(),
            definition: "report".into(),
            target: TargetKey("key".to_owned()),
            kind: TargetKind::Email,
            host: "ops@example.org".to_owned(),
            occasion: Occasion::Failed,
            count,
            first_at: Timestamp(1_700_000_000_000),
            last_at: Timestamp(1_700_000_000_000),
            job: Some(JobId(12)),
            batch: None,
            state: NotificationState::Waiting,
            opens_at: Timestamp(0),
            due_at: Timestamp(0),
            tries: 0,
            tried_at: None,
            give_up_at: None,
            error: None,
        }
    }

    fn compose(row: &NotificationRow, reason: &str) -> String {
        let reason = Some(reason.to_owned());
        let message = Message {
            row,
            definition: Default::default(),
            job: None,
            batch: None,
            reason,
            output_tail: Some("--\nunable to open /data".to_owned()),
            public_url: Some("https://jobs.example"),
            is_test: false,
        };
        let recipient = Recipient::parse("ops@example.org").expect("an address");
        let sender = Sender::parse("Longshore <longshore@example.org>").expect("a sender");
        let mail = Mail::compose(&message, &recipient, &sender, "msg_ab12", Timestamp(1_700_000_000_000));
        let mail = mail.expect("a mail");
        assert!(mail.bytes.is_ascii(), "mail servers need no extension for it");
        String::from_utf8(mail.bytes).expect("text")
    }

    #[test]
    fn a_mail_names_the_fact_and_leads_to_the_job() {
        let mail = compose(&row(1), "exit 3");
        for line in [
            "Subject: [longshore] report failed: exit 3 (job 12)\r\n",
            "To: ops@example.org\r\n",
            "From: Longshore <longshore@example.org>\r\n",
            "Message-ID: <msg_ab12@example.org>\r\n",
            "Date: Tue, 14 Nov 2023 22:13:20 +0000\r\n",
            "Auto-Submitted: auto-generated\r\n",
            "\r\n\r\nreport failed: exit 3 (job 12)\r\n",
            "\r\nhttps://jobs.example/jobs/12\r\n\r\nThe last lines of its output:\r\n\r\n    --\r\n    unable to open /data\r\n\r\n--",
        ] {
            assert!(mail.contains(line), "{line:?} in {mail}");
        }
        let mail = compose(&row(4), "exit 3");
        assert!(mail.contains("count       4 since 2023-11-14T22:13:20.000Z"), "{mail}");
    }

    #[test]
    fn a_reason_adds_no_header_and_no_line_to_the_conversation() {
        let mail = compose(&row(1), "no\r\nBcc: all@example.org\r\n.\r\nQUIT\u{85}\u{2028}ä\n\n");
        let (headers, body) = mail.split_once("\r\n\r\n").expect("headers and a body");
        assert!(headers.lines().all(|line| !line.to_ascii_lowercase().starts_with("bcc")), "{headers}");
        assert!(
            !body.contains("\r\nBcc") && !body.contains("\r\n.\r\n") && !body.contains("\r\nQUIT"),
            "{body}"
        );
        let long = compose(&row(1), &"x".repeat(100_000));
        assert!(long.len() < 4_000, "{} bytes", long.len());
        assert!(long.lines().all(|line| line.len() <= 998), "lines of RFC 5322");
    }
}
