//! A job as a client asks for it: JSON text to [`NewJob`], with all faults at once.
//!
//! The text is read in one pass and nothing is kept of it but what the job adds to its definition, so that a batch of many small
//! entries costs next to nothing. What is broken (no JSON, a key twice, too deep) ends the reading at once; what is merely wrong is
//! noted, and the reading goes on.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use protocol::container::Body;
use protocol::wire::body_fits;
use scheduler::input::{Details, NewJob};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

use super::code::Code;
use super::problem::{Problem, shown};
use super::query::{duration, nearest};
use super::view::Fault;

/// A job that somebody asks for; its revision is still to be found.
#[derive(Debug, Default)]
pub(super) struct Wanted<'b> {
    /// Of which definition, if the entry says so.
    pub(super) name: Option<Cow<'b, str>>,
    /// All the rest.
    pub(super) job: NewJob,
}

/// Reads the body of a request for one job. An empty one asks for nothing special.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read_one(text: &[u8]) -> Result<NewJob, Problem> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(NewJob::default());
    }
    let notes = Notes::default();
    Ok(read_object(text, &notes, Entry { named: false, notes: &notes })?.job)
}

/// Reads lines of JSON and hands each entry to `take`. Empty lines are skipped.
///
/// # Errors
/// What is wrong with the first entry that is wrong.
pub(super) fn read_lines(
    text: &[u8],
    mut take: impl FnMut(Wanted<'_>) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let mut index = 0;
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let notes = Notes::default();
        notes.entry.replace(Some((index, Some(number + 1))));
        take(read_object(line, &notes, Entry { named: true, notes: &notes })?)
            .map_err(|problem| notes.place(problem))?;
        index += 1;
    }
    Ok(())
}

/// Reads a JSON array and hands each entry to `take`.
///
/// # Errors
/// What is wrong with the first entry that is wrong.
pub(super) fn read_array<'b>(
    text: &'b [u8],
    take: impl FnMut(Wanted<'b>) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let notes = Notes::default();
    read_object(text, &notes, Entries { notes: &notes, take })
}

fn read_object<'b, S: DeserializeSeed<'b>>(
    text: &'b [u8],
    notes: &Notes,
    seed: S,
) -> Result<S::Value, Problem> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let read = seed.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    match read {
        Ok(value) if notes.faults.borrow().is_empty() => Ok(value),
        Ok(_) if depth(text) > DEPTH_MAX => Err(too_deep()),
        Ok(_) => Err(notes.refusal()),
        Err(_) if notes.fatal.borrow().is_some() => Err(notes.refusal()),
        Err(_) if depth(text) > DEPTH_MAX => Err(too_deep()),
        Err(error) => Err(notes.broken(&error, text)),
    }
}

/// Where the reading stands, and what was found to be wrong.
#[derive(Debug, Default)]
struct Notes {
    entry: RefCell<Option<(usize, Option<usize>)>>,
    field: RefCell<Cow<'static, str>>,
    faults: RefCell<Vec<(Code, Fault)>>,
    fatal: RefCell<Option<Problem>>,
}

impl Notes {
    fn at(&self, field: impl Into<Cow<'static, str>>) {
        self.field.replace(field.into());
    }

    fn fault(&self, code: Code, field: String, detail: impl Into<String>, hint: Option<String>) {
        let mut faults = self.faults.borrow_mut();
        if faults.len() < FAULTS_MAX {
            faults.push((code, Fault { code: code.name().into(), field, detail: detail.into(), hint }));
        }
    }

    /// Ends the reading: the text cannot be trusted any further.
    fn end<E: serde::de::Error>(&self, problem: Problem) -> E {
        self.fatal.replace(Some(problem));
        E::custom("see the notes")
    }

    fn broken(&self, error: &serde_json::Error, text: &[u8]) -> Problem {
        let message = error.to_string();
        let what = message.rsplit_once(" at line ").map_or(message.as_str(), |(what, _)| what);
        let problem = match error.classify() {
            // What was given instead may be a secret.
            Category::Data => {
                let expected =
                    what.rsplit_once(", expected ").map_or("another type", |(_, expected)| expected);
                Problem::new(Code::InvalidType, format!("expected {expected}"))
                    .field(self.field.borrow().clone())
            }
            _ => Problem::new(
                Code::InvalidJson,
                format!("{} at byte {}", shown(what), offset(text, error.line(), error.column())),
            ),
        };
        self.place(problem)
    }

