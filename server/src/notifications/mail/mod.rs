//! Notifications by e-mail: the settings of the mail server, the text of a mail, and the SMTP client.
//!
//! Each recipient is a target of its own, with its own mail, tries and errors. The operator of the server names the mail server, so its
//! address is not checked as that of a webhook is.

pub mod client;
pub mod compose;
pub mod error;
pub mod server;

use lettre::Address;

/// The address of a recipient: one mailbox in ASCII, without a name and without quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient(Address);

impl Recipient {
    /// Reads an address such as `ops@example.org`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = |byte: u8| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+' | b'@' | b'=' | b'/')
        };
        let fits = text.len() <= ADDRESS_BYTES_MAX && text.bytes().all(is_plain);
        let address: Address = text.parse().ok().filter(|_| fits)?;
        Some(Self(address))
    }

    /// The address as text. Two spellings of a domain are the same address.
    #[must_use]
    pub fn normal_form(&self) -> String {
        format!("{}@{}", self.0.user(), self.0.domain().to_ascii_lowercase())
    }

    /// The address itself.
    pub(super) const fn address(&self) -> &Address {
        &self.0
    }
}

/// The longest address that SMTP carries.
const ADDRESS_BYTES_MAX: usize = 254;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_plain_mailbox() {
        for good in ["ops@example.org", "a.b+jobs@mail.example.org", "root@localhost"] {
            assert_eq!(Recipient::parse(good).expect(good).normal_form(), good);
        }
        assert_eq!(Recipient::parse("Ops@Example.ORG").expect("an address").normal_form(), "Ops@example.org");
        let long = format!("{}@example.org", "a".repeat(300));
        for wrong in [
            "",
            "ops",
            "@example.org",
            "ops@",
            "ops@example.org, dev@example.org",
            "Ops <ops@example.org>",
            "\"a b\"@example.org",
            "ops@example.org\r\nBcc: all@example.org",
            "ops@exämple.org",
            "a@b@example.org",
            long.as_str(),
        ] {
            assert!(Recipient::parse(wrong).is_none(), "{wrong}");
        }
    }
}
