//! Logins for private registries (`--registries FILE`): the server hands the login of an image's registry to the worker that pulls it.
//!
//! The file and the passwords that it names are read for each attempt, so that a login can be replaced without a restart. A file that
//! becomes faulty changes nothing: the entries of the last valid one stay, and the log has the fault. Passwords are kept nowhere.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use protocol::registry::{PASSWORD_BYTES_MAX, RegistryLogin, is_registry_host, registry_of};
use protocol::secret::{SecretValue, is_secret_name};
use serde::Deserialize;

use crate::file_version::FileVersion;
use crate::secrets::{self, SecretError, SecretsDir};

/// The registries of `--registries`.
#[derive(Debug)]
pub struct Registries {
    path: PathBuf,
    secrets: Option<Arc<SecretsDir>>,
    latest: Mutex<Latest>,
}

/// The latest valid content of the file, and the fault of its present content.
#[derive(Debug)]
struct Latest {
    entries: Arc<Entries>,
    fault: Option<String>,
}

/// The entries of a file by registry, or registry and beginning of the repository.
pub(crate) type Entries = BTreeMap<String, Entry>;

/// One login.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "EntryText")]
pub(crate) struct Entry {
    username: String,
    password: PasswordSource,
}

/// The place of a password.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PasswordSource {
    /// A secret of `--secrets-dir`.
    Secret(String),
    /// A file; a relative path begins at the directory of the registries' file.
    File(PathBuf),
}

/// The registries cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistriesError {
    /// The file cannot be read.
    #[error("cannot read the registries {}: {cause}", path.display())]
    Read {
        /// The path as given.
        path: PathBuf,
        /// The cause, which is part of the text.
        cause: io::Error,
    },
    /// The file does not list registries.
    #[error("the registries {} are not valid: {reason}", path.display())]
    Invalid {
        /// The path as given.
        path: PathBuf,
        /// The first fault, with its line and column.
        reason: String,
    },
}

/// The password of a login cannot be used. No text has a part of it.
#[derive(Debug, thiserror::Error)]
enum PasswordError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("cannot read {}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("{0}")]
    Unfit(String),
}

impl Registries {
    /// Reads the file. Blocks on the disk.
    ///
    /// # Errors
    /// It cannot be read, or is not valid: then the first fault.
    pub fn load(path: PathBuf, secrets: Option<Arc<SecretsDir>>) -> Result<Self, RegistriesError> {
        let latest = Latest { entries: Arc::new(read(&path)?), fault: None };
        Ok(Self { path, secrets, latest: Mutex::new(latest) })
    }

    /// Warnings about logins that cannot be used now, and about files that everybody can read. Blocks on the disk.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (registry, entry) in self.entries().iter() {
            if let Err(error) = self.login(registry, entry) {
                warnings.push(format!("jobs with images of {registry} wait, because {error}"));
            }
            if let PasswordSource::File(file) = &entry.password {
                let path = self.resolve(file);
                if std::fs::metadata(&path).is_ok_and(|found| found.mode() & 0o004 != 0) {
                    let path = path.display();
                    warnings.push(format!(
                        "every user may read {path}, the password of {registry}: chmod 600 {path}"
                    ));
                }
            }
        }
        warnings
    }

    /// The entries as the file has them now, or had them when it was valid last. Blocks on the disk.
    pub(crate) fn entries(&self) -> Arc<Entries> {
        let read = read(&self.path);
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(entries) => *latest = Latest { entries: Arc::new(entries), fault: None },
            Err(error) => {
                let fault = Some(error.to_string());
                // Each attempt reads the file: one line for each new fault is enough.
                if latest.fault != fault {
                    tracing::error!("{error}; the logins of its last valid content stay in use");
                    latest.fault = fault;
                }
            }
        }
        latest.entries.clone()
    }

    /// The login for this image; `None` if the file has none for its registry. Blocks on the disk.
    ///
    /// # Errors
    /// The reason why its password cannot be used, for people.
    pub(crate) fn login_for(&self, entries: &Entries, image: &str) -> Option<Result<RegistryLogin, String>> {
        let (name, entry) = find(entries, image)?;
        Some(self.login(name, entry).map_err(|error| format!("the login for {name} cannot be used: {error}")))
    }

    fn login(&self, name: &str, entry: &Entry) -> Result<RegistryLogin, PasswordError> {
        let password = match &entry.password {
            PasswordSource::Secret(name) => secrets::read(self.secrets.as_deref(), name)?,
            PasswordSource::File(file) => {
                let path = self.resolve(file);
                read_password(&path).map_err(|cause| PasswordError::File { path, cause })?
            }
        };
        let host = name.split('/').next().unwrap_or_default().to_owned();
        let password = secrets::without_line_end(password);
        let login = RegistryLogin { host, username: entry.username.clone(), password };
        login.check().map_err(PasswordError::Unfit)?;
        Ok(login)
    }

    fn resolve(&self, file: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(file)
    }
}

/// The entry with the longest name that covers this image.
pub(crate) fn find<'a>(entries: &'a Entries, image: &str) -> Option<(&'a String, &'a Entry)> {
    let (host, repository) = registry_of(image);
    let full = format!("{host}/{repository}");
    // A repository has few parts, so each beginning of it is looked up.
    let ends = full.match_indices('/').map(|(at, _)| at).chain([full.len()]);
    ends.rev().find_map(|end| entries.get_key_value(&full[..end]))
}

