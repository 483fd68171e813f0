//! The field `after`: which jobs and batches a job waits for.

use protocol::JobId;
use scheduler::dependencies::{Dependency, Predecessor, PredecessorId, RequiredEnd};
use serde_json::Value;

use super::collector::FaultCollector;
use crate::excerpt::excerpt;
use crate::http::middleware::code::ProblemCode;

/// A job waits for this many others at most. A job that is to follow very many can follow one that follows them.
pub(crate) const AFTER_MAX: usize = 1_000;

/// The jobs that a job of a request waits for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::http::request::job_request) struct After {
    /// Jobs and batches that exist.
    pub(super) existing: Vec<Dependency>,
    /// Names of other entries of the same list.
    pub(super) entries: Vec<(String, RequiredEnd)>,
}

impl FaultCollector {
    /// Reads the field. Each entry is the number of a job, the name of an entry of the same list, or an object with one of them, or a batch,
    /// and the end that is required.
    pub(super) fn after(&self, value: Value, has_names: bool) -> After {
        let mut after = After::default();
        let Value::Array(list) = value else {
            let hint = if has_names { WITH_NAMES } else { WITHOUT_NAMES };
            let detail = "it is a list, also of one job".to_owned();
            self.fault(
                ProblemCode::InvalidDependency,
                "after".into(),
                detail,
                Some(format!("{hint}, within [ ]")),
            );
            return after;
        };
        if list.len() > AFTER_MAX {
            let detail =
                format!("a job comes after {AFTER_MAX} others at most, and these are {}", list.len());
            let hint = "let one job come after many, and others after that one".to_owned();
            self.fault(ProblemCode::InvalidDependency, "after".into(), detail, Some(hint));
            return after;
        }
        for (index, entry) in list.into_iter().enumerate() {
            let field = format!("after[{index}]");
            match read(entry, has_names) {
                Ok((Target::Existing(on), requires)) => {
                    let dependency = Dependency { on: Predecessor::Live(on), requires };
                    if after.existing.iter().any(|known| known.on == dependency.on) {
                        self.fault(
                            ProblemCode::InvalidDependency,
                            field,
                            format!("{on} is named twice"),
                            None,
                        );
                    }
                    after.existing.push(dependency);
                }
                Ok((Target::Entry(name), requires)) => {
                    if after.entries.iter().any(|(known, _)| *known == name) {
                        let detail = format!("\"{}\" is named twice", excerpt(&name));
                        self.fault(ProblemCode::InvalidDependency, field, detail, None);
                    }
                    after.entries.push((name, requires));
                }
                Err(detail) => {
                    let hint = if has_names { WITH_NAMES } else { WITHOUT_NAMES };
                    self.fault(ProblemCode::InvalidDependency, field, detail, Some(hint.into()));
                }
            }
        }
        after
    }

    /// Reads the name of an entry within its list.
    pub(super) fn entry_name(&self, name: &str) -> Option<String> {
        let fits = (1..=ENTRY_NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
        if !fits {
            let detail = format!("\"{}\" cannot be the name of an entry", excerpt(name));
            let hint = format!("a name is 1 to {ENTRY_NAME_BYTES_MAX} bytes in one line");
            self.fault(ProblemCode::InvalidDependency, "as".into(), detail, Some(hint));
        }
        fits.then(|| name.to_owned())
    }
}

enum Target {
    Existing(PredecessorId),
    Entry(String),
}

fn read(entry: Value, has_names: bool) -> Result<(Target, RequiredEnd), String> {
    let wrong = || "that names neither a job nor a batch".to_owned();
    let target = |key: &str, value: Value| match (key, value) {
        ("job" | "batch", Value::Number(number)) => {
            let number = number.as_u64().filter(|number| (1..=i64::MAX.unsigned_abs()).contains(number));
            let number = JobId(number.ok_or_else(wrong)?);
            let id = if key == "batch" { PredecessorId::Batch } else { PredecessorId::Job };
            Ok(Target::Existing(id(number)))
        }
        ("name", Value::String(name)) if has_names => Ok(Target::Entry(name)),
        ("name", Value::String(_)) => Err("only an entry of a list of jobs can name another one".to_owned()),
        _ => Err(wrong()),
    };
    match entry {
        number @ Value::Number(_) => Ok((target("job", number)?, RequiredEnd::default())),
        name @ Value::String(_) => Ok((target("name", name)?, RequiredEnd::default())),
        Value::Object(fields) => {
            let mut found = None;
            let mut requires = RequiredEnd::default();
            for (key, value) in fields {
                match (key.as_str(), value) {
                    ("job" | "batch" | "name", _) if found.is_some() => {
                        return Err("job, batch and name exclude each other".to_owned());
                    }
                    ("job" | "batch" | "name", value) => found = Some(target(&key, value)?),
                    ("outcome", Value::String(name)) => {
                        requires = RequiredEnd::named(&name).ok_or_else(|| {
                            let known = RequiredEnd::ALL.map(RequiredEnd::name).join(", ");
                            format!("there is no outcome \"{}\"; there are {known}", excerpt(&name))
                        })?;
                    }
                    ("outcome", _) => return Err("outcome is not a string".to_owned()),
                    _ => return Err(format!("there is no field \"{}\"", excerpt(&key))),
                }
            }
            Ok((found.ok_or_else(wrong)?, requires))
        }
        _ => Err(wrong()),
    }
}

const WITHOUT_NAMES: &str =
    "write the number of a job or a batch: 12, {\"job\": 12, \"outcome\": \"failed\"}, or {\"batch\": 100}";
const WITH_NAMES: &str = "write the number of a job or a batch, or the name of an entry: 12, {\"batch\": 100}, \"extract\", or {\"name\": \"extract\", \"outcome\": \"ended\"}";

/// As long as the name of a batch.
const ENTRY_NAME_BYTES_MAX: usize = 256;
