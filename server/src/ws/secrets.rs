//! The secrets that one session sends with its attempts.
//!
//! A session remembers which of the definitions that it sent have secrets. Values are read for each attempt, on a blocking thread.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::container::{Overrides, PullPolicy};
use protocol::secret::{AttemptSecrets, SecretValue, SecretValues};
use protocol::{Revision, RuntimeKind, wire};
use scheduler::definition::Definition;
use scheduler::params::ParamKind;

use super::missing_secrets::MissingSecrets;
use crate::params::variable_of;
use crate::registries::{self, Entries, Registries};
use crate::secrets::{self, MASKED_BYTES_MIN, SecretsDir, without_line_end};

/// The secrets of one session.
#[derive(Debug, Default)]
pub(super) struct SessionSecrets {
    sources: SecretSources,
    /// Gets the definitions whose secrets cannot be read.
    missing: Arc<MissingSecrets>,
    /// Definitions of this session that have secrets, secret parameters, or an image that may need a login.
    definitions: HashMap<Revision, Arc<Definition>>,
}

/// The places from which the secrets of a session are read.
#[derive(Clone, Debug, Default)]
pub(super) struct SecretSources {
    pub(super) dir: Option<Arc<SecretsDir>>,
    pub(super) registries: Option<Arc<Registries>>,
    /// Nobody on the way can read what is sent: TLS, or this machine only.
    pub(super) is_private: bool,
}

impl SessionSecrets {
    pub(super) fn new(sources: SecretSources, missing: Arc<MissingSecrets>) -> Self {
        Self { sources, missing, definitions: HashMap::new() }
    }

    /// Remembers a definition that is sent.
    pub(super) fn define(&mut self, definition: &Arc<Definition>) {
        let has_secret_params = definition.submission.params.declared.iter().any(|param| param.secret);
        if !definition.secrets.is_empty() || has_secret_params || self.sources.may_need_login(definition) {
            self.definitions.insert(definition.revision, definition.clone());
        }
    }

    /// Reads the values of the definitions with these revisions, each once.
    pub(super) async fn read(
        &self,
        revisions: impl Iterator<Item = Revision>,
    ) -> HashMap<Revision, AttemptSecrets> {
        let mut wanted = HashMap::new();
        for definition in revisions.filter_map(|revision| self.definitions.get(&revision)) {
            // A simulated attempt needs no values.
            let has_secrets = !definition.secrets.is_empty() && definition.runtime() != RuntimeKind::Fake;
            if has_secrets || self.sources.may_need_login(definition) {
                wanted.insert(definition.revision, definition.clone());
            }
        }
        if wanted.is_empty() {
            return HashMap::new();
        }
        let (sources, revisions): (_, Vec<_>) = (self.sources.clone(), wanted.keys().copied().collect());
        let missing = self.missing.clone();
        let read = move || {
            let logins = sources.registries.as_ref().map(|registries| registries.entries());
            let values = |definition: &Arc<Definition>| {
                let values = sources.read(definition, logins.as_deref());
                // Over plain HTTP nothing was read.
                if sources.is_private && matches!(values, Some(AttemptSecrets::Withheld(_))) {
                    missing.report(definition.revision);
                }
                values
            };
            let read = wanted.iter().map(|(revision, definition)| Some((*revision, values(definition)?)));
            read.flatten().collect()
        };
        let read = tokio::task::spawn_blocking(read).await;
        // Without its secrets no attempt may start.
        read.unwrap_or_else(|_| withheld(revisions.into_iter(), "the server cannot read its secrets"))
    }

    /// The secrets of one attempt: those of its definition, and the values of its secret parameters, which are masked.
    pub(super) fn with_params(
        &self,
        revision: Revision,
        given: Option<AttemptSecrets>,
        overrides: Option<&Overrides>,
    ) -> Option<AttemptSecrets> {
        let Some(definition) = self.definitions.get(&revision) else { return given };
        let params = &definition.submission.params;
        let secret = params.declared.iter().filter(|param| param.secret);
        let variables: HashMap<String, &ParamKind> =
            secret.map(|param| (variable_of(&param.name), &param.kind)).collect();
        let environment = overrides.map(|overrides| overrides.environment.as_slice()).unwrap_or_default();
        let mut masked = Vec::new();
        for (name, value) in environment {
            let Some(kind) = variables.get(name) else { continue };
            masked.push(SecretValue(value.clone().into_bytes()));
            if matches!(kind, ParamKind::List { .. }) {
                // A program that takes the list apart may show its items one by one.
                let items = value.split(',').filter(|item| item.len() >= MASKED_BYTES_MIN);
                masked.extend(items.map(|item| SecretValue(item.as_bytes().to_vec())));
            }
        }
        match given {
            Some(AttemptSecrets::Given(values)) => fitting(SecretValues { masked, ..values }),
            None if masked.is_empty() => None,
            None => fitting(SecretValues { masked, ..SecretValues::default() }),
            withheld => withheld,
        }
    }
}

