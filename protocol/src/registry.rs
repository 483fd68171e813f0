//! The registry of an image, and the login for it that comes with an attempt.
//!
//! The login serves the pull only: it is no secret of the job, which never sees it, so nothing of it is masked in the output.

use alloc::format;
use alloc::string::String;

use bincode::{Decode, Encode};

use crate::secret::value::SecretValue;

/// The login for the registry of an attempt's image.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct RegistryLogin {
    /// The registry as the image names it: `host` or `host:port`; `docker.io` for images without one.
    pub host: String,
    /// The name of the user; without a colon.
    pub username: String,
    /// The password or token: text in one line.
    pub password: SecretValue,
}

impl RegistryLogin {
    /// Checks that Docker understands the login.
    ///
    /// # Errors
    /// The first fault, without a part of the password.
    pub fn check(&self) -> Result<(), String> {
        if !is_registry_host(&self.host) {
            return Err(format!("{:?} is no registry such as registry.example:5000", self.host));
        }
        // The password begins after the first colon.
        let username = &self.username;
        if username.is_empty()
            || username.len() > USERNAME_BYTES_MAX
            || username.contains(is_forbidden_in_name)
        {
            return Err(format!(
                "the user name has 1 to {USERNAME_BYTES_MAX} characters without colons and control characters"
            ));
        }
        let text = core::str::from_utf8(&self.password.0);
        let fits = |text: &str| {
            !text.is_empty() && text.len() <= PASSWORD_BYTES_MAX && !text.contains(char::is_control)
        };
        if !text.is_ok_and(fits) {
            return Err(format!("the password is text in one line with 1 to {PASSWORD_BYTES_MAX} bytes"));
        }
        Ok(())
    }
}

fn is_forbidden_in_name(letter: char) -> bool {
    letter == ':' || letter.is_control()
}

/// The registry and the repository of an image, as Docker reads a name: `busybox:1` is `library/busybox` of `docker.io`.
///
/// The first part of a name is a registry if it has a dot or a colon, or is `localhost`.
#[must_use]
pub fn registry_of(image: &str) -> (&str, String) {
    let (host, path) = match image.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
        _ => (DOCKER_HUB, image),
    };
    let host = if host == "index.docker.io" { DOCKER_HUB } else { host };
    let path = path.split(['@', ':']).next().unwrap_or_default();
    let is_official = host == DOCKER_HUB && !path.contains('/');
    (host, if is_official { format!("library/{path}") } else { path.into() })
}

/// `true` for a host name or address in lower case, with or without a port.
#[must_use]
pub fn is_registry_host(host: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:[]".contains(&byte);
    !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.bytes().all(is_plain)
}

/// The registry of images without one in their name.
pub const DOCKER_HUB: &str = "docker.io";

/// The largest password in bytes. Tokens of cloud registries have up to 4 KiB.
pub const PASSWORD_BYTES_MAX: usize = 16 << 10;

/// The longest user name in bytes. Registries use names, addresses of mail, and words such as `oauth2accesstoken`.
const USERNAME_BYTES_MAX: usize = 256;

/// The longest host name of DNS is shorter.
const HOST_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_split_as_docker_does_it() {
        for (image, host, path) in [
            ("busybox", "docker.io", "library/busybox"),
            ("busybox:1.36", "docker.io", "library/busybox"),
            ("acme/app", "docker.io", "acme/app"),
            ("docker.io/busybox", "docker.io", "library/busybox"),
            ("index.docker.io/acme/app:1", "docker.io", "acme/app"),
            ("localhost/app", "localhost", "app"),
            ("127.0.0.1:5000/team/app:2", "127.0.0.1:5000", "team/app"),
            ("registry.example/team/app@sha256:00ff", "registry.example", "team/app"),
            ("registry.example:443/app:1@sha256:00ff", "registry.example:443", "app"),
            ("", "docker.io", "library/"),
        ] {
            assert_eq!(registry_of(image), (host, path.into()), "{image}");
        }
    }

    #[test]
    fn a_login_that_docker_would_misread_is_refused_without_its_password() {
        let login = |host: &str, username: &str, password: &str| RegistryLogin {
            host: host.into(),
            username: username.into(),
            password: SecretValue(password.into()),
        };
        assert_eq!(login("registry.example:5000", "robot$ci", "hunter2").check(), Ok(()));
        for wrong in [
            login("https://registry.example", "robot", "hunter2"),
            login("Registry.example", "robot", "hunter2"),
            login("registry.example", "ro:bot", "hunter2"),
            login("registry.example", "", "hunter2"),
            login("registry.example", "robot", ""),
            login("registry.example", "robot", "hunter2\nhunter2"),
            login("registry.example", "robot", &"hunter2".repeat(4000)),
        ] {
            let why = wrong.check().unwrap_err();
            assert!(!why.contains("hunter"), "{why}");
            assert!(!format!("{wrong:?}").contains("hunter"));
        }
    }
}
