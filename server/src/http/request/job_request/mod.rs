//! Parses a job request: JSON text to [`NewJob`], with all faults at once.
//!
//! The text is read in one pass; only the overrides of the job are kept, so that a batch of many small entries is cheap. Broken JSON, a
//! repeated key, deep nesting or a value of a wrong type ends the parse. Other wrong values are recorded, and the parse goes on.

mod after;
mod batch_fields;
mod collector;
mod described;
mod entry_faults;
mod fields;
mod job;
mod json;
mod narrowing;
mod rules;
mod update;

use protocol::container::Overrides;
use scheduler::details::JobDetails;
use serde::de::DeserializeSeed;

use crate::http::middleware::code::ProblemCode;
use crate::http::middleware::problem::Problem;
use crate::http::request::field_errors;
use crate::store::{PREDECESSORS_BYTES_MAX, PREDECESSORS_VARIABLE};
pub(crate) use after::AFTER_MAX;
pub(crate) use batch_fields::BatchFields;
use collector::FaultCollector;
pub(crate) use described::{JobChanges, Member, Submission};
use entry_faults::EntryFaults;
use fields::EntryKind;
pub(crate) use job::JobRequest;
use json::{Entries, Entry};
pub(crate) use rules::{MANY_BYTES_MAX, MANY_MAX, batch_name, batch_unique, count, instant, label_fault};
pub(crate) use update::{JobPatch, read_update};

/// Parses the body of a request for one job. An empty body has no overrides.
///
/// # Errors
/// The faults of the body.
pub(crate) fn read_one(text: &[u8]) -> Result<JobRequest<'_>, Problem> {
    read_as(text, EntryKind::Job)
}

/// Parses the body of a request for one or several jobs of a definition. An empty body has no overrides.
///
/// # Errors
/// The faults of the body.
pub(crate) fn read_submission(text: &[u8]) -> Result<JobRequest<'_>, Problem> {
    read_as(text, EntryKind::Submission)
}

fn read_as(text: &[u8], kind: EntryKind) -> Result<JobRequest<'_>, Problem> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(JobRequest::default());
    }
    let collector = FaultCollector::default();
    match parse_object_of_entry(text, &collector, Entry { kind, collector: &collector }) {
        Ok(request) => Ok(request),
        // serde stops at a value of a wrong type: look at each field alone, so that all faults are told.
        Err(problem) if problem.code() == ProblemCode::InvalidType => {
            Err(field_by_field(text, kind).unwrap_or(problem))
        }
        Err(problem) => Err(problem),
    }
}

/// Checks overrides that were put together from two sources, each of which was checked by itself: only their totals can be wrong, and
/// variables that the server has set may be among them.
///
/// # Errors
/// The faults of the overrides.
pub(crate) fn check_totals(details: &JobDetails) -> Result<(), Problem> {
    let collector = FaultCollector::default();
    collector.check_totals(details);
    if collector.has_faults() { Err(collector.problem()) } else { Ok(()) }
}

/// Checks that overrides fit into a message to a worker, with everything that follows from parameters.
///
/// # Errors
/// `too_long`.
pub(crate) fn check_size(overrides: &Overrides) -> Result<(), Problem> {
    rules::fits(overrides).map_err(|(field, why)| Problem::new(ProblemCode::TooLong, why).field(field))
}

/// Checks that overrides fit into a message to a worker beside the ends of the jobs that the job comes after.
///
/// # Errors
/// `too_long`.
pub(crate) fn check_size_with_predecessors(overrides: &Overrides) -> Result<(), Problem> {
    rules::fits_beside(overrides, 1, PREDECESSORS_VARIABLE.len() + PREDECESSORS_BYTES_MAX)
        .map_err(|(field, why)| Problem::new(ProblemCode::TooLong, why).field(field))
}

/// The faults of all fields, each read as if it were the only one. Returns none if no field has one.
fn field_by_field(text: &[u8], kind: EntryKind) -> Option<Problem> {
    field_errors::check_each_field(text, |alone| {
        let collector = FaultCollector::default();
        parse_object_of_entry(alone, &collector, Entry { kind, collector: &collector }).err()
    })
}

