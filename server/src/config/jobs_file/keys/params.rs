//! The keys of a parameter, and the fields that `allow` names.

use scheduler::params::Field;

use super::{Key, Shape, key};

/// The keys of a parameter.
pub(in crate::config::jobs_file) const PARAM: &[Key] = &[
    key(
        "type",
        Shape::Choice(|| TYPES.to_vec()),
        "The type of the value; string if absent, enum where `enum` is given.",
    ),
    key(
        "required",
        Shape::Bool,
        "Whether a submission must give it; true if absent and there is no default.",
    ),
    key("default", Shape::Any, "The value of a job whose submission does not give it."),
    key("pattern", Shape::Text, "A regular expression that the whole text, or each item of a list, matches."),
    key(
        "min",
        Shape::Any,
        "The lowest number or duration; for a string the fewest characters, for a list the fewest items.",
    ),
    key(
        "max",
        Shape::Any,
        "The highest number or duration; for a string the most characters, for a list the most items.",
    ),
    key("enum", Shape::Texts, "The allowed values of type enum, or the allowed items of a list."),
    key("description", Shape::Text, "For people."),
    key("secret", Shape::Bool, "Whether its value is never shown; false if absent."),
];

pub(in crate::config::jobs_file) const TYPES: [&str; 7] =
    ["string", "integer", "number", "boolean", "duration", "enum", "list"];

pub(in crate::config::jobs_file) const FIELDS: [(&str, Field); 12] = [
    (Field::After.name(), Field::After),
    (Field::Args.name(), Field::Args),
    (Field::Environment.name(), Field::Environment),
    (Field::Input.name(), Field::Input),
    (Field::Labels.name(), Field::Labels),
    (Field::Params.name(), Field::Params),
    (Field::Priority.name(), Field::Priority),
    (Field::Requires.name(), Field::Requires),
    (Field::RunAt.name(), Field::RunAt),
    (Field::Timeout.name(), Field::Timeout),
    (Field::UniqueKey.name(), Field::UniqueKey),
    (Field::Workers.name(), Field::Workers),
];
