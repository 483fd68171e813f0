//! Fields of an earlier job that its retry leaves out instead of keeping them.

use protocol::container::Overrides;
use scheduler::params::Field;

use crate::excerpt::excerpt;
use crate::http::middleware::problem::Problem;
use crate::http::request::query::{Query, invalid_query};

/// Fields that are not kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClearedFields {
    fields: Vec<Field>,
    /// Names of single parameters.
    params: Vec<String>,
}

impl ClearedFields {
    /// Reads `clear`: fields of a submission, and `params.NAME`, separated by commas.
    ///
    /// # Errors
    /// `invalid_query` for another field.
    pub(crate) fn read(query: &mut Query) -> Result<Self, Problem> {
        let mut cleared = Self::default();
        let text = query.text("clear")?.unwrap_or_default();
        for name in text.split(',').filter(|name| !name.is_empty()) {
            match (name.strip_prefix(PARAM), KEPT.into_iter().find(|field| field.name() == name)) {
                (Some(param), _) => cleared.params.push(param.to_owned()),
                (None, Some(field)) => cleared.add(field),
                (None, None) => {
                    let known = KEPT.map(Field::name).join(", ");
                    let detail = format!("\"{}\" is not {known} or {PARAM}NAME", excerpt(name));
                    return Err(invalid_query("clear", &detail));
                }
            }
        }
        Ok(cleared)
    }

    /// Adds a field.
    pub(crate) fn add(&mut self, field: Field) {
        self.fields.push(field);
    }

    /// Adds all fields of `others`.
    pub(crate) fn extend(&mut self, others: Self) {
        self.fields.extend(others.fields);
        self.params.extend(others.params);
    }

    /// True if the field, or a part of it, is not kept.
    pub(crate) fn touches(&self, field: Field) -> bool {
        self.clears(field) || (field == Field::Params && !self.params.is_empty())
    }

    /// A parameter that is named and that is not known.
    pub(crate) fn unknown_param(&self, is_known: impl Fn(&str) -> bool) -> Option<&str> {
        self.params.iter().map(String::as_str).find(|name| !is_known(name))
    }

    /// True if nothing of the field is kept.
    pub(crate) fn clears(&self, field: Field) -> bool {
        self.fields.contains(&field)
    }

    /// True if the parameter is not kept.
    pub(crate) fn clears_param(&self, name: &str) -> bool {
        self.clears(Field::Params) || self.params.iter().any(|param| param == name)
    }

    /// Removes what is not kept.
    pub(crate) fn clear(&self, overrides: &mut Overrides) {
        if self.clears(Field::Args) {
            overrides.args.clear();
        }
        if self.clears(Field::Environment) {
            overrides.environment.clear();
        }
        if self.clears(Field::Input) {
            overrides.input = None;
        }
    }

    /// Adds the fields to the text of a target that an idempotency key stands for.
    pub(crate) fn append_to(&self, target: String) -> String {
        let names = self.fields.iter().map(|field| field.name().to_owned());
        let names: Vec<String> =
            names.chain(self.params.iter().map(|name| format!("{PARAM}{name}"))).collect();
        if names.is_empty() { target } else { format!("{target} without {}", names.join(",")) }
    }
}

/// The fields that a retry keeps.
const KEPT: [Field; 9] = [
    Field::Args,
    Field::Environment,
    Field::Input,
    Field::Labels,
    Field::Params,
    Field::Priority,
    Field::Requires,
    Field::Timeout,
    Field::Workers,
];

/// Before the name of a parameter.
const PARAM: &str = "params.";
