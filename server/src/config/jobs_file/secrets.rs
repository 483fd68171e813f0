//! The secrets that a job names: files, and variables with `{secret: NAME}`. Values are never read into a definition.

use std::collections::BTreeMap;

use protocol::RuntimeKind;
use protocol::secret::is_secret_name;
use scheduler::definition::SecretRefs;

use super::container::ParamUses;
use super::fault::{FaultCode, Position};
use super::reader::Reader;
use super::scope::Scope;
use super::substitute::SecretNames;
use crate::secrets::{SecretAdvice, SecretError};

/// Secrets of one job: each is read for every attempt.
const SECRETS_MAX: usize = 32;

/// Reads the names, and warns of secrets that an attempt would not get.
pub(super) fn read(
    scope: Scope<'_>,
    runtime: RuntimeKind,
    uses: &ParamUses,
    is_job: bool,
    reader: &mut Reader<'_>,
) -> SecretRefs {
    let files = scope.find("secrets").map(|node| reader.texts(node)).unwrap_or_default();
    let variables = uses.secrets.iter().map(|(_, (at, name))| (*at, name.clone()));
    let mut named: BTreeMap<String, Position> = BTreeMap::new();
    for (at, name) in files.iter().cloned().chain(variables) {
        if !is_secret_name(&name) {
            let text = format!(
                "{} is no name for a secret: 1 to 64 letters, digits, dots, dashes and underscores",
                reader.shown(at, &name)
            );
            reader.fault(at, FaultCode::InvalidValue, text);
            continue;
        }
        named.entry(name).or_insert(at);
    }
    if let Some((_, at)) = named.iter().nth(SECRETS_MAX) {
        let text = format!("{} secrets are too many (max {SECRETS_MAX})", named.len());
        reader.fault(*at, FaultCode::TooLong, text);
    }
    if is_job && runtime != RuntimeKind::Fake {
        for (name, at) in &named {
            warn(name, *at, reader);
        }
    }
    let mut files: Vec<_> = files.into_iter().map(|(_, name)| name).collect();
    files.sort();
    files.dedup();
    let variables = uses.secrets.iter().map(|(variable, (_, name))| (variable.clone(), name.clone()));
    SecretRefs { files, variables: variables.collect() }
}

/// A missing secret is no fault: it may be delivered before the first job, and must not keep the server from starting.
fn warn(name: &str, at: Position, reader: &mut Reader<'_>) {
    let checked = match reader.environment.secrets() {
        SecretNames::Unknown => return,
        SecretNames::None => Err(SecretError::NoDirectory),
        SecretNames::Of(dir) => dir.check(name),
    };
    let shown = reader.as_written(at, name);
    let texts = match checked {
        Ok(advice) => advice.into_iter().map(|advice| advice_text(advice, &shown)).collect(),
        Err(error) => {
            vec![format!("{}; jobs that need it wait until it can be read", error.with_name(&shown))]
        }
    };
    for text in texts {
        reader.collector.warning(at, FaultCode::Secret, text);
    }
}

fn advice_text(advice: SecretAdvice, name: &str) -> String {
    match advice {
        SecretAdvice::ReadableByAll => {
            format!(
                "every user of this machine can read the file of the secret {name}; chmod 600 prevents that"
            )
        }
        SecretAdvice::NotMasked => {
            format!("the secret {name} has fewer than 4 bytes, so it is not masked in output")
        }
    }
}