    fn refusal(&self) -> Problem {
        let problem = match self.fatal.take() {
            Some(fatal) => fatal,
            None => Problem::faults(self.faults.take()),
        };
        self.place(problem)
    }

    /// Says which entry of a batch is meant.
    fn place(&self, problem: Problem) -> Problem {
        match *self.entry.borrow() {
            None => problem,
            Some((index, line)) => problem.within(&format!("jobs[{index}]"), line),
        }
    }
}

/// The entries of an array.
struct Entries<'n, T> {
    notes: &'n Notes,
    take: T,
}

impl<'de, T: FnMut(Wanted<'de>) -> Result<(), Problem>> DeserializeSeed<'de> for Entries<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: FnMut(Wanted<'de>) -> Result<(), Problem>> Visitor<'de> for Entries<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of jobs")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        let notes = self.notes;
        for index in 0.. {
            notes.entry.replace(Some((index, None)));
            let Some(wanted) = list.next_element_seed(Entry { named: true, notes })? else { break };
            if !notes.faults.borrow().is_empty() {
                // The first wrong entry is told with all of its faults; those after it are not looked at.
                let faults = notes.faults.take();
                return Err(notes.end(Problem::faults(faults)));
            }
            (self.take)(wanted).map_err(|problem| notes.end(problem))?;
        }
        notes.entry.replace(None);
        Ok(())
    }
}

/// One object: a job.
struct Entry<'n> {
    named: bool,
    notes: &'n Notes,
}

impl<'de> DeserializeSeed<'de> for Entry<'_> {
    type Value = Wanted<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.notes.at("");
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entry<'_> {
    type Value = Wanted<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let notes = self.notes;
        let mut wanted = Wanted::default();
        let mut details = Details::default();
        let mut seen = 0_u8;
        while let Some(field) = map.next_key_seed(FieldName { named: self.named })? {
            let name = match field {
                Field::Known(index) => FIELDS[index],
                Field::Unknown(name) => {
                    notes.unknown_field(&name, self.named);
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let bit = 1 << FIELDS.iter().position(|known| *known == name).unwrap_or_default();
            if seen & bit != 0 {
                return Err(notes.end(twice(name)));
            }
            seen |= bit;
            notes.at(name);
            match name {
                "name" => wanted.name = Some(map.next_value_seed(Text)?),
                "environment" => {
                    details.body.environment = map.next_value_seed(Pairs { of: name, notes })?;
                }
                "args" => details.body.args = map.next_value()?,
                "priority" => wanted.job.priority = notes.priority(map.next_value()?),
                "timeout" => wanted.job.timeout = notes.timeout(&map.next_value_seed(Text)?),
                _ => details.labels = map.next_value_seed(Pairs { of: name, notes })?,
            }
        }
        notes.check(&details);
        if !details.body.is_empty() || !details.labels.is_empty() {
            wanted.job.details = Some(Box::new(details));
        }
        Ok(wanted)
    }
}

/// The rules of single values.
impl Notes {
    fn unknown_field(&self, name: &str, named: bool) {
        let known = FIELDS.iter().copied().skip(usize::from(!named));
        let hint = match nearest(name, known.clone()).first() {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("the fields are {}", known.collect::<Vec<_>>().join(", ")),
        };
        let detail = format!("there is no field \"{}\"", shown(name));
        self.fault(Code::UnknownField, shown(name), detail, Some(hint));
    }

    fn priority(&self, priority: i64) -> Option<i8> {
        let fits = i8::try_from(priority).ok().filter(|fits| (-PRIORITY_MAX..=PRIORITY_MAX).contains(fits));
        if fits.is_none() {
            let detail = format!("{priority} is not within -{PRIORITY_MAX} to {PRIORITY_MAX}");
            self.fault(Code::OutOfRange, "priority".into(), detail, None);
        }
        fits
    }

    fn timeout(&self, text: &str) -> Option<Option<Duration>> {
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

    fn check(&self, details: &Details) {
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
        let is_name = !name.is_empty()
            && name.len() <= LABEL_BYTES_MAX
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte));
        let is_value = value.len() <= LABEL_BYTES_MAX && !value.chars().any(char::is_control);
        if !is_name || !is_value {
            let hint = format!(
                "a name is 1 to {LABEL_BYTES_MAX} of A-Z a-z 0-9 . _ - /, a value at most {LABEL_BYTES_MAX} bytes in one line"
            );
            let part = if is_name { "value" } else { "name" };
            let detail = format!("the {part} of this label is not allowed");
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

enum Field {
    Known(usize),
    Unknown(String),
}

struct FieldName {
    named: bool,
}

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = Field;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Field, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for FieldName {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, name: &str) -> Result<Field, E> {
        let known = FIELDS.iter().position(|known| *known == name);
        Ok(match known {
            Some(index) if self.named || index > 0 => Field::Known(index),
            _ => Field::Unknown(name.to_owned()),
        })
    }
}

/// A text, borrowed from the body where it has no escapes.
struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// An object of strings, in its order.
struct Pairs<'n> {
    of: &'static str,
    notes: &'n Notes,
}

