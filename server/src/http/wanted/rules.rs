//! What single values of a body must be like.

use std::time::Duration;

use protocol::container::Body;
use protocol::wire::body_fits;
use scheduler::input::Details;

use super::super::code::Code;
use super::super::problem::{Problem, shown};
use super::super::query::{duration, nearest};
use super::notes::Notes;

/// The rules of single values.
impl Notes {
    pub(super) fn unknown_field(&self, name: &str, named: bool) {
        let known = FIELDS.iter().copied().skip(usize::from(!named));
        let hint = match nearest(name, known.clone()).first() {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("the fields are {}", known.collect::<Vec<_>>().join(", ")),
        };
        let detail = format!("there is no field \"{}\"", shown(name));
        self.fault(Code::UnknownField, shown(name), detail, Some(hint));
    }

    pub(super) fn priority(&self, priority: i64) -> Option<i8> {
        let fits = i8::try_from(priority).ok().filter(|fits| (-PRIORITY_MAX..=PRIORITY_MAX).contains(fits));
        if fits.is_none() {
            let detail = format!("{priority} is not within -{PRIORITY_MAX} to {PRIORITY_MAX}");
            self.fault(Code::OutOfRange, "priority".into(), detail, None);
        }
        fits
    }

    pub(super) fn timeout(&self, text: &str) -> Option<Option<Duration>> {
        if text == "none" {
            return Some(None);
        }
        let fits = duration(text).filter(|fits| (TIMEOUT_MIN..=TIMEOUT_MAX).contains(fits));
        if fits.is_none() {
            let detail = format!("\"{}\" is not a duration from 1s to 30d", shown(text));
            let hint = "write 90s, 1h30m, or none".to_owned();
            self.fault(Code::InvalidDuration, "timeout".into(), detail, Some(hint));
        }
        fits.map(Some)
    }

    pub(super) fn check(&self, details: &Details) {
        for (name, value) in &details.body.environment {
            self.variable(name, value);
        }
        for (index, arg) in details.body.args.iter().enumerate() {
            self.plain(arg, ARG_BYTES_MAX, || format!("args[{index}]"));
        }
        for (name, value) in &details.labels {
            self.label(name, value);
        }
        if details.labels.len() > LABELS_MAX {
            let detail = format!("{} labels are too many (max {LABELS_MAX})", details.labels.len());
            self.fault(Code::TooLong, "labels".into(), detail, None);
        }
        if let Err(misfit) = fits(&details.body) {
            self.fault(Code::TooLong, misfit.0, misfit.1, None);
        }
    }

    fn variable(&self, name: &str, value: &str) {
        let field = || format!("environment.{}", shown(name));
        if !is_variable_name(name) {
            let detail = format!("\"{}\" cannot be the name of a variable", shown(name));
            let hint = "letters, digits and _, not beginning with a digit, at most 128".to_owned();
            self.fault(Code::InvalidEnvName, field(), detail, Some(hint));
        } else if name.starts_with("LONGSHORE_") {
            let detail = format!("{name} is reserved: Longshore sets the variables LONGSHORE_* itself");
            self.fault(Code::ReservedName, field(), detail, None);
        } else if value.contains(['\n', '\r']) {
            let hint = "mount a file, or encode the value as base64".to_owned();
            self.fault(Code::EnvNewlineUnsupported, field(), "the value holds a line break", Some(hint));
        } else {
            self.plain(value, VALUE_BYTES_MAX, field);
        }
    }

    fn label(&self, name: &str, value: &str) {
        if let Some((detail, hint)) = label_misfit(name, value) {
            self.fault(Code::InvalidLabel, format!("labels.{}", shown(name)), detail, Some(hint));
        }
    }

    fn plain(&self, text: &str, bytes_max: usize, field: impl Fn() -> String) {
        if text.contains('\0') {
            self.fault(Code::NulByte, field(), "the text holds a NUL", None);
        }
        if text.len() > bytes_max {
            let detail = format!("{} bytes are too long (max {bytes_max})", text.len());
            self.fault(Code::TooLong, field(), detail, None);
        }
    }
}

/// What is wrong with a label, and how it would be right.
fn label_misfit(name: &str, value: &str) -> Option<(String, String)> {
    let is_name = !name.is_empty()
        && name.len() <= LABEL_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte));
    let is_value = value.len() <= LABEL_BYTES_MAX && !value.chars().any(char::is_control);
    if is_name && is_value {
        return None;
    }
    let part = if is_name { "value" } else { "name" };
    let hint = format!(
        "a name is 1 to {LABEL_BYTES_MAX} of A-Z a-z 0-9 . _ - /, a value at most {LABEL_BYTES_MAX} bytes in one line"
    );
    Some((format!("the {part} of this label is not allowed"), hint))
}

/// What is wrong with a label of anything, if something is.
pub(in super::super) fn label_fault(name: &str, value: &str) -> Option<Problem> {
    let (detail, hint) = label_misfit(name, value)?;
    Some(Problem::new(Code::InvalidLabel, detail).field(format!("labels.{}", shown(name))).hint(hint))
}

fn fits(body: &Body) -> Result<(), (String, String)> {
    body_fits(body).map_err(|misfit| (misfit.field.to_owned(), misfit.why))
}

fn is_variable_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.len() <= NAME_BYTES_MAX
}

/// The name first: only entries of a batch have one.
pub(super) const FIELDS: [&str; 6] = ["name", "environment", "args", "priority", "timeout", "labels"];

const PRIORITY_MAX: i8 = 100;
const TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
const LABELS_MAX: usize = 64;
const LABEL_BYTES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 128;

/// As for variables of a definition.
const VALUE_BYTES_MAX: usize = 32 << 10;

/// Linux takes no longer word on a command line (`MAX_ARG_STRLEN`, in which the NUL behind it counts).
const ARG_BYTES_MAX: usize = (128 << 10) - 1;