fn read(path: &Path) -> Result<Entries, RegistriesError> {
    let text = read_text(path).map_err(|cause| RegistriesError::Read { path: path.to_owned(), cause })?;
    parse(&text).map_err(|reason| RegistriesError::Invalid { path: path.to_owned(), reason })
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let length = File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if length as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

fn read_password(path: &Path) -> io::Result<SecretValue> {
    // A pipe would block.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    let mut value = Vec::new();
    // One byte more than is allowed, beside a line break, so that a longer password is refused and not cut.
    file.take(PASSWORD_BYTES_MAX as u64 + 3).read_to_end(&mut value)?;
    Ok(SecretValue(value))
}

/// Parses the text of the file; the error is the first fault, with its line and column.
fn parse(text: &str) -> Result<Entries, String> {
    let file: RegistriesFile = serde_yaml::from_str(text).map_err(|error| {
        // The first line says what and where; an excerpt follows.
        let text = error.to_string();
        text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })?;
    if file.registries.len() > ENTRIES_MAX {
        return Err(format!("it has more than {ENTRIES_MAX} registries"));
    }
    for name in file.registries.keys() {
        let (host, path) = name.split_once('/').unwrap_or((name, "x"));
        let is_path =
            !path.is_empty() && !path.starts_with('/') && !path.ends_with('/') && !path.contains(['@', ':']);
        if !is_registry_host(host) || host.ends_with(':') || !is_path {
            return Err(format!(
                "{name:?} is no registry: write registry.example, registry.example:5000, docker.io, or a beginning of its repositories such as registry.example/team"
            ));
        }
    }
    Ok(file.registries)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegistriesFile {
    #[serde(default, rename = "version")]
    _version: FileVersion,
    registries: Entries,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryText {
    username: String,
    password_file: Option<PathBuf>,
    secret: Option<String>,
}

impl TryFrom<EntryText> for Entry {
    type Error = &'static str;

    fn try_from(text: EntryText) -> Result<Self, Self::Error> {
        let password = match (text.password_file, text.secret) {
            (Some(file), None) => PasswordSource::File(file),
            (None, Some(name)) if is_secret_name(&name) => PasswordSource::Secret(name),
            (None, Some(_)) => return Err("secret is the name of a file in --secrets-dir"),
            (Some(_), Some(_)) | (None, None) => return Err("a login needs either password_file or secret"),
        };
        Ok(Self { username: text.username, password })
    }
}

/// A hundred registries take a tenth of this.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// More registries than a site has. Each is checked when the file is read.
const ENTRIES_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Result<Entries, String> {
        parse(text)
    }

    #[test]
    fn the_longest_name_that_covers_an_image_counts() {
        let file = "registries:
  registry.example:5000: { username: all, secret: a }
  registry.example:5000/team: { username: team, secret: b }
  registry.example:5000/team/app: { username: app, secret: c }
  docker.io: { username: hub, password_file: hub }
";
        let entries = entries(file).unwrap();
        let user = |image: &str| find(&entries, image).map(|(_, entry)| entry.username.clone());
        for (image, expected) in [
            ("registry.example:5000/other/app:1", Some("all")),
            ("registry.example:5000/team/app2", Some("team")),
            ("registry.example:5000/teammate/app", Some("all")),
            ("registry.example:5000/team/app@sha256:00", Some("app")),
            ("registry.example:5000/team/app/part:3", Some("app")),
            ("registry.example/team/app", None),
            ("busybox", Some("hub")),
            ("docker.io/acme/app:2", Some("hub")),
            ("evil.example/registry.example:5000/app", None),
        ] {
            assert_eq!(user(image).as_deref(), expected, "{image}");
        }
    }

    #[test]
    fn a_fault_says_where_it_is() {
        for (text, expected) in [
            ("registries: { https://a.example: { username: a, secret: b } }", "no registry"),
            ("registries: { A.example: { username: a, secret: b } }", "no registry"),
            ("registries:\n  a.example: { username: a }\n", "either password_file or secret"),
            ("registries:\n  a.example: { username: a, secret: ../b }\n", "--secrets-dir"),
            ("registries:\n  a.example: { username: a, password: hunter2 }\n", "unknown field"),
            ("version: 2\nregistries: {}\n", "reads version 1"),
            ("jobs: {}\n", "unknown field"),
        ] {
            let fault = entries(text).unwrap_err();
            assert!(fault.contains(expected) && !fault.contains("hunter2"), "{text}: {fault}");
        }
    }

    #[test]
    fn a_password_is_read_again_each_time_and_a_faulty_file_changes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("registries.yaml");
        let valid = "registries: { a.example: { username: robot, password_file: pw } }";
        std::fs::write(&file, valid).unwrap();
        let registries = Registries::load(file.clone(), None).unwrap();
        assert!(registries.warnings()[0].contains("jobs with images of a.example wait"));
        for password in ["hunter2", "hunter3"] {
            std::fs::write(root.path().join("pw"), format!("{password}\n")).unwrap();
            let login = registries.login_for(&registries.entries(), "a.example/app").unwrap().unwrap();
            assert_eq!(login.password, SecretValue(password.into()));
            std::fs::write(&file, "registries: [").unwrap();
        }
        std::fs::write(&file, "registries: {}").unwrap();
        assert!(registries.login_for(&registries.entries(), "a.example/app").is_none());
        std::fs::write(&file, valid).unwrap();
        std::fs::write(root.path().join("pw"), "x".repeat(PASSWORD_BYTES_MAX + 1)).unwrap();
        let refused = registries.login_for(&registries.entries(), "a.example/app").unwrap().unwrap_err();
        assert!(
            refused.contains("the login for a.example cannot be used: the password is text"),
            "{refused}"
        );
    }
}
