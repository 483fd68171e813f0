//! Errors of the SMTP client.

use std::error::Error;
use std::time::Duration;

use lettre::transport::smtp;

/// The time for one try, from the name's resolution to the answer. Mail servers delay their greeting on purpose, by seconds.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of an error that are kept.
const ERROR_BYTES_MAX: usize = 500;

/// The mail server did not take a mail.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// The server has no mail server any more; jobs.yaml is refused in this case.
    #[error("this server sends no e-mail; start it with --smtp and --smtp-from")]
    NoServer,
    /// The mail cannot be written.
    #[error("the mail cannot be written: {0}")]
    Compose(#[source] lettre::error::Error),
    /// No conversation comes about.
    #[error("mail server {server}: {}", one_line(.cause.as_ref()))]
    Connection {
        /// The mail server.
        server: String,
        /// The error of the network or of TLS.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
    /// The mail server did not answer in time.
    #[error("mail server {server} did not answer within {} s", TIMEOUT.as_secs())]
    Timeout {
        /// The mail server.
        server: String,
    },
    /// The mail server offers no encryption.
    #[error(
        "mail server {0} offers no STARTTLS; smtps:// has TLS from the first byte, smtp+plain:// has none"
    )]
    NoStartTls(String),
    /// The mail server did not accept user and password. Its text is not shown: it could repeat them.
    #[error("mail server {server} refused user and password of {user:?}{}", code(.cause))]
    Login {
        /// The mail server.
        server: String,
        /// The user.
        user: String,
        /// The answer.
        cause: smtp::Error,
    },
    /// The mail server refused to take the mail now, or from this sender.
    #[error("mail server {server} refused the mail{}: {}", code(.cause), answer(.cause))]
    Refused {
        /// The mail server.
        server: String,
        /// The answer.
        cause: smtp::Error,
    },
    /// The mail server refused this recipient or this text for good.
    #[error("mail server {server} refused the mail for good{}: {}", code(.cause), answer(.cause))]
    Rejected {
        /// The mail server.
        server: String,
        /// The answer.
        cause: smtp::Error,
    },
}

impl MailError {
    /// True if another try has the same result.
    #[must_use]
    pub const fn is_permanent(&self) -> bool {
        matches!(self, Self::Rejected { .. } | Self::Compose(_))
    }
}

fn code(cause: &smtp::Error) -> String {
    cause.status().map(|code| format!(" ({code})")).unwrap_or_default()
}

/// The text of the mail server in one line.
fn answer(cause: &smtp::Error) -> String {
    cause.source().map_or_else(String::new, |text| visible(&text.to_string()))
}

/// An error with its causes in one line. The library's texts already hold those of their causes.
fn one_line(error: &(dyn Error + 'static)) -> String {
    visible(&error.to_string())
}

fn visible(text: &str) -> String {
    let mut text: String = text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
    text
}