fn withheld(revisions: impl Iterator<Item = Revision>, why: &str) -> HashMap<Revision, AttemptSecrets> {
    revisions.map(|revision| (revision, AttemptSecrets::Withheld(why.to_owned()))).collect()
}

impl SecretSources {
    /// `true` if an image is pulled that may be in a registry with a login.
    fn may_need_login(&self, definition: &Definition) -> bool {
        let container = &definition.container;
        self.registries.is_some()
            && container.runtime == RuntimeKind::Docker
            && container.pull_policy != PullPolicy::Never
    }

    /// The values of a definition, or the reason why they are not sent; `None` if it needs none.
    fn read(&self, definition: &Definition, logins: Option<&Entries>) -> Option<AttemptSecrets> {
        if !self.is_private && (!definition.secrets.is_empty() || self.needs_login(definition, logins)) {
            let kind = if definition.secrets.is_empty() {
                "the login for its registry is"
            } else {
                "its secrets are"
            };
            return Some(AttemptSecrets::Withheld(format!(
                "{kind} not sent over plain HTTP: give the server TLS with --tls-cert and --tls-key"
            )));
        }
        Some(match self.read_all(definition, logins)? {
            Ok(values) => AttemptSecrets::Given(values),
            Err(error) => {
                tracing::error!(
                    definition = definition.name,
                    error,
                    "attempts are sent without a secret; workers give them back and their jobs wait"
                );
                AttemptSecrets::Withheld(error)
            }
        })
    }

    /// The reason why the values of a definition cannot be read, if there is one. Blocks on the disk.
    pub(super) fn fault(&self, definition: &Definition, logins: Option<&Entries>) -> Option<String> {
        self.read_all(definition, logins)?.err()
    }

    fn needs_login(&self, definition: &Definition, logins: Option<&Entries>) -> bool {
        let logins = logins.filter(|_| self.may_need_login(definition));
        logins.is_some_and(|logins| registries::find(logins, &definition.container.image).is_some())
    }

    /// The values of a definition, or the reason why they cannot be read; `None` if it needs none.
    fn read_all(
        &self,
        definition: &Definition,
        logins: Option<&Entries>,
    ) -> Option<Result<SecretValues, String>> {
        if definition.secrets.is_empty() && !self.needs_login(definition, logins) {
            return None;
        }
        let logins = logins.filter(|_| self.may_need_login(definition));
        let registries = self.registries.as_ref().zip(logins);
        let image = definition.container.image.as_str();
        let login =
            registries.and_then(|(registries, logins)| registries.login_for(logins, image)).transpose();
        Some(login.and_then(|registry| {
            let values = self.values(definition).map_err(|error| error.to_string())?;
            Ok(SecretValues { registry, ..values })
        }))
    }

    fn values(&self, definition: &Definition) -> Result<SecretValues, secrets::SecretError> {
        let (dir, refs) = (self.dir.as_deref(), &definition.secrets);
        let file = |name: &String| Ok((name.clone(), secrets::read(dir, name)?));
        let variable = |(variable, name): &(String, String)| {
            Ok((variable.clone(), without_line_end(secrets::read(dir, name)?)))
        };
        Ok(SecretValues {
            files: refs.files.iter().map(file).collect::<Result<_, _>>()?,
            variables: refs.variables.iter().map(variable).collect::<Result<_, _>>()?,
            ..SecretValues::default()
        })
    }
}