/// Parses lines of JSON and hands each entry to `take`. Empty lines are skipped.
///
/// # Errors
/// The faults of the wrong entries.
pub(crate) fn read_lines(
    text: &[u8],
    mut take: impl FnMut(JobRequest<'_>) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let (mut index, mut faults) = (0, EntryFaults::default());
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let collector = FaultCollector::default();
        collector.enter_entry(index, Some(number + 1));
        index += 1;
        let entry = Entry { kind: EntryKind::Member, collector: &collector };
        if let Err(problem) = parse_object(line, &collector, entry).and_then(&mut take)
            && let Err(last) = faults.add(&collector, problem)
        {
            faults.end(collector.locate(last));
            break;
        }
    }
    faults.finish()
}

/// Parses a JSON array and hands each entry to `take`.
///
/// # Errors
/// The faults of the wrong entries. Broken JSON, a repeated key, deep nesting and a value of the wrong type end the reading.
pub(crate) fn read_list<'b>(
    text: &'b [u8],
    take: impl FnMut(JobRequest<'b>) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let (collector, mut faults) = (FaultCollector::default(), EntryFaults::default());
    let entries = Entries { collector: &collector, faults: &mut faults, take };
    if let Err(problem) = parse_object_of_entry(text, &collector, entries) {
        faults.end(problem);
    }
    faults.finish()
}

/// Parses a text that may be an entry of a list, and names that entry in its faults.
fn parse_object_of_entry<'b, S: DeserializeSeed<'b>>(
    text: &'b [u8],
    collector: &FaultCollector,
    seed: S,
) -> Result<S::Value, Problem> {
    parse_object(text, collector, seed).map_err(|problem| collector.locate(problem))
}

fn parse_object<'b, S: DeserializeSeed<'b>>(
    text: &'b [u8],
    collector: &FaultCollector,
    seed: S,
) -> Result<S::Value, Problem> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let read = seed.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    match read {
        Ok(value) if !collector.has_faults() => Ok(value),
        Ok(_) if depth(text) > DEPTH_MAX => Err(too_deep()),
        Ok(_) => Err(collector.problem()),
        Err(_) if collector.has_aborted() => Err(collector.problem()),
        Err(_) if depth(text) > DEPTH_MAX => Err(too_deep()),
        Err(error) => Err(collector.syntax_problem(&error, text)),
    }
}

fn too_deep() -> Problem {
    Problem::new(ProblemCode::TooDeep, format!("the JSON is nested deeper than {DEPTH_MAX}"))
}

