//! Rules for single values of a job request.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use protocol::container::{INPUT_BYTES_MAX, Overrides};
use protocol::wire::overrides_fit_with;
use protocol::{Timestamp, labels};
use scheduler::batches::{BatchUnique, MayReplace};
use scheduler::details::JobDetails;
use scheduler::job::AttemptTimeout;
use scheduler::limits::rules::OnDuplicate;
use scheduler::new_jobs::StartTime;

use super::batch_fields::BatchFields;
use super::collector::FaultCollector;
use super::fields::{EntryKind, FIELDS};
use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::query::{duration, nearest};
use crate::own_variables::{OWN_BYTES, OWN_VARIABLES};

/// Checks of single values.
impl FaultCollector {
    pub(super) fn unknown_field(&self, name: &str, kind: EntryKind) {
        let known = FIELDS[kind.fields()].iter().copied();
        let short = SHORT_NAMES.iter().find(|(short, _)| *short == name).map(|(_, field)| *field);
        let short = short.filter(|field| known.clone().any(|it| it == *field)).map(str::to_owned);
        let hint = match short.or_else(|| nearest(name, known.clone()).into_iter().next()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("the fields are {}", known.collect::<Vec<_>>().join(", ")),
        };
        let detail = format!("there is no field \"{}\"", excerpt(name));
        self.fault(ProblemCode::UnknownField, excerpt(name), detail, Some(hint));
    }

    pub(super) fn priority(&self, priority: i64) -> Option<i8> {
        self.value("priority", self::priority(priority))
    }

    pub(super) fn count(&self, field: &'static str, count: i64) -> Option<u32> {
        self.value(field, self::count(count))
    }

    /// Checks what a request says about its jobs together.
    pub(super) fn check_batch(&self, batch: &BatchFields) {
        let fault = |field: &str, detail: String, hint: &str| {
            self.fault(ProblemCode::InvalidBatch, field.into(), detail, Some(hint.into()));
        };
        if batch.count.is_some() && batch.each.is_some() {
            fault(
                "each",
                "count and each exclude each other".into(),
                "the list says how many jobs there are",
            );
        }
        if let Some(Err((detail, hint))) = batch.options.name.as_deref().map(batch_name) {
            fault("batch_name", detail, &hint);
        }
    }

    /// Reads the unique key of a batch, and the answer if it is taken.
    pub(super) fn batch_unique(&self, key: Option<&str>, on_duplicate: Option<&str>) -> Option<BatchUnique> {
        self::batch_unique(key, on_duplicate).unwrap_or_else(|(field, (code, detail, hint))| {
            self.fault(code, field.into(), detail, Some(hint));
            None
        })
    }

    pub(super) fn timeout(&self, text: &str) -> Option<AttemptTimeout> {
        if text == "none" {
            return Some(AttemptTimeout::Unlimited);
        }
        let fits = duration(text).filter(|fits| (TIMEOUT_MIN..=TIMEOUT_MAX).contains(fits));
        if fits.is_none() {
            let detail = format!("\"{}\" is not a duration from 1s to 30d", excerpt(text));
            let hint = "write 90s, 1h30m, or none".to_owned();
            self.fault(ProblemCode::InvalidDuration, "timeout".into(), detail, Some(hint));
        }
        fits.map(AttemptTimeout::After)
    }

    pub(super) fn run_at(&self, text: &str) -> Option<StartTime> {
        self.value("run_at", instant(text).map(StartTime::At))
    }

    pub(super) fn delay(&self, text: &str) -> Option<StartTime> {
        self.value("delay", delay(text))
    }

    pub(super) fn unique_key(&self, key: &str) -> Option<Arc<str>> {
        self.value("unique_key", self::unique_key(key))
    }

    /// Records that both fields are given.
    pub(super) fn two_starts(&self) {
        let (code, detail, hint) = two_starts();
        self.fault(code, "delay".into(), detail, Some(hint));
    }

    fn value<T>(&self, field: &'static str, value: Result<T, ValueFault>) -> Option<T> {
        value.map_err(|(code, detail, hint)| self.fault(code, field.into(), detail, Some(hint))).ok()
    }

    pub(super) fn check(&self, details: &JobDetails) {
        for (name, value) in &details.overrides.environment {
            self.variable(name, value);
        }
        for (index, arg) in details.overrides.args.iter().enumerate() {
            self.plain(arg, ARG_BYTES_MAX, || format!("args[{index}]"));
        }
        for (name, value) in &details.labels {
            self.label(name, value);
        }
        self.check_totals(details);
    }

    /// Checks the numbers and the lengths of all overrides together.
    pub(super) fn check_totals(&self, details: &JobDetails) {
        if details.labels.len() > LABELS_MAX {
            let detail = format!("{} labels are too many (max {LABELS_MAX})", details.labels.len());
            self.fault(ProblemCode::TooLong, "labels".into(), detail, None);
        }
        if let Some(input) = details.overrides.input.as_ref().filter(|input| input.len() > INPUT_BYTES_MAX) {
            let detail = format!("{} bytes of JSON are too long (max {INPUT_BYTES_MAX})", input.len());
            self.fault(ProblemCode::TooLong, "input".into(), detail, None);
        }
        if let Err((field, why)) = fits(&details.overrides) {
            self.fault(ProblemCode::TooLong, field, why, None);
        }
    }

