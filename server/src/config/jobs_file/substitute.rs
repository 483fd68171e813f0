//! `${VAR}` in values becomes the variable of the server's environment; `$$` is a dollar; any other dollar stays.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::order::Intervals;

use super::fault::{FaultCode, quoted};
use super::grammar::{ValueFault, is_variable_name};
use crate::policy::Policy;
use crate::secrets::SecretsDir;

/// The context of a jobs file: the server's environment variables, worker intervals, secrets and policy.
#[derive(Clone)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    intervals: Intervals,
    /// The server may have another lease.
    is_lease_assumed: bool,
    secrets: SecretNames,
    policy: Arc<Policy>,
    mail: MailSupport,
    /// The file is checked away from its server.
    is_elsewhere: bool,
}

/// Knowledge of the server's e-mail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MailSupport {
    /// The file is checked away from its server.
    #[default]
    Unknown,
    /// The server has no mail server.
    Absent,
    /// The server sends e-mail.
    Present,
}

/// Knowledge of the secrets that exist.
#[derive(Clone, Debug, Default)]
pub(super) enum SecretNames {
    /// The file is checked away from its server.
    #[default]
    Unknown,
    /// The server has no secrets.
    None,
    /// The secrets of this directory.
    Of(Arc<SecretsDir>),
}

impl Environment {
    /// The variables of this process; those that are not UTF-8 count as unset.
    #[must_use]
    pub fn of_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    /// Uses these intervals instead of the defaults: rules about silent workers depend on them.
    #[must_use]
    pub fn with_intervals(self, intervals: Intervals) -> Self {
        Self { intervals, ..self }
    }

    /// Says beside faults that follow from the lease that the server may have another one.
    #[must_use]
    pub fn with_assumed_lease(self) -> Self {
        Self { is_lease_assumed: true, ..self }
    }

    /// Checks that named secrets are in this directory.
    #[must_use]
    pub fn with_secrets(self, secrets: Option<Arc<SecretsDir>>) -> Self {
        Self { secrets: secrets.map_or(SecretNames::None, SecretNames::Of), ..self }
    }

    /// Refuses definitions that break this policy.
    #[must_use]
    pub fn with_policy(self, policy: Arc<Policy>) -> Self {
        Self { policy, ..self }
    }

    /// Refuses recipients of e-mail if the server has no mail server.
    #[must_use]
    pub fn with_mail(self, mail: MailSupport) -> Self {
        Self { mail, ..self }
    }

    /// Leaves out what only the server can know: values with variables that are unset here, and environment files.
    #[must_use]
    pub fn elsewhere(self) -> Self {
        Self { is_elsewhere: true, ..self }
    }

    /// Without the variables.
    #[must_use]
    pub(super) fn without_variables(self) -> Self {
        Self { variables: BTreeMap::new(), ..self }
    }

    pub(super) const fn is_elsewhere(&self) -> bool {
        self.is_elsewhere
    }

    pub(super) const fn mail(&self) -> MailSupport {
        self.mail
    }

    pub(super) const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    pub(super) const fn secrets(&self) -> &SecretNames {
        &self.secrets
    }

    pub(super) const fn intervals(&self) -> Intervals {
        self.intervals
    }

    pub(super) const fn is_lease_assumed(&self) -> bool {
        self.is_lease_assumed
    }

    fn find(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(variables: T) -> Self {
        Self {
            variables: variables.into_iter().collect(),
            intervals: Intervals::default(),
            is_lease_assumed: false,
            secrets: SecretNames::Unknown,
            policy: Arc::default(),
            mail: MailSupport::Unknown,
            is_elsewhere: false,
        }
    }
}

impl Default for Environment {
    fn default() -> Self {
        std::iter::empty().collect()
    }
}

/// Prints names only: values may be secret.
impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

/// Replaces the variables in a text. Values are not expanded again.
pub(super) fn replace<'t>(text: &'t str, environment: &Environment) -> Result<Cow<'t, str>, ValueFault> {
    if !text.contains('$') {
        return Ok(Cow::Borrowed(text));
    }
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        replaced.push_str(&rest[..dollar]);
        let after = &rest[dollar + 1..];
        if let Some(after) = after.strip_prefix('$') {
            replaced.push('$');
            rest = after;
        } else if let Some(after) = after.strip_prefix('{') {
            let (name, after) = after.split_once('}').ok_or_else(|| malformed("${ without }"))?;
            replaced.push_str(look_up(name, environment)?);
            rest = after;
        } else {
            replaced.push('$');
            rest = after;
        }
    }
    replaced.push_str(rest);
    Ok(Cow::Owned(replaced))
}

/// The parameter of a text that is one reference and nothing else: `${params.size}`.
pub(super) fn param_reference(text: &str) -> Option<&str> {
    let name = text.strip_prefix("${params.")?.strip_suffix('}')?;
    (!name.contains(['$', '{', '}'])).then_some(name)
}

fn look_up<'e>(name: &str, environment: &'e Environment) -> Result<&'e str, ValueFault> {
    if name.starts_with("params.") {
        let text = format!(
            "${{{name}}} may only be a whole word of `command` or the whole value of a variable in `environment`"
        );
        return Err(ValueFault::new(FaultCode::InvalidSubstitution, text));
    }
    if !is_variable_name(name) {
        return Err(malformed(&format!("{} is not the name of a variable", quoted(name))));
    }
    environment.find(name).ok_or_else(|| {
        let text =
            format!("{} is not set in the environment; a dollar that is meant as such is $$", quoted(name));
        ValueFault::new(FaultCode::UnsetVariable, text)
    })
}

fn malformed(what: &str) -> ValueFault {
    ValueFault::new(FaultCode::InvalidSubstitution, format!("{what}; write ${{NAME}}, or $$ for a dollar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        [("A", "x"), ("B", "${A}")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into_iter()
            .collect()
    }

    #[test]
    fn variables_are_replaced_once() {
        for (text, expected) in [
            ("${A}", "x"),
            ("a${A}b${A}", "axbx"),
            ("${B}", "${A}"),
            ("$${A}", "${A}"),
            ("$$", "$"),
            ("$HOME $1 $", "$HOME $1 $"),
        ] {
            assert_eq!(replace(text, &environment()).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn unset_and_malformed_variables_have_different_faults() {
        assert_eq!(
            replace("${C}", &environment()).map_err(|wrong| wrong.code),
            Err(FaultCode::UnsetVariable)
        );
        for text in ["${", "${}", "${A:-b}", "${A"] {
            assert_eq!(
                replace(text, &environment()).map_err(|wrong| wrong.code),
                Err(FaultCode::InvalidSubstitution),
                "{text}"
            );
        }
    }

    #[test]
    fn a_parameter_is_a_whole_value_or_refused() {
        assert_eq!(param_reference("${params.size}"), Some("size"));
        for text in ["x${params.size}", "${params.size}x", "${params.a}${params.b}", "$${params.size}"] {
            assert_eq!(param_reference(text), None, "{text}");
        }
        let wrong = replace("--size=${params.size}", &environment()).map_err(|wrong| wrong.code);
        assert_eq!(wrong, Err(FaultCode::InvalidSubstitution));
        assert_eq!(replace("$${params.size}", &environment()).as_deref(), Ok("${params.size}"));
    }

    #[test]
    fn values_are_not_shown() {
        assert_eq!(format!("{:?}", environment()), r#"{"A", "B"}"#);
    }
}