/// The nesting depth, ignoring strings. Called only for a text that is refused anyway.
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

    use protocol::Timestamp;
    use scheduler::job::AttemptTimeout;
    use scheduler::new_jobs::StartTime;

    use super::*;

    fn code(text: &str) -> ProblemCode {
        read_one(text.as_bytes()).unwrap_err().code()
    }

    #[test]
    fn an_empty_body_asks_for_nothing_special() {
        assert!(read_one(b" \n").unwrap().job.details.is_none());
        assert!(read_one(b"{}").unwrap().job.details.is_none());
    }

    #[test]
    fn every_field_is_read() {
        let job = read_one(
            br#"{"environment":{"A":"1","B":"\u00e9"},"args":["x"],"priority":-100,"timeout":"1h30m","labels":{"t":"web"}}"#,
        )
        .unwrap()
        .job;
        let details = job.details.unwrap();
        assert_eq!(details.overrides.environment, [("A".into(), "1".into()), ("B".into(), "é".into())]);
        assert_eq!(details.overrides.args, ["x"]);
        assert_eq!(details.labels, [("t".into(), "web".into())]);
        assert_eq!(job.priority, Some(-100));
        assert_eq!(job.timeout, Some(AttemptTimeout::After(Duration::from_secs(5400))));
        assert_eq!(read_one(br#"{"timeout":"none"}"#).unwrap().job.timeout, Some(AttemptTimeout::Unlimited));
        let run_at = |text: &str| read_one(text.as_bytes()).unwrap().job.run_at;
        assert_eq!(
            run_at(r#"{"run_at":"2026-03-01T10:30:00.25+01:00"}"#),
            Some(StartTime::At(Timestamp(1_772_357_400_250)))
        );
        assert_eq!(
            run_at(r#"{"run_at":"2026-03-01T09:30:00.2500001Z"}"#),
            Some(StartTime::At(Timestamp(1_772_357_400_251)))
        );
        assert_eq!(
            run_at(r#"{"delay":"1h250ms"}"#),
            Some(StartTime::After(Duration::from_millis(3_600_250)))
        );
        assert_eq!(run_at(r#"{"delay":"0s"}"#), Some(StartTime::After(Duration::ZERO)));
    }

    #[test]
    fn parameters_and_input_are_any_json() {
        let request =
            read_one(br#"{"params":{"b":[1,"x"],"a":2.5},"input":{"z":[null,1.0],"a":"\u00e9"}}"#).unwrap();
        assert_eq!(
            request.params,
            [("b".to_owned(), serde_json::json!([1, "x"])), ("a".to_owned(), serde_json::json!(2.5))]
        );
        let input = request.job.details.unwrap().overrides.input;
        assert_eq!(input.as_deref(), Some(r#"{"a":"é","z":[null,1.0]}"#));
        assert_eq!(code(r#"{"params":{"a":1,"a":2}}"#), ProblemCode::DuplicateKey);
        assert_eq!(code(r#"{"params":[1]}"#), ProblemCode::InvalidType);
        let many: Vec<String> = (0..1_001).map(|number| format!("\"a{number}\":1")).collect();
        assert_eq!(code(&format!("{{\"params\":{{{}}}}}", many.join(","))), ProblemCode::InvalidParam);
        assert_eq!(code(&format!("{{\"input\":\"{}\"}}", "x".repeat(256 << 10))), ProblemCode::TooLong);
    }

    #[test]
    fn broken_json_is_refused_with_its_offset() {
        let problem = read_one(b"{\n\"args\": [}").unwrap_err();
        assert_eq!(problem.code(), ProblemCode::InvalidJson);
        assert!(format!("{problem:?}").contains("at byte 11"), "{problem:?}");
    }

    #[test]
    fn tricks_with_json_are_refused() {
        let deep = format!("{{\"x\":{}{}}}", "[".repeat(1000), "]".repeat(1000));
        assert_eq!(code(&deep), ProblemCode::TooDeep);
        assert_eq!(code(&"[".repeat(1000)), ProblemCode::TooDeep);
        let of = |field: &str, levels: usize| {
            let nested = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            let value = if field == "input" { format!("[{nested}]") } else { format!("{{\"a\":{nested}}}") };
            let text = format!("{{\"{field}\":{value}}}");
            read_one(text.as_bytes()).map(drop).map_err(|it| it.code())
        };
        for field in ["input", "params"] {
            assert!(of(field, 30).is_ok(), "32 levels with the body and the field");
            assert_eq!(of(field, 31).unwrap_err(), ProblemCode::TooDeep);
        }
        assert_eq!(code(r#"{"args":[],"args":[]}"#), ProblemCode::DuplicateKey);
        assert_eq!(code(r#"{"environment":{"A":"1","A":"2"}}"#), ProblemCode::DuplicateKey);
        assert_eq!(code(r#"{"priority":1e400}"#), ProblemCode::InvalidJson);
        assert_eq!(code(r#"{"args":["\ud800"]}"#), ProblemCode::InvalidJson);
        assert_eq!(code("{} {}"), ProblemCode::InvalidJson);
        assert_eq!(read_one(b"{\"args\":[\"\xff\"]}").unwrap_err().code(), ProblemCode::InvalidJson);
    }

    #[test]
    fn wrong_values_get_the_code_of_their_fault() {
        assert_eq!(code("[]"), ProblemCode::InvalidType);
        assert_eq!(code(r#"{"args":"x"}"#), ProblemCode::InvalidType);
        assert_eq!(code(r#"{"priority":1.5}"#), ProblemCode::InvalidType);
        assert_eq!(code(r#"{"timeout":90}"#), ProblemCode::InvalidDuration);
        assert_eq!(code(r#"{"environment":{"A":1}}"#), ProblemCode::InvalidType);
        assert_eq!(code(r#"{"priority":101}"#), ProblemCode::OutOfRange);
        assert_eq!(code(r#"{"timeout":"-5s"}"#), ProblemCode::InvalidDuration);
        assert_eq!(code(r#"{"timeout":"31d"}"#), ProblemCode::InvalidDuration);
        assert_eq!(code(r#"{"run_at":"2026-03-01T09:30:00"}"#), ProblemCode::InvalidTime);
        assert_eq!(code(r#"{"run_at":"0001-01-01T00:00:00Z"}"#), ProblemCode::InvalidTime);
        assert_eq!(code(r#"{"run_at":"9999-01-01T00:00:00Z"}"#), ProblemCode::InvalidTime);
        assert_eq!(code(r#"{"run_at":"2026-03-01T09:30:00Z","delay":"1s"}"#), ProblemCode::InvalidTime);
        assert_eq!(code(r#"{"run_at":1772357400}"#), ProblemCode::InvalidType);
        assert_eq!(code(r#"{"delay":"-1s"}"#), ProblemCode::InvalidDuration);
        assert_eq!(code(r#"{"delay":"4000d"}"#), ProblemCode::InvalidDuration);
        assert_eq!(code(r#"{"environment":{"1X":""}}"#), ProblemCode::InvalidEnvName);
        assert_eq!(code(r#"{"environment":{"A=B":""}}"#), ProblemCode::InvalidEnvName);
        assert_eq!(code(r#"{"environment":{"LONGSHORE_JOB":""}}"#), ProblemCode::ReservedName);
        assert_eq!(code(r#"{"environment":{"A":"x\ny"}}"#), ProblemCode::EnvNewlineUnsupported);
        assert_eq!(code(r#"{"environment":{"A":"\u0000"}}"#), ProblemCode::NulByte);
        assert_eq!(code(r#"{"args":["a\u0000"]}"#), ProblemCode::NulByte);
        assert_eq!(code(r#"{"labels":{"a b":""}}"#), ProblemCode::InvalidLabel);
        assert_eq!(code(r#"{"labels":{"a":"x\ny"}}"#), ProblemCode::InvalidLabel);
        assert_eq!(code(r#"{"imgae":1}"#), ProblemCode::UnknownField);
        assert_eq!(code(r#"{"name":"x"}"#), ProblemCode::UnknownField);
        assert_eq!(
            code(&format!("{{\"environment\":{{\"A\":\"{}\"}}}}", "x".repeat(40 << 10))),
            ProblemCode::TooLong
        );
        let long = "x".repeat(100 << 10);
        let args = [long.as_str(); 6].join("\",\"");
        assert_eq!(code(&format!("{{\"args\":[\"{args}\"]}}")), ProblemCode::TooLong);
    }

    #[test]
    fn all_faults_are_listed_at_once() {
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
        assert_eq!(ordered.code(), ProblemCode::UnknownField, "the first fault gives the code");
    }

    #[test]
    fn of_very_many_faults_the_first_are_listed() {
        let unknown: Vec<_> = (0..100_000).map(|n| format!("\"x{n}\":0")).collect();
        let problem = read_one(format!("{{\"args\":1,{}}}", unknown.join(",")).as_bytes()).unwrap_err();
        assert_eq!(problem.code(), ProblemCode::InvalidType);
        assert_eq!(format!("{problem:?}").matches("unknown_field").count(), 49);
    }

    #[test]
    fn lines_and_arrays_give_the_same_jobs() {
        let mut from_lines = Vec::new();
        read_lines(b"{\"name\":\"a\"}\n\n{\"name\":\"b\",\"args\":[\"1\"]}\r\n", |request| {
            from_lines.push((request.name.unwrap().into_owned(), request.job.details));
            Ok(())
        })
        .unwrap();
        let mut from_array = Vec::new();
        read_list(br#"[{"name":"a"},{"name":"b","args":["1"]}]"#, |request| {
            from_array.push((request.name.unwrap().into_owned(), request.job.details));
            Ok(())
        })
        .unwrap();
        assert_eq!(from_lines, from_array);
        assert_eq!(from_lines.len(), 2);
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in r#"[\[\]{}:,"\\\PC]{0,60}"#, bytes: Vec<u8>) {
            for text in [text.as_bytes(), &bytes] {
                // A panic is the only failure.
                let _ = (read_one(text), read_lines(text, |_| Ok(())), read_list(text, |_| Ok(())));
            }
        }

        #[test]
        fn a_well_formed_request_survives_writing_and_parsing(
            environment in proptest::collection::btree_map("[A-Z_][A-Z0-9_]{0,8}", "[ -~é€]{0,20}", 0..5),
            args in proptest::collection::vec("[^\0]{0,20}", 0..5),
        ) {
            let text = serde_json::json!({ "environment": environment, "args": args }).to_string();
            let job = read_one(text.as_bytes()).unwrap().job;
            let overrides = job.details.unwrap_or_default().overrides;
            proptest::prop_assert_eq!(overrides.environment.into_iter().collect::<std::collections::BTreeMap<_, _>>(), environment);
            proptest::prop_assert_eq!(overrides.args, args);
        }
    }
}