    fn variable(&self, name: &str, value: &str) {
        let field = || format!("environment.{}", excerpt(name));
        if !is_variable_name(name) {
            let detail = format!("\"{}\" cannot be the name of a variable", excerpt(name));
            let hint = "letters, digits and _, not beginning with a digit, at most 128".to_owned();
            self.fault(ProblemCode::InvalidEnvName, field(), detail, Some(hint));
        } else if name.starts_with("LONGSHORE_") {
            let detail = format!("{name} is reserved: Longshore sets the variables LONGSHORE_* itself");
            self.fault(ProblemCode::ReservedName, field(), detail, None);
        } else if value.contains(['\n', '\r']) {
            let hint = "mount a file, or encode the value as base64".to_owned();
            self.fault(
                ProblemCode::EnvNewlineUnsupported,
                field(),
                "the value holds a line break",
                Some(hint),
            );
        } else {
            self.plain(value, VALUE_BYTES_MAX, field);
        }
    }

    fn label(&self, name: &str, value: &str) {
        if let Some((detail, hint)) = check_label(name, value) {
            self.fault(ProblemCode::InvalidLabel, format!("labels.{}", excerpt(name)), detail, Some(hint));
        }
    }

    fn plain(&self, text: &str, bytes_max: usize, field: impl Fn() -> String) {
        if text.contains('\0') {
            self.fault(ProblemCode::NulByte, field(), "the text holds a NUL", None);
        }
        if text.len() > bytes_max {
            let detail = format!("{} bytes are too long (max {bytes_max})", text.len());
            self.fault(ProblemCode::TooLong, field(), detail, None);
        }
    }
}

/// Code, detail and hint of a value that cannot be used.
pub(crate) type ValueFault = (ProblemCode, String, String);

/// Reads an instant with its zone. Parts of a millisecond are rounded up, so that no job starts too early.
pub(crate) fn instant(text: &str) -> Result<Timestamp, ValueFault> {
    let fits = text.parse::<jiff::Timestamp>().ok().map(|at| {
        let rest = at.subsec_nanosecond().rem_euclid(1_000_000);
        (at.as_millisecond() - i64::from(at.as_millisecond() < 0 && rest > 0)) + i64::from(rest > 0)
    });
    fits.filter(|at| RUN_AT.contains(at)).map(Timestamp).ok_or_else(|| {
        let detail =
            format!("\"{}\" is not an instant with its zone in the years 2000 to 2199", excerpt(text));
        (
            ProblemCode::InvalidTime,
            detail,
            "write 2026-03-01T09:30:00Z or 2026-03-01T10:30:00.250+01:00".to_owned(),
        )
    })
}

/// Reads the time from the acceptance to the earliest start.
pub(super) fn delay(text: &str) -> Result<StartTime, ValueFault> {
    duration(text).filter(|delay| *delay <= DELAY_MAX).map(StartTime::After).ok_or_else(|| {
        let detail = format!("\"{}\" is not a duration up to 3650d", excerpt(text));
        (ProblemCode::InvalidDuration, detail, "write 250ms, 90s, 1h30m or 2d".to_owned())
    })
}

/// The fault of a request with both `run_at` and `delay`.
pub(super) fn two_starts() -> ValueFault {
    let detail = "run_at and delay exclude each other".to_owned();
    (ProblemCode::InvalidTime, detail, "give run_at for an instant, or delay for a time from now".to_owned())
}

/// Reads a number of jobs.
pub(crate) fn count(count: i64) -> Result<u32, ValueFault> {
    u32::try_from(count).ok().filter(|fits| (1..=MANY_MAX).contains(&(*fits as usize))).ok_or_else(|| {
        let detail = format!("{count} is not within 1 to {MANY_MAX}");
        (ProblemCode::OutOfRange, detail, "divide what is more into several requests".to_owned())
    })
}

