//! A job as a client asks for it: JSON text to [`NewJob`], with all faults at once.
//!
//! The text is read in one pass and nothing is kept of it but what the job adds to its definition, so that a batch of many small
//! entries costs next to nothing. What is broken (no JSON, a key twice, too deep) ends the reading at once; what is merely wrong is
//! noted, and the reading goes on.

mod json;
mod notes;
mod rules;

use std::borrow::Cow;

use scheduler::input::NewJob;
use serde::de::DeserializeSeed;

use super::code::Code;
use super::fields;
use super::problem::Problem;
use json::{Entries, Entry};
use notes::Notes;
pub(super) use rules::label_fault;

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
    match read_object(text, &notes, Entry { named: false, notes: &notes }) {
        Ok(wanted) => Ok(wanted.job),
        Err(problem) if problem.code() == Code::InvalidType => Err(field_by_field(text).unwrap_or(problem)),
        Err(problem) => Err(problem),
    }
}

/// All that is wrong with the fields of an object.
fn field_by_field(text: &[u8]) -> Option<Problem> {
    fields::each_alone(text, |alone| {
        let notes = Notes::default();
        read_object(alone, &notes, Entry { named: false, notes: &notes }).err()
    })
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
        notes.turn_to(index, Some(number + 1));
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
        Ok(value) if !notes.has_faults() => Ok(value),
        Ok(_) if depth(text) > DEPTH_MAX => Err(too_deep()),
        Ok(_) => Err(notes.refusal()),
        Err(_) if notes.has_ended() => Err(notes.refusal()),
        Err(_) if depth(text) > DEPTH_MAX => Err(too_deep()),
        Err(error) => Err(notes.broken(&error, text)),
    }
}

fn too_deep() -> Problem {
    Problem::new(Code::TooDeep, format!("the JSON is nested deeper than {DEPTH_MAX}"))
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

const DEPTH_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    fn a_value_of_the_wrong_type_hides_no_other_fault() {
        let body = br#"{"priority":101,"args":"x","tiemout":1,"labels":{"a":1},"environment":{"A":"x"}}"#;
        let text = format!("{:?}", read_one(body).unwrap_err());
        for field in ["priority", "args", "tiemout", "labels.a"] {
            assert!(text.contains(&format!("field: \"{field}\"")), "{text}");
        }
        assert!(text.contains("it is not a list") && !text.contains("sequence"), "{text}");
        assert!(!text.contains("\"environment"), "{text}");
        let ordered = read_one(br#"{"tiemout":1,"args":"x"}"#).unwrap_err();
        assert_eq!(ordered.code(), Code::UnknownField, "the first fault gives the code");
    }

    #[test]
    fn of_very_many_faults_some_are_told() {
        let unknown: Vec<_> = (0..100_000).map(|n| format!("\"x{n}\":0")).collect();
        let problem = read_one(format!("{{\"args\":1,{}}}", unknown.join(",")).as_bytes()).unwrap_err();
        assert_eq!(problem.code(), Code::InvalidType);
        assert_eq!(format!("{problem:?}").matches("unknown_field").count(), 49);
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

    proptest::proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused(text in r#"[\[\]{}:,"\\\PC]{0,60}"#, bytes: Vec<u8>) {
            for text in [text.as_bytes(), &bytes] {
                // Only a panic would be wrong.
                let _ = (read_one(text), read_lines(text, |_| Ok(())), read_array(text, |_| Ok(())));
            }
        }

        #[test]
        fn what_is_well_formed_is_read_as_it_was_written(
            environment in proptest::collection::btree_map("[A-Z_][A-Z0-9_]{0,8}", "[ -~é€]{0,20}", 0..5),
            args in proptest::collection::vec("[^\0]{0,20}", 0..5),
        ) {
            let text = serde_json::json!({ "environment": environment, "args": args }).to_string();
            let job = read_one(text.as_bytes()).unwrap();
            let body = job.details.unwrap_or_default().body;
            proptest::prop_assert_eq!(body.environment.into_iter().collect::<std::collections::BTreeMap<_, _>>(), environment);
            proptest::prop_assert_eq!(body.args, args);
        }
    }
}
