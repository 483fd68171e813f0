//! The Docker configuration of one pull with a login from the server.
//!
//! It is a directory of mode 0700 in the worker's tmpfs that exists while `docker pull` runs. All of the worker's own configuration is in
//! it (contexts, certificates, logins for other registries); only the login for this registry is replaced. A directory that a killed
//! worker has left is removed at its next start.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use protocol::registry::{DOCKER_HUB, RegistryLogin};
use serde_json::{Map, Value, json};

use crate::secrets::SecretDirs;

/// The directory of one pull. It is removed when the value is dropped.
#[derive(Debug)]
pub(super) struct PullConfig {
    path: PathBuf,
}

impl PullConfig {
    /// Writes the configuration: that of `own`, with this login. Blocks on the disk.
    pub(super) fn write(dirs: &SecretDirs, own: Option<&Path>, login: &RegistryLogin) -> io::Result<Self> {
        login.check().map_err(io::Error::other)?;
        let config = Self { path: dirs.create_pull_dir()? };
        if let Some(own) = own {
            config.link_all_of(own)?;
        }
        let file = own.and_then(|own| fs::read(own.join(FILE)).ok()).unwrap_or_default();
        let bytes = serde_json::to_vec(&with_login(&file, login))?;
        let path = config.path.join(FILE);
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(&bytes)?;
        Ok(config)
    }

    /// The value of `DOCKER_CONFIG`.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Links everything beside the file itself: contexts, certificates of an engine, keys of signatures.
    fn link_all_of(&self, own: &Path) -> io::Result<()> {
        let Ok(listing) = fs::read_dir(own) else { return Ok(()) };
        for entry in listing.flatten().filter(|entry| entry.file_name() != FILE) {
            symlink(std::path::absolute(entry.path())?, self.path.join(entry.file_name()))?;
        }
        Ok(())
    }
}

impl Drop for PullConfig {
    fn drop(&mut self) {
        // A few small files in memory: no disk is waited for.
        if let Err(error) = crate::secrets::remove(&self.path) {
            let path = self.path.display();
            tracing::error!(%path, %error, "cannot remove the login of a pull; the next start of the worker tries again");
        }
    }
}

/// The configuration with the login. One that is no JSON object is ignored, as Docker does it.
fn with_login(file: &[u8], login: &RegistryLogin) -> Value {
    let mut config: Map<String, Value> = serde_json::from_slice(file).unwrap_or_default();
    let key = if login.host == DOCKER_HUB { DOCKER_HUB_KEY } else { &login.host };
    let name_and_password = [login.username.as_bytes(), b":", &login.password.0].concat();
    insert(&mut config, "auths", key, json!({ "auth": BASE64.encode(&name_and_password) }));
    // A credential store would go before the file: an empty name means the file, for this registry only.
    if config.contains_key("credsStore") || config.contains_key("credHelpers") {
        insert(&mut config, "credHelpers", key, json!(""));
    }
    config.into()
}

/// Sets a field of the object under `name`. Another value there is replaced by an object.
fn insert(config: &mut Map<String, Value>, name: &str, key: &str, value: Value) {
    let mut fields = match config.remove(name) {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    fields.insert(key.to_owned(), value);
    config.insert(name.to_owned(), fields.into());
}

const FILE: &str = "config.json";

/// Docker's own key for the registry of images without one in their name.
const DOCKER_HUB_KEY: &str = "https://index.docker.io/v1/";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use protocol::secret::SecretValue;

    use super::*;

    fn login(host: &str) -> RegistryLogin {
        RegistryLogin {
            host: host.into(),
            username: "robot".into(),
            password: SecretValue(b"planted:pw".into()),
        }
    }

    /// Base64 of `robot:planted:pw`.
    const AUTH: &str = "cm9ib3Q6cGxhbnRlZDpwdw==";

    #[test]
    fn the_login_is_laid_over_the_configuration_of_the_worker() {
        let own = br#"{"auths": {"b.example": {"auth": "b"}, "a.example": {"auth": "old"}}, "currentContext": "far"}"#;
        let expected = json!({
            "auths": { "b.example": { "auth": "b" }, "a.example": { "auth": AUTH } },
            "currentContext": "far",
        });
        assert_eq!(with_login(own, &login("a.example")), expected);
        let hub = json!({ "auths": { "https://index.docker.io/v1/": { "auth": AUTH } } });
        for nothing in [&b""[..], b"[]", b"no json"] {
            assert_eq!(with_login(nothing, &login("docker.io")), hub);
        }
    }

    #[test]
    fn a_credential_store_of_the_worker_does_not_go_before_the_login() {
        let own = br#"{"credsStore": "desktop", "auths": null}"#;
        let config = with_login(own, &login("a.example"));
        assert_eq!(config["credHelpers"], json!({ "a.example": "" }));
        assert_eq!(config["credsStore"], "desktop", "it serves other registries");
        let own = br#"{"credHelpers": {"a.example": "ecr-login", "b.example": "gcloud"}}"#;
        let config = with_login(own, &login("a.example"));
        assert_eq!(config["credHelpers"], json!({ "a.example": "", "b.example": "gcloud" }));
    }

    #[test]
    fn the_directory_is_for_this_user_only_and_is_removed() {
        let (state, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(own.path().join("contexts")).unwrap();
        fs::write(own.path().join("contexts/meta"), "context").unwrap();
        fs::write(own.path().join("config.json"), r#"{"HttpHeaders": {"A": "b"}}"#).unwrap();
        let dirs = SecretDirs::open(None, state.path()).unwrap();
        let config = PullConfig::write(&dirs, Some(own.path()), &login("a.example")).unwrap();
        let path = config.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let written = fs::read_to_string(path.join("config.json")).unwrap();
        assert!(written.contains(AUTH) && written.contains("HttpHeaders"), "{written}");
        assert_eq!(fs::read_to_string(path.join("contexts/meta")).unwrap(), "context");
        let other = PullConfig::write(&dirs, None, &login("a.example")).unwrap();
        assert_ne!(other.path(), path);
        drop((config, other));
        assert!(!path.exists() && own.path().join("contexts/meta").exists());
        // The worker is killed during a pull.
        std::mem::forget(PullConfig::write(&dirs, None, &login("a.example")).unwrap());
        let root = path.parent().unwrap();
        assert_eq!(fs::read_dir(root).unwrap().count(), 1);
        dirs.sweep(|_| false);
        assert_eq!(fs::read_dir(root).unwrap().count(), 0);
        fs::remove_dir(root).unwrap();
    }
}