/// Checks the name of a batch.
///
/// # Errors
/// The fault of the name, and advice.
pub(crate) fn batch_name(name: &str) -> Result<(), (String, String)> {
    let fits = (1..=LABEL_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
    let detail = format!("\"{}\" cannot be the name of a batch", excerpt(name));
    let hint = format!("a name is 1 to {LABEL_BYTES_MAX} bytes in one line");
    if fits { Ok(()) } else { Err((detail, hint)) }
}

/// Reads a unique key.
fn unique_key(key: &str) -> Result<Arc<str>, ValueFault> {
    let fits = (1..=UNIQUE_KEY_BYTES_MAX).contains(&key.len()) && !key.chars().any(char::is_control);
    let fault = || {
        let detail = format!("\"{}\" cannot be a unique key", excerpt(key));
        let hint = format!("a key is 1 to {UNIQUE_KEY_BYTES_MAX} bytes in one line");
        (ProblemCode::TooLong, detail, hint)
    };
    if fits { Ok(key.into()) } else { Err(fault()) }
}

/// Reads the unique key of a batch, and the answer if it is taken. Nobody's rights are looked up yet, so no batch may be replaced.
///
/// # Errors
/// The wrong field, and its fault.
pub(crate) fn batch_unique(
    key: Option<&str>,
    on_duplicate: Option<&str>,
) -> Result<Option<BatchUnique>, (&'static str, ValueFault)> {
    let Some(key) = key else {
        return match on_duplicate {
            None => Ok(None),
            Some(_) => Err((
                "on_duplicate",
                (
                    ProblemCode::InvalidBatch,
                    "on_duplicate is for a batch with a unique key".to_owned(),
                    "add batch_unique_key".to_owned(),
                ),
            )),
        };
    };
    let key = unique_key(key).map_err(|fault| ("batch_unique_key", fault))?;
    let on_duplicate = on_duplicate.map_or(Ok(OnDuplicate::default()), |name| {
        OnDuplicate::named(name).ok_or_else(|| {
            let detail = format!("there is no \"{}\"", excerpt(name));
            let names = OnDuplicate::ALL.map(|(name, _)| name).join(", ");
            ("on_duplicate", (ProblemCode::InvalidBatch, detail, format!("it is one of {names}")))
        })
    })?;
    Ok(Some(BatchUnique { key, on_duplicate, may_replace: MayReplace::None }))
}

/// Reads a priority.
pub(super) fn priority(priority: i64) -> Result<i8, ValueFault> {
    i8::try_from(priority).ok().filter(|fits| (-PRIORITY_MAX..=PRIORITY_MAX).contains(fits)).ok_or_else(
        || {
            let detail = format!("{priority} is not within -{PRIORITY_MAX} to {PRIORITY_MAX}");
            (ProblemCode::OutOfRange, detail, "a higher priority goes first".to_owned())
        },
    )
}

/// The fault of a label, and advice.
fn check_label(name: &str, value: &str) -> Option<(String, String)> {
    let is_name = labels::is_name(name) && name.len() <= LABEL_BYTES_MAX;
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

/// The problem of a label, if it is not allowed.
pub(crate) fn label_fault(name: &str, value: &str) -> Option<Problem> {
    let (detail, hint) = check_label(name, value)?;
    Some(
        Problem::new(ProblemCode::InvalidLabel, detail).field(format!("labels.{}", excerpt(name))).hint(hint),
    )
}

pub(super) fn fits(overrides: &Overrides) -> Result<(), (String, String)> {
    fits_beside(overrides, 0, 0)
}

/// The overrides fit beside this number of further variables, which have this number of bytes.
pub(super) fn fits_beside(
    overrides: &Overrides,
    variables: usize,
    bytes: usize,
) -> Result<(), (String, String)> {
    let own = POSITION_VARIABLES + PARENT_SLOT_VARIABLES + OWN_VARIABLES;
    let own_bytes = POSITION_BYTES + PARENT_SLOT_BYTES + OWN_BYTES;
    overrides_fit_with(overrides, own + variables, own_bytes + bytes)
        .map_err(|invalid| (invalid.field.to_owned(), invalid.why))
}

fn is_variable_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.len() <= NAME_BYTES_MAX
}

/// Room for the variables that tell a member of a batch its position.
const POSITION_VARIABLES: usize = 3;
const POSITION_BYTES: usize = 128;

/// Room for `LONGSHORE_PARENT_SCHEDULED_AT`.
const PARENT_SLOT_VARIABLES: usize = 1;
const PARENT_SLOT_BYTES: usize = 64;

/// From the beginning of 2000 to the end of 2199: other years are slips.
const RUN_AT: Range<i64> = 946_684_800_000..7_258_118_400_000;
/// Jobs of one request.
pub(crate) const MANY_MAX: usize = 100_000;
/// Bytes of their request.
pub(crate) const MANY_BYTES_MAX: usize = 64 << 20;

const DELAY_MAX: Duration = Duration::from_secs(3_650 * 24 * 3600);

const PRIORITY_MAX: i8 = 100;
const TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
const LABELS_MAX: usize = 64;
const LABEL_BYTES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 128;
const UNIQUE_KEY_BYTES_MAX: usize = 256;

/// The same limit as for variables of a definition.
const VALUE_BYTES_MAX: usize = 32 << 10;

/// Names that people use for fields, and that are too unlike them for [`nearest`].
const SHORT_NAMES: [(&str, &str); 4] =
    [("env", "environment"), ("key", "unique_key"), ("at", "run_at"), ("in", "delay")];

/// Linux allows no longer argument (`MAX_ARG_STRLEN`, including the NUL).
const ARG_BYTES_MAX: usize = (128 << 10) - 1;