fn fitting(values: SecretValues) -> Option<AttemptSecrets> {
    Some(match wire::secrets_fit(&values) {
        Ok(()) => AttemptSecrets::Given(values),
        Err(invalid) => AttemptSecrets::Withheld(invalid.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use scheduler::definition::SecretRefs;

    use super::*;
    use crate::config::jobs_file;

    fn definition(text: &str) -> Arc<Definition> {
        let loaded = jobs_file::parse(text, std::path::Path::new("jobs.yaml"), &Default::default()).unwrap();
        loaded.definitions[0].definition.clone()
    }

    fn session(dir: Option<Arc<SecretsDir>>, is_private: bool) -> SessionSecrets {
        SessionSecrets::new(SecretSources { dir, registries: None, is_private }, Arc::default())
    }

    const JOB: &str = "- {name: a, image: busybox, secrets: [db], environment: {PW: {secret: db}}}";

    async fn sent(secrets: &mut SessionSecrets, definition: &Arc<Definition>) -> Option<AttemptSecrets> {
        secrets.define(definition);
        let mut read = secrets.read([definition.revision].into_iter()).await;
        secrets.with_params(definition.revision, read.remove(&definition.revision), None)
    }

    fn why(secrets: Option<AttemptSecrets>) -> String {
        match secrets {
            Some(AttemptSecrets::Withheld(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn values_are_read_for_each_attempt_and_a_variable_has_no_line_break() {
        let root = tempfile::tempdir().unwrap();
        let dir = Arc::new(SecretsDir::open(root.path().to_path_buf()).unwrap());
        let mut secrets = session(Some(dir), true);
        let definition = definition(JOB);
        assert_eq!(
            definition.secrets,
            SecretRefs { files: vec!["db".into()], variables: vec![("PW".into(), "db".into())] }
        );
        assert!(why(sent(&mut secrets, &definition).await).contains("the server has no secret db"));
        for value in ["one", "two"] {
            std::fs::write(root.path().join("db"), format!("{value}\r\n")).unwrap();
            let Some(AttemptSecrets::Given(given)) = sent(&mut secrets, &definition).await else { panic!() };
            assert_eq!(given.variables, [("PW".into(), SecretValue(value.into()))]);
            assert_eq!(given.files, [("db".into(), SecretValue(format!("{value}\r\n").into()))]);
        }
    }

    #[tokio::test]
    async fn nothing_is_sent_over_plain_http() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("db"), "value").unwrap();
        let dir = Arc::new(SecretsDir::open(root.path().to_path_buf()).unwrap());
        let mut secrets = session(Some(dir), false);
        assert!(why(sent(&mut secrets, &definition(JOB)).await).contains("plain HTTP"));
    }

    #[tokio::test]
    async fn a_server_without_secrets_says_how_to_give_it_some() {
        let mut secrets = session(None, true);
        assert!(why(sent(&mut secrets, &definition(JOB)).await).contains("--secrets-dir"));
    }

    #[tokio::test]
    async fn the_login_of_a_registry_goes_with_attempts_that_pull_from_it() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("registries.yaml");
        std::fs::write(&file, "registries: {a.example: {username: robot, password_file: pw}}").unwrap();
        let sources = |is_private| SecretSources {
            dir: None,
            registries: Some(Arc::new(Registries::load(file.clone(), None).unwrap())),
            is_private,
        };
        let app = definition("- {name: a, image: a.example/app}");
        let mut secrets = SessionSecrets::new(sources(true), Arc::default());
        assert!(why(sent(&mut secrets, &app).await).starts_with("the login for a.example cannot be used"));
        std::fs::write(root.path().join("pw"), "hunter2\n").unwrap();
        let Some(AttemptSecrets::Given(given)) = sent(&mut secrets, &app).await else { panic!() };
        let login = given.registry.clone().unwrap();
        assert_eq!((login.host.as_str(), login.password), ("a.example", SecretValue("hunter2".into())));
        assert!(given.is_empty(), "the job itself gets nothing");
        for other in [
            "- {name: a, image: b.example/app}",
            "- {name: a, image: a.example/app, pull_policy: never}",
            "- {name: a, runtime: process, command: [a.example/app]}",
        ] {
            assert_eq!(sent(&mut secrets, &definition(other)).await, None, "{other}");
        }
        let plain = why(sent(&mut SessionSecrets::new(sources(false), Arc::default()), &app).await);
        assert!(plain.contains("registry is not sent over plain HTTP"), "{plain}");
        assert_eq!(
            sent(
                &mut SessionSecrets::new(sources(false), Arc::default()),
                &definition("- {name: a, image: b}")
            )
            .await,
            None
        );
    }

    #[test]
    fn values_of_secret_parameters_are_masked() {
        let mut secrets = session(None, true);
        let params =
            "{token: {type: string, secret: true}, size: {type: string}, keys: {type: list, secret: true}}";
        let definition = definition(&format!("- {{name: a, image: busybox, params: {params}}}"));
        secrets.define(&definition);
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let environment = vec![
            variable("PARAM_TOKEN", "hunter22"),
            variable("PARAM_SIZE", "big"),
            variable("PARAM_KEYS", "first,2nd,third"),
        ];
        let overrides = Overrides { environment, ..Overrides::default() };
        let Some(AttemptSecrets::Given(given)) =
            secrets.with_params(definition.revision, None, Some(&overrides))
        else {
            panic!()
        };
        let masked = ["hunter22", "first,2nd,third", "first", "third"];
        assert_eq!(given.masked, masked.map(|value| SecretValue(value.into())));
        assert_eq!(secrets.with_params(definition.revision, None, None), None);
    }
}
