//! The settings of e-mail: the mail server, the sender, and a user with a password.

use std::path::PathBuf;

use reqwest::Url;

use super::SettingsError;
use super::private_file;
use crate::notifications::mail::server::{Encryption, Login, MailServer, Sender};

/// The settings of e-mail as written on the command line. Without `server` there is no e-mail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MailSettings {
    /// The URL of the mail server.
    pub server: Option<String>,
    /// The sender: an address, or a name with an address in angle brackets.
    pub from: Option<String>,
    /// The user at the mail server.
    pub user: Option<String>,
    /// The file with the password of the user.
    pub password_file: Option<PathBuf>,
}

impl MailSettings {
    /// Parses the settings, and reads the password.
    pub(super) fn check(self) -> Result<Option<MailServer>, SettingsError> {
        let Some(url) = self.server else {
            let stray = [(self.from.is_some(), FROM), (self.user.is_some(), USER)];
            let password = (self.password_file.is_some(), PASSWORD_FILE);
            let given = stray.into_iter().chain([password]).find(|(is_given, _)| *is_given);
            return given.map_or(Ok(None), |(_, flag)| {
                Err(SettingsError::HalfOfMail { given: flag.name, missing: SMTP.name })
            });
        };
        let (encryption, host, port) = parse_url(url.trim())?;
        let from = self.from.ok_or(SettingsError::HalfOfMail { given: SMTP.name, missing: FROM.name })?;
        let sender = Sender::parse(from.trim()).ok_or_else(|| {
            FROM.wrong(format!("{from:?} is not an address such as longshore@example.org, or 'Longshore <longshore@example.org>'"))
        })?;
        let login = match (self.user, self.password_file) {
            (Some(user), Some(file)) => {
                let password = private_file::read(&file, "password file")?;
                let password =
                    String::from_utf8(password).ok().filter(|text| !text.contains(char::is_control));
                let text = || format!("{} must hold one line of text", file.display());
                Some(Login::new(user, password.ok_or_else(|| PASSWORD_FILE.wrong(text()))?))
            }
            (None, None) => None,
            (Some(_), None) => {
                return Err(SettingsError::HalfOfMail { given: USER.name, missing: PASSWORD_FILE.name });
            }
            (None, Some(_)) => {
                return Err(SettingsError::HalfOfMail { given: PASSWORD_FILE.name, missing: USER.name });
            }
        };
        if login.is_some() && encryption == Encryption::None && !is_loopback(&host) {
            return Err(SMTP.wrong(
                "smtp+plain:// would show the password to the network; use smtp:// or smtps://".to_owned(),
            ));
        }
        Ok(Some(MailServer { encryption, host, port, sender, login }))
    }
}

