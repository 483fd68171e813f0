//! Secrets of one attempt on their way from the server to its worker.
//!
//! They are sent with the attempt and are part of no definition, so neither side stores them with anything else.

pub(crate) mod value;

use alloc::string::String;
use alloc::vec::Vec;

use bincode::{Decode, Encode};

use crate::registry::RegistryLogin;
pub use value::SecretValue;

/// The secrets that come with one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum AttemptSecrets {
    /// The values.
    Given(SecretValues),
    /// The server has not sent them, for this reason. The worker gives the attempt back.
    Withheld(String),
}

/// Values for one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct SecretValues {
    /// Variables, below those of the job and above those of the definition.
    pub variables: Vec<(String, SecretValue)>,
    /// Files by their name.
    pub files: Vec<(String, SecretValue)>,
    /// Further values that are masked in the output: those of secret parameters.
    pub masked: Vec<SecretValue>,
    /// The login for the registry of the image. It serves the pull only; the job never sees it, and it is not masked.
    pub registry: Option<RegistryLogin>,
}

impl SecretValues {
    /// All values that the job may show.
    pub fn all(&self) -> impl Iterator<Item = &SecretValue> {
        self.variables.iter().chain(&self.files).map(|(_, value)| value).chain(&self.masked)
    }

    /// There are no values that the job may show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }
}

/// `true` for 1 to 64 of `A-Z a-z 0-9 . _ -` that begin with a letter, a digit or `_`: a name that is a plain file name everywhere.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
        && name.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

const NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn a_value_is_never_printed() {
        let value = SecretValue(b"hunter2".to_vec());
        let secrets = SecretValues { files: [("a".into(), value)].into(), ..SecretValues::default() };
        assert!(!format!("{:?}", AttemptSecrets::Given(secrets)).contains("hunter"));
    }

    #[test]
    fn a_name_is_no_path() {
        assert!(is_secret_name("db_password") && is_secret_name("_x.y-1"));
        for name in ["", ".", "..", "..data", "a/b", "-x", "a b", "ü", &"n".repeat(65)] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
