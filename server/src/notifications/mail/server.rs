//! The mail server of `--smtp`: its address, encryption, user, and the sender of all mails.

use std::fmt;

use lettre::message::Mailbox;
use lettre::transport::smtp::authentication::Credentials;

/// The encryption of the connection to the mail server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// TLS after the command STARTTLS. A mail server that does not offer it gets no mail.
    StartTls,
    /// TLS from the first byte.
    Tls,
    /// No encryption, for a mail server on this machine or in a trusted network.
    None,
}

impl Encryption {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::StartTls, Self::Tls, Self::None];

    /// The scheme of URLs with it.
    #[must_use]
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::StartTls => "smtp",
            Self::Tls => "smtps",
            Self::None => "smtp+plain",
        }
    }

    /// The port of URLs that name none.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Self::StartTls => 587,
            Self::Tls => 465,
            Self::None => 25,
        }
    }
}

/// The sender of mails: an address, perhaps with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender(pub(super) Mailbox);

impl Sender {
    /// Reads `longshore@example.org` or `Longshore <longshore@example.org>`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = text.len() <= SENDER_BYTES_MAX && !text.contains(char::is_control);
        let mailbox: Mailbox = text.parse().ok().filter(|_| fits)?;
        mailbox.email.to_string().is_ascii().then_some(Self(mailbox))
    }

    /// The domain of its address.
    pub(super) fn domain(&self) -> &str {
        self.0.email.domain()
    }
}

/// A user at the mail server.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    user: String,
    password: String,
}

impl Login {
    /// A user with a password, which is never printed.
    #[must_use]
    pub const fn new(user: String, password: String) -> Self {
        Self { user, password }
    }

    pub(super) fn user(&self) -> &str {
        &self.user
    }

    pub(super) fn credentials(&self) -> Credentials {
        Credentials::new(self.user.clone(), self.password.clone())
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// A mail server, and how mails are handed to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailServer {
    /// The encryption of the connection.
    pub encryption: Encryption,
    /// Its name or address; an IPv6 address has no brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The sender of all mails.
    pub sender: Sender,
    /// The user, if the mail server wants one.
    pub login: Option<Login>,
}

impl fmt::Display for MailServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brackets = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{}{}{}:{}", brackets.0, self.host, brackets.1, self.port)
    }
}

/// A name and an address.
const SENDER_BYTES_MAX: usize = 500;
