//! The secrets that one session sends with its attempts.
//!
//! A session remembers which of the definitions that it sent have secrets. Values are read for each attempt, on a blocking thread.

use std::collections::HashMap;
use std::sync::Arc;

use protocol::container::Overrides;
use protocol::secret::{AttemptSecrets, SecretValue, SecretValues};
use protocol::{Revision, RuntimeKind, wire};
use scheduler::definition::Definition;
use scheduler::params::ParamKind;

use crate::params::variable_of;
use crate::secrets::{self, MASKED_BYTES_MIN, SecretsDir};

/// The secrets of one session.
#[derive(Debug, Default)]
pub(super) struct SessionSecrets {
    dir: Option<Arc<SecretsDir>>,
    /// Nobody on the way can read what is sent: TLS, or this machine only.
    is_private: bool,
    /// Definitions of this session that have secrets or secret parameters.
    definitions: HashMap<Revision, Arc<Definition>>,
}

impl SessionSecrets {
    pub(super) fn new(dir: Option<Arc<SecretsDir>>, is_private: bool) -> Self {
        Self { dir, is_private, definitions: HashMap::new() }
    }

    /// Remembers a definition that is sent.
    pub(super) fn define(&mut self, definition: &Arc<Definition>) {
        let has_secret_params = definition.submission.params.declared.iter().any(|param| param.secret);
        if !definition.secrets.is_empty() || has_secret_params {
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
            if !definition.secrets.is_empty() && definition.runtime() != RuntimeKind::Fake {
                wanted.insert(definition.revision, definition.clone());
            }
        }
        if wanted.is_empty() {
            return HashMap::new();
        }
        if !self.is_private {
            let why =
                "its secrets are not sent over plain HTTP: give the server TLS with --tls-cert and --tls-key";
            return withheld(wanted.into_keys(), why);
        }
        let (dir, revisions): (_, Vec<_>) = (self.dir.clone(), wanted.keys().copied().collect());
        let read = move || {
            let values = |definition: &Definition| given(dir.as_deref(), definition);
            wanted.iter().map(|(revision, definition)| (*revision, values(definition))).collect()
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

/// The values of a definition, or the reason why there are none.
fn given(dir: Option<&SecretsDir>, definition: &Definition) -> AttemptSecrets {
    let refs = &definition.secrets;
    let read = || -> Result<SecretValues, secrets::SecretError> {
        let file = |name: &String| Ok((name.clone(), secrets::read(dir, name)?));
        let variable = |(variable, name): &(String, String)| {
            Ok((variable.clone(), without_line_end(secrets::read(dir, name)?)))
        };
        Ok(SecretValues {
            files: refs.files.iter().map(file).collect::<Result<_, _>>()?,
            variables: refs.variables.iter().map(variable).collect::<Result<_, _>>()?,
            masked: Vec::new(),
        })
    };
    match read() {
        Ok(values) => AttemptSecrets::Given(values),
        Err(error) => {
            tracing::error!(definition = definition.name, %error, "attempts are sent without a secret; workers give them back and their jobs wait");
            AttemptSecrets::Withheld(error.to_string())
        }
    }
}

/// Editors end files with a line break; a variable with one is no password.
fn without_line_end(SecretValue(mut value): SecretValue) -> SecretValue {
    if value.ends_with(b"\n") {
        value.pop();
        if value.ends_with(b"\r") {
            value.pop();
        }
    }
    SecretValue(value)
}

fn fitting(values: SecretValues) -> Option<AttemptSecrets> {
    Some(match wire::secrets_fit(&values) {
        Ok(()) => AttemptSecrets::Given(values),
        Err(misfit) => AttemptSecrets::Withheld(misfit.to_string()),
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
        let mut secrets = SessionSecrets::new(Some(dir), true);
        let definition = definition(JOB);
        assert_eq!(
            definition.secrets,
            SecretRefs { files: vec!["db".into()], variables: vec![("PW".into(), "db".into())] }
        );
        assert!(why(sent(&mut secrets, &definition).await).contains("the secret db does not exist"));
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
        let mut secrets = SessionSecrets::new(Some(dir), false);
        assert!(why(sent(&mut secrets, &definition(JOB)).await).contains("plain HTTP"));
    }

    #[tokio::test]
    async fn a_server_without_secrets_says_how_to_give_it_some() {
        let mut secrets = SessionSecrets::new(None, true);
        assert!(why(sent(&mut secrets, &definition(JOB)).await).contains("--secrets-dir"));
    }

    #[test]
    fn values_of_secret_parameters_are_masked() {
        let mut secrets = SessionSecrets::new(None, true);
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
