//! A field of a run form: the element that takes a value, made from a declared parameter.

use scheduler::params::{Absence, Param, ParamKind, ParamValue};

use crate::params;

/// A field with its label and what is wrong with it.
#[derive(Debug, Default)]
pub(crate) struct FormField {
    /// The name in the submission: `params.size`, `priority`.
    pub(crate) name: String,
    pub(crate) label: String,
    pub(crate) control: Control,
    pub(crate) is_required: bool,
    /// The value that applies while the field is empty.
    pub(crate) placeholder: String,
    pub(crate) hint: String,
    /// The value; the items of a list one a line.
    pub(crate) value: String,
    /// Empty if nothing is wrong.
    pub(crate) fault: String,
}

/// The element that takes a value.
#[derive(Debug, Default)]
pub(crate) enum Control {
    /// One line of text.
    #[default]
    Line,
    /// A number; the step is `1` or `any`.
    Number { min: String, max: String, step: String },
    /// A line that nobody reads over a shoulder, and that is never filled in.
    Secret,
    /// Several lines: one item a line, or a text.
    Lines(u8),
    /// One of these words.
    Choice(Vec<String>),
    /// Any of these words.
    Items(Vec<String>),
}

impl FormField {
    /// The id of its element.
    pub(crate) fn id(&self) -> String {
        self.name.replace('.', "-")
    }

    /// The value that applies while no item is chosen, in one line.
    pub(crate) fn default_items(&self) -> String {
        self.placeholder.replace('\n', ", ")
    }

    /// The text of the choice that leaves the field empty.
    pub(crate) fn empty_option(&self, words: &[String]) -> String {
        match self.is_default(words) {
            true => format!("{} (default)", self.placeholder),
            false => self.placeholder.clone(),
        }
    }

    /// The words of a choice. The default stands for itself in the empty option, unless a job was given it.
    pub(crate) fn options<'w>(&self, words: &'w [String]) -> Vec<&'w String> {
        let is_shown =
            |word: &&String| **word != self.placeholder || !self.is_default(words) || self.has(word);
        words.iter().filter(is_shown).collect()
    }

    /// True if the placeholder of a choice is the word that applies while nothing is chosen.
    fn is_default(&self, words: &[String]) -> bool {
        !self.is_required && words.contains(&self.placeholder)
    }

    /// True if this option of a choice or a list is taken.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.value.lines().any(|line| line == option)
    }

    pub(super) fn of_param(param: &Param) -> Self {
        let control = match &param.kind {
            _ if param.secret => Control::Secret,
            ParamKind::Text { .. } | ParamKind::Duration(_) => Control::Line,
            ParamKind::Integer(bounds) => {
                Control::Number { min: limit(bounds.min), max: limit(bounds.max), step: "1".to_owned() }
            }
            ParamKind::Number(bounds) => {
                Control::Number { min: limit(bounds.min), max: limit(bounds.max), step: "any".to_owned() }
            }
            ParamKind::Boolean => Control::Choice(vec!["true".to_owned(), "false".to_owned()]),
            ParamKind::Enum(words) => Control::Choice(words.clone()),
            ParamKind::List { items, .. } if items.is_empty() => Control::Lines(3),
            ParamKind::List { items, .. } => Control::Items(items.clone()),
        };
        let placeholder = match &param.absence {
            Absence::Default(_) if param.secret => "has a default".to_owned(),
            Absence::Default(value) => in_lines(value),
            Absence::Allowed => String::new(),
            Absence::Refused if matches!(control, Control::Choice(_)) => "choose one".to_owned(),
            Absence::Refused => String::new(),
        };
        let allowed = match control {
            Control::Choice(_) | Control::Items(_) => None,
            Control::Lines(_) => Some(format!("{}, one item a line", params::allowed(&param.kind))),
            _ => Some(params::allowed(&param.kind)),
        };
        let hints: Vec<String> = param.description.clone().into_iter().chain(allowed).collect();
        Self {
            name: format!("{PARAM}{}", param.name),
            label: param.name.clone(),
            control,
            is_required: param.absence == Absence::Refused,
            placeholder,
            hint: hints.join(": "),
            ..Self::default()
        }
    }
}

pub(super) fn in_lines(value: &ParamValue) -> String {
    match value {
        ParamValue::List(items) => items.join("\n"),
        value => params::to_text(value),
    }
}

fn limit(bound: Option<impl ToString>) -> String {
    bound.map(|bound| bound.to_string()).unwrap_or_default()
}

/// Before the name of a parameter in the name of its field.
pub(super) const PARAM: &str = "params.";
