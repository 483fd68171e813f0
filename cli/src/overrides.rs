//! The fields of a submission that `run` and `retry` can set: beside the definition, and over what the retried job had.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::failure::{Exit, Failure};
use crate::screen;
use crate::{duration, local_time};

/// Fields of a job that replace what it has otherwise. Labels and arguments are flags of each verb, because `run` and `retry` use them
/// differently.
#[derive(Debug, clap::Args)]
pub(crate) struct Overrides {
    /// Parameter of the definition; 'longshore run NAME --help' lists them. May be repeated.
    #[arg(short = 'p', long = "param", value_name = "NAME=VALUE", value_parser = pair)]
    params: Vec<(String, String)>,
    /// JSON file for the job's input, or - for stdin; the job reads it at the path in LONGSHORE_INPUT.
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Environment variable for the job; without a value it is taken from this environment. May be repeated.
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]", value_parser = variable)]
    environment: Vec<(String, String)>,
    /// Priority from −100 to 100, higher first [default: the definition's; of a retry, the job's].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-100..=100))]
    priority: Option<i8>,
    /// Time limit of an attempt (90s, 1h30m, none) [default: the definition's; of a retry, the job's].
    #[arg(long, value_name = "DURATION", value_parser = timeout)]
    timeout: Option<String>,
    /// Start it no earlier than this time: 18:30 (the next one), "2026-03-01 18:30", or with its zone 2026-03-01T18:30:00Z.
    #[arg(long, value_name = "TIME", conflicts_with = "delay")]
    at: Option<String>,
    /// The zone of a time that names none, such as Europe/Berlin [default: that of this machine].
    #[arg(long, value_name = "ZONE", requires = "at")]
    timezone: Option<String>,
    /// Start it no earlier than this long after it was accepted: 250ms, 90s, 1h30m.
    #[arg(long, value_name = "DURATION", value_parser = delay)]
    delay: Option<String>,
    /// Unique key, instead of the definition's; for a definition with `unique`.
    #[arg(long, value_name = "KEY")]
    pub(crate) unique_key: Option<String>,
    /// Run it on this worker, by name or id, or on one with this label (rack=7, cores>=8), of those that the definition allows. May be repeated:
    /// any of the workers, all of the labels.
    #[arg(long, value_name = "WORKER|LABEL", add = crate::completions::workers())]
    on: Vec<String>,
    /// Start after this job has succeeded, or all members of a batch (batch:100); with :failed, :not_succeeded or :ended, after that outcome. May be repeated.
    #[arg(long, value_name = "ID[:OUTCOME]", value_parser = crate::pipelines::parse_after)]
    after: Vec<Value>,
}

impl Overrides {
    /// True if [`Overrides::fields`] reads standard input.
    pub(crate) fn reads_stdin(&self) -> bool {
        self.input.as_deref().is_some_and(|file| file.as_os_str() == "-")
    }

    /// True if a flag is given.
    pub(crate) fn are_given(&self) -> bool {
        !self.params.is_empty()
            || self.input.is_some()
            || !self.environment.is_empty()
            || self.priority.is_some()
            || self.timeout.is_some()
            || self.at.is_some()
            || self.delay.is_some()
            || self.unique_key.is_some()
            || !self.on.is_empty()
            || !self.after.is_empty()
    }

    /// The fields as the body of a submission has them. Reads the input, and notes the instant of a local time unless the verb is quiet.
    pub(crate) fn fields(&self, quiet: bool) -> Result<Map<String, Value>, Failure> {
        let (requires, workers): (Vec<&str>, Vec<&str>) =
            self.on.iter().map(String::as_str).partition(|text| is_condition(text));
        // An id is written as for the verbs about workers.
        let workers: Vec<&str> =
            workers.into_iter().map(|text| text.strip_prefix("id:").unwrap_or(text)).collect();
        let at = self.at.as_deref().map(|at| local_time::instant("--at", at, self.timezone.as_deref()));
        // Wrong flags are refused before standard input is read.
        let (at, params, environment) = (
            at.transpose()?,
            object(&self.params, "the parameter")?,
            object(&self.environment, "the variable")?,
        );
        let input = self.input.as_deref().map(read_input).transpose()?;
        if let (Some(at), false) = (&at, quiet) {
            at.tell();
        }
        let parts = [
            ("params", params),
            ("input", input),
            ("environment", environment),
            ("priority", self.priority.map(|priority| json!(priority))),
            ("timeout", self.timeout.as_ref().map(|timeout| json!(timeout))),
            ("run_at", at.map(|at| json!(at.utc))),
            ("delay", self.delay.as_ref().map(|delay| json!(delay))),
            ("unique_key", self.unique_key.as_ref().map(|key| json!(key))),
            ("workers", (!workers.is_empty()).then(|| json!(workers))),
            ("requires", (!requires.is_empty()).then(|| json!(requires))),
            ("after", (!self.after.is_empty()).then(|| json!(self.after))),
        ];
        Ok(parts.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
    }
}

/// True for a condition on a label, which has a sign that no name of a worker has.
fn is_condition(text: &str) -> bool {
    text.contains(['=', '!', '<', '>', '('])
}

/// The pairs as an object; nothing if there are none. A name that is given twice is refused, because one of its values would be lost.
pub(crate) fn object(pairs: &[(String, String)], noun: &str) -> Result<Option<Value>, Failure> {
    let mut object = Map::new();
    for (name, value) in pairs {
        if object.insert(name.clone(), Value::String(value.clone())).is_some() {
            let text = format!("{noun} \"{}\" is given more than once", screen::visible(name));
            return Err(Failure::new(Exit::Usage, text).hint("give it once; a list is one value with commas"));
        }
    }
    Ok((!object.is_empty()).then_some(Value::Object(object)))
}

/// Reads JSON from a file, or from stdin.
fn read_input(file: &Path) -> Result<Value, Failure> {
    let name = file.display();
    let read = match file.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()),
        false => std::fs::read_to_string(file),
    };
    let text =
        read.map_err(|error| Failure::new(Exit::Usage, format!("cannot read the input {name}: {error}")))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::new(Exit::Usage, format!("the input {name} is not JSON: {error}")))
}

/// Reads `NAME=VALUE`, or the name of a variable of the environment here.
fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("the name is missing".to_owned()),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => match std::env::var(text) {
            Ok(value) => Ok((text.to_owned(), value)),
            Err(std::env::VarError::NotPresent) => Err("not set here; write NAME=VALUE".to_owned()),
            Err(std::env::VarError::NotUnicode(_)) => Err("its value here is not UTF-8".to_owned()),
        },
    }
}

/// Reads `KEY=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it KEY=VALUE".to_owned()),
    }
}

/// Checks the form only; the server parses it again.
fn timeout(text: &str) -> Result<String, String> {
    if text != "none" {
        duration::parse(text).map_err(|why| format!("{why}, or none"))?;
    }
    Ok(text.to_owned())
}

/// Checks the time until a start.
pub(crate) fn delay(text: &str) -> Result<String, String> {
    duration::parse(text)?;
    Ok(text.to_owned())
}