/// The URL says how the connection is encrypted. It never holds a password: command lines are shown by `ps`.
fn parse_url(text: &str) -> Result<(Encryption, String, u16), SettingsError> {
    let url = Url::parse(text).ok();
    if url.as_ref().is_some_and(|url| !url.username().is_empty() || url.password().is_some()) {
        // The text is not shown: it may hold a password.
        let text = "a URL with a user or password is not supported; use --smtp-user and --smtp-password-file";
        return Err(SMTP.wrong(text.to_owned()));
    }
    let parts = url.as_ref().and_then(|url| {
        let encryption = Encryption::ALL.into_iter().find(|known| known.scheme() == url.scheme())?;
        let is_bare = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
        let host = url.host_str().filter(|host| is_bare && !host.is_empty())?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Some((encryption, host, url.port().unwrap_or(encryption.port())))
    });
    parts.ok_or_else(|| {
        SMTP.wrong(format!(
            "{text:?} is not a URL such as smtp://mail.example.org (STARTTLS), smtps://mail.example.org (TLS), or smtp+plain://localhost (no encryption)"
        ))
    })
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// A flag with its variable.
#[derive(Clone, Copy)]
struct Flag {
    name: &'static str,
    flag: &'static str,
    variable: &'static str,
}

impl Flag {
    const fn wrong(self, reason: String) -> SettingsError {
        SettingsError::Value { flag: self.flag, variable: self.variable, reason }
    }
}

const SMTP: Flag = Flag { name: "--smtp (LONGSHORE_SMTP)", flag: "--smtp", variable: "LONGSHORE_SMTP" };
const FROM: Flag =
    Flag { name: "--smtp-from (LONGSHORE_SMTP_FROM)", flag: "--smtp-from", variable: "LONGSHORE_SMTP_FROM" };
const USER: Flag =
    Flag { name: "--smtp-user (LONGSHORE_SMTP_USER)", flag: "--smtp-user", variable: "LONGSHORE_SMTP_USER" };
const PASSWORD_FILE: Flag = Flag {
    name: "--smtp-password-file (LONGSHORE_SMTP_PASSWORD_FILE)",
    flag: "--smtp-password-file",
    variable: "LONGSHORE_SMTP_PASSWORD_FILE",
};

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn settings(server: &str) -> MailSettings {
        let from = Some("Longshore <longshore@example.org>".to_owned());
        MailSettings { server: Some(server.to_owned()), from, ..MailSettings::default() }
    }

    fn refusal(settings: MailSettings) -> String {
        settings.check().expect_err("the settings are wrong").to_string()
    }

    fn with_password(server: &str, content: &str, mode: u32) -> Result<Option<MailServer>, SettingsError> {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("password");
        fs::write(&file, content).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("mode set");
        MailSettings { user: Some("jobs".to_owned()), password_file: Some(file), ..settings(server) }.check()
    }

    #[test]
    fn the_scheme_of_the_url_chooses_encryption_and_port() {
        for (url, encryption, host, port) in [
            ("smtp://mail.example.org", Encryption::StartTls, "mail.example.org", 587),
            ("smtps://mail.example.org/", Encryption::Tls, "mail.example.org", 465),
            ("smtp+plain://localhost", Encryption::None, "localhost", 25),
            ("smtp+plain://[::1]:2525", Encryption::None, "::1", 2525),
        ] {
            let server = settings(url).check().expect(url).expect(url);
            assert_eq!((server.encryption, server.host.as_str(), server.port), (encryption, host, port));
        }
        for url in [
            "mail.example.org",
            "smtp://",
            "http://mail.example.org",
            "smtp://a.example/x",
            "smtp:a",
            "smtp://a?tls=off",
        ] {
            let text = refusal(settings(url));
            assert!(
                text.starts_with("--smtp (LONGSHORE_SMTP): ") && text.contains("such as smtp://"),
                "{url}: {text}"
            );
        }
    }

    #[test]
    fn a_password_comes_from_a_private_file_and_is_shown_nowhere() {
        let text = refusal(settings("smtp://me:planted@mail.example.org"));
        assert!(text.contains("--smtp-password-file") && !text.contains("planted"), "{text}");
        let server =
            with_password("smtp://mail.example.org", "planted word\n", 0o600).expect("good").expect("good");
        assert!(server.login.is_some() && !format!("{server:?}").contains("planted"));
        let text =
            with_password("smtp://mail.example.org", "planted", 0o644).expect_err("exposed").to_string();
        assert!(text.contains("the password file /") && text.contains("run: chmod 600"), "{text}");
        let text = with_password("smtp://mail.example.org", "planted\nplanted", 0o600)
            .expect_err("lines")
            .to_string();
        assert!(text.contains("one line of text") && !text.contains("planted"), "{text}");
    }

    #[test]
    fn a_password_is_not_sent_without_encryption_beyond_loopback() {
        assert!(with_password("smtp+plain://127.0.0.1:2525", "planted", 0o600).is_ok());
        let text =
            with_password("smtp+plain://mail.example.org", "planted", 0o600).expect_err("plain").to_string();
        assert!(text.contains("would show the password to the network"), "{text}");
    }

    #[test]
    fn a_half_of_the_settings_names_the_other() {
        let text = refusal(MailSettings { from: None, ..settings("smtp://mail.example.org") });
        assert!(text.starts_with("--smtp (LONGSHORE_SMTP) is given and --smtp-from"), "{text}");
        let text = refusal(MailSettings { server: None, ..settings("") });
        assert!(
            text.starts_with("--smtp-from (LONGSHORE_SMTP_FROM) is given and --smtp (LONGSHORE_SMTP)"),
            "{text}"
        );
        let text =
            refusal(MailSettings { user: Some("me".to_owned()), ..settings("smtp://mail.example.org") });
        assert!(text.contains("and --smtp-password-file (LONGSHORE_SMTP_PASSWORD_FILE) is not"), "{text}");
        let from = Some("nobody\nBcc: everybody@example.org".to_owned());
        let text = refusal(MailSettings { from, ..settings("smtp://mail.example.org") });
        assert!(text.starts_with("--smtp-from (LONGSHORE_SMTP_FROM): "), "{text}");
    }
}