impl<'de> DeserializeSeed<'de> for Pairs<'_> {
    type Value = Vec<(String, String)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Pairs<'_> {
    type Value = Vec<(String, String)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs: Self::Value = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            match map.next_value::<String>() {
                Ok(value) => pairs.push((name, value)),
                Err(error) => {
                    self.notes.at(format!("{}.{}", self.of, shown(&name)));
                    return Err(error);
                }
            }
        }
        match repeated(&pairs) {
            Some(name) => Err(self.notes.end(twice(&format!("{}.{}", self.of, shown(name))))),
            None => Ok(pairs),
        }
    }
}

fn repeated(pairs: &[(String, String)]) -> Option<&str> {
    if pairs.len() < 2 {
        return None;
    }
    let mut seen = HashSet::with_capacity(pairs.len());
    pairs.iter().map(|(name, _)| name.as_str()).find(|name| !seen.insert(*name))
}

fn twice(field: &str) -> Problem {
    Problem::new(Code::DuplicateKey, format!("\"{field}\" appears twice")).field(field)
}

fn too_deep() -> Problem {
    Problem::new(Code::TooDeep, format!("the JSON is nested deeper than {DEPTH_MAX}"))
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

/// How deep the brackets go, strings aside. Asked only about a text that is refused anyway.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The offset of a line and column, both from 1.
fn offset(text: &[u8], line: usize, column: usize) -> usize {
    let before: usize =
        text.split_inclusive(|byte| *byte == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    before + column.saturating_sub(1)
}

/// The name first: only entries of a batch have one.
const FIELDS: [&str; 6] = ["name", "environment", "args", "priority", "timeout", "labels"];

const DEPTH_MAX: usize = 32;
const FAULTS_MAX: usize = 50;
const PRIORITY_MAX: i8 = 100;
const TIMEOUT_MIN: Duration = Duration::from_secs(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
const LABELS_MAX: usize = 64;
const LABEL_BYTES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 128;

/// As for variables of a definition.
const VALUE_BYTES_MAX: usize = 32 << 10;

/// Linux takes no longer word on a command line (`MAX_ARG_STRLEN`).
const ARG_BYTES_MAX: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Code {
        read_one(text.as_bytes()).unwrap_err().code()
    }

    #[test]
    fn an_empty_body_asks_for_nothing_special() {
        assert!(read_one(b" \n").unwrap().details.is_none());
        assert!(read_one(b"{}").unwrap().details.is_none());
    }

    #[test]
    fn every_field_is_read() {
        let job = read_one(
            br#"{"environment":{"A":"1","B":"\u00e9"},"args":["x"],"priority":-100,"timeout":"1h30m","labels":{"t":"web"}}"#,
        )
        .unwrap();
        let details = job.details.unwrap();
        assert_eq!(details.body.environment, [("A".into(), "1".into()), ("B".into(), "é".into())]);
        assert_eq!(details.body.args, ["x"]);
        assert_eq!(details.labels, [("t".into(), "web".into())]);
        assert_eq!(job.priority, Some(-100));
        assert_eq!(job.timeout, Some(Some(Duration::from_secs(5400))));
        assert_eq!(read_one(br#"{"timeout":"none"}"#).unwrap().timeout, Some(None));
    }

    #[test]
    fn what_is_no_json_is_told_with_its_offset() {
        let problem = read_one(b"{\n\"args\": [}").unwrap_err();
        assert_eq!(problem.code(), Code::InvalidJson);
        assert!(format!("{problem:?}").contains("at byte 11"), "{problem:?}");
    }

    #[test]
    fn tricks_with_json_are_refused() {
        let deep = format!("{{\"x\":{}{}}}", "[".repeat(1000), "]".repeat(1000));
        assert_eq!(code(&deep), Code::TooDeep);
        assert_eq!(code(&"[".repeat(1000)), Code::TooDeep);
        assert_eq!(code(r#"{"args":[],"args":[]}"#), Code::DuplicateKey);
        assert_eq!(code(r#"{"environment":{"A":"1","A":"2"}}"#), Code::DuplicateKey);
        assert_eq!(code(r#"{"priority":1e400}"#), Code::InvalidJson);
        assert_eq!(code(r#"{"args":["\ud800"]}"#), Code::InvalidJson);
        assert_eq!(code("{} {}"), Code::InvalidJson);
        assert_eq!(read_one(b"{\"args\":[\"\xff\"]}").unwrap_err().code(), Code::InvalidJson);
    }

    #[test]
    fn wrong_values_get_the_code_of_their_fault() {
        assert_eq!(code("[]"), Code::InvalidType);
        assert_eq!(code(r#"{"args":"x"}"#), Code::InvalidType);
        assert_eq!(code(r#"{"priority":1.5}"#), Code::InvalidType);
        assert_eq!(code(r#"{"timeout":90}"#), Code::InvalidType);
        assert_eq!(code(r#"{"environment":{"A":1}}"#), Code::InvalidType);
        assert_eq!(code(r#"{"priority":101}"#), Code::OutOfRange);
        assert_eq!(code(r#"{"timeout":"-5s"}"#), Code::InvalidDuration);
        assert_eq!(code(r#"{"timeout":"31d"}"#), Code::InvalidDuration);
        assert_eq!(code(r#"{"environment":{"1X":""}}"#), Code::InvalidEnvName);
        assert_eq!(code(r#"{"environment":{"A=B":""}}"#), Code::InvalidEnvName);
        assert_eq!(code(r#"{"environment":{"LONGSHORE_JOB":""}}"#), Code::ReservedName);
        assert_eq!(code(r#"{"environment":{"A":"x\ny"}}"#), Code::EnvNewlineUnsupported);
        assert_eq!(code(r#"{"environment":{"A":"\u0000"}}"#), Code::NulByte);
        assert_eq!(code(r#"{"args":["a\u0000"]}"#), Code::NulByte);
        assert_eq!(code(r#"{"labels":{"a b":""}}"#), Code::InvalidLabel);
        assert_eq!(code(r#"{"labels":{"a":"x\ny"}}"#), Code::InvalidLabel);
        assert_eq!(code(r#"{"imgae":1}"#), Code::UnknownField);
        assert_eq!(code(r#"{"name":"x"}"#), Code::UnknownField);
        assert_eq!(
            code(&format!("{{\"environment\":{{\"A\":\"{}\"}}}}", "x".repeat(40 << 10))),
            Code::TooLong
        );
        let long = "x".repeat(100 << 10);
        let args = [long.as_str(); 6].join("\",\"");
        assert_eq!(code(&format!("{{\"args\":[\"{args}\"]}}")), Code::TooLong);
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let problem = read_one(br#"{"priority":101,"tiemout":"x","timeout":"x"}"#).unwrap_err();
        let text = format!("{problem:?}");
        for field in ["priority", "tiemout", "timeout"] {
            assert!(text.contains(&format!("field: \"{field}\"")), "{text}");
        }
    }

    #[test]
    fn lines_and_arrays_give_the_same_jobs() {
        let mut from_lines = Vec::new();
        read_lines(b"{\"name\":\"a\"}\n\n{\"name\":\"b\",\"args\":[\"1\"]}\r\n", |wanted| {
            from_lines.push((wanted.name.unwrap().into_owned(), wanted.job.details));
            Ok(())
        })
        .unwrap();
        let mut from_array = Vec::new();
        read_array(br#"[{"name":"a"},{"name":"b","args":["1"]}]"#, |wanted| {
            from_array.push((wanted.name.unwrap().into_owned(), wanted.job.details));
            Ok(())
        })
        .unwrap();
        assert_eq!(from_lines, from_array);
        assert_eq!(from_lines.len(), 2);
    }

    #[test]
    fn a_fault_within_a_batch_names_its_entry() {
        let lines = read_lines(b"{\"name\":\"a\"}\n\n{\"priority\":200}", |_| Ok(())).unwrap_err();
        let text = format!("{lines:?}");
        assert!(text.contains("jobs[1].priority") && text.contains("line 3"), "{text}");
        let array = read_array(br#"[{"name":"a"},{"args":[1]}]"#, |_| Ok(())).unwrap_err();
        assert!(format!("{array:?}").contains("jobs[1].args"), "{array:?}");
    }
}
