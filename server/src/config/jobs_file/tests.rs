//! Tests of reading a whole file: its two forms, its limits, and faults that must not show variables.
//! Faults of single values are tested with the files in `tests/jobs_files`.

use std::sync::Arc;

use super::*;

#[test]
fn a_job_that_no_message_could_carry_is_refused() {
    let text = format!("- name: hello\n  image: busybox\n  command: [{}]\n", "a, ".repeat(4_097));
    let faults = parse(&text, Path::new("jobs.yaml"), &Environment::default()).expect_err("too many words");
    assert!(faults.to_string().contains("command: there are 4097 entries"), "{faults}");
}

#[test]
fn a_fault_of_a_whole_job_in_a_list_is_none_of_its_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, "version: 1\nrules: [{images: ['alpine:*']}]\n").expect("written");
    let policy = Arc::new(crate::policy::load(&policy).expect("a policy"));
    let environment = Environment::default().with_policy(policy);
    for text in ["- name: hello\n  image: busybox:1\n", "- {image: 'busybox:1', name: hello}\n"] {
        let faults = parse(text, Path::new("jobs.yaml"), &environment).expect_err(text);
        let [fault] = faults.list.as_slice() else { panic!("{faults}") };
        assert_eq!((fault.at.line, fault.at.column), (1, 3), "{text}");
        assert!(fault.text.starts_with("the job \"hello\": image"), "{faults}");
    }
}

#[test]
fn both_forms_make_the_same_definition() {
    let parse = |text: &str| parse(text, Path::new("jobs.yaml"), &Environment::default()).expect(text);
    let short = parse("- name: hello\n  image: busybox\n  command: [echo, hi there]\n");
    let long = parse("# a comment\nversion: 1\njobs:\n  hello: {image: busybox, command: echo 'hi there'}\n");
    assert_eq!(short.definitions[0].definition, long.definitions[0].definition);
    assert_eq!(short.definitions[0].stored, long.definitions[0].stored);
    assert_eq!(parse_stored(&short.definitions[0].stored).expect("stored"), *short.definitions[0].definition);
}

#[test]
fn parameters_keep_the_order_of_the_file_beside_the_definition() {
    let parse = |text: &str| parse(text, Path::new("jobs.yaml"), &Environment::default()).expect(text);
    let of = |params: &str| {
        let defaults =
            "defaults: {image: busybox, params: {zone: {required: false}, both: {required: false}}}";
        parse(&format!("{defaults}\njobs: {{hello: {{params: {{{params}}}}}}}\n"))
    };
    let (one, other) = (of("size: {}, both: {}, area: {}"), of("area: {}, both: {}, size: {}"));
    let (one, other) = (&one.definitions[0], &other.definitions[0]);
    let names =
        |entry: &Entry| entry.params().into_iter().map(|param| param.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(one), ["zone", "size", "both", "area"], "the job's own stand where it has them");
    assert_eq!(names(other), ["zone", "area", "both", "size"]);
    assert_eq!((&one.definition, &one.stored), (&other.definition, &other.stored), "no other revision");
}

#[test]
fn policy_faults_do_not_show_variables() {
    let directory = tempfile::tempdir().expect("a directory");
    let policy = directory.path().join("policy.yaml");
    let rules =
        "version: 1\nrules: [{images: ['alpine:*'], networks: [none], max_memory: 16m, max_timeout: 1m}]\n";
    std::fs::write(&policy, rules).expect("written");
    let policy = Arc::new(crate::policy::load(&policy).expect("a policy"));
    let variables = [("PLANT", "swordfish"), ("MEMORY", "7919m"), ("TIMEOUT", "7919s")];
    let environment: Environment =
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
    let text = "- name: \"${PLANT}\"\n  image: \"${PLANT}\"\n  network: \"${PLANT}\"\n  timeout: \"${TIMEOUT}\"\n  \
                resources: {memory: \"${MEMORY}\"}\n";
    let faults =
        parse(text, Path::new("jobs.yaml"), &environment.with_policy(policy)).expect_err("forbidden");
    assert_eq!(faults.list.len(), 4, "{faults}");
    let shown = faults.to_string();
    assert!(!shown.contains("swordfish") && !shown.contains("7919"), "{shown}");
}

#[test]
fn no_fault_of_any_key_shows_a_variable() {
    let image = r#"image: busybox, "#;
    for value in PLANTED {
        let environment: Environment = [("PLANT".to_owned(), value.to_owned())].into_iter().collect();
        for key in keys::JOB {
            for planted in planted_values(&key.shape) {
                let image = if key.name == "image" { "" } else { image };
                let job = format!("{{{image}{}: {planted}}}", key.name);
                let in_jobs = format!("jobs: {{a: {job}, b: {job}}}\n");
                let in_defaults = format!("defaults: {job}\njobs: {{a: {{image: busybox}}}}\n");
                // The defaults are read by the same code: one value is enough.
                let in_defaults = (value == PLANTED[0]).then_some(in_defaults);
                for text in [in_jobs].into_iter().chain(in_defaults) {
                    let read = parse(&text, Path::new("jobs.yaml"), &environment);
                    let faults = read.map_or_else(|faults| faults.list, |loaded| loaded.warnings);
                    for fault in faults {
                        let shown = fault.to_string();
                        assert!(
                            !shown.contains("swordfish") && !shown.contains("7919"),
                            "{value:?} in {text}{shown}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_fault_away_from_the_server_does_not_depend_on_a_variable_that_only_the_server_has() {
    let away = Environment::default().elsewhere();
    let valid = [
        "true",
        "1",
        "0.5",
        "1h",
        "string",
        "a",
        "/a",
        "1000:1000",
        "0 2 * * *",
        "UTC",
        "any",
        "volume",
        "all",
    ];
    let with =
        |value: &&str| [("PLANT".to_owned(), (*value).to_owned())].into_iter().collect::<Environment>();
    let environments: Vec<Environment> = PLANTED.iter().chain(&valid).map(with).collect();
    let faults_of = |text: &str, environment: &Environment| -> Vec<(u32, u32, &'static str)> {
        let read = parse(text, Path::new("jobs.yaml"), environment);
        let faults = read.map_or_else(|faults| faults.list, |_| Vec::new());
        faults.iter().map(|fault| (fault.at.line, fault.at.column, fault.code.name())).collect()
    };
    let mut wrong = String::new();
    for key in keys::JOB {
        for planted in planted_values(&key.shape) {
            let image = if key.name == "image" { "" } else { "image: busybox, " };
            let text = format!("jobs: {{a: {{{image}{}: {planted}}}}}\n", key.name);
            let known: Vec<_> = environments.iter().map(|it| faults_of(&text, it)).collect();
            let mut found = faults_of(&text, &away);
            found.retain(|fault| known.iter().any(|faults| !faults.contains(fault)));
            found.iter().for_each(|fault| wrong += &format!("{fault:?}: {text}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Values of variables that are faults under one key or another, or legal and odd.
const PLANTED: [&str; 13] = [
    "swordfish",
    "Sword swordfish!",
    "params.swordfish",
    "swordfish.swordfish",
    "!= swordfish",
    "/swordfish/..",
    "61swordfish * * * *",
    "0 0 31 * swordfish",
    "*/7919 * * * *",
    "7919",
    "7919s",
    "7919m",
    "7919ms",
];

/// Values in YAML with a variable, one for each place where a key of this shape takes a value.
fn planted_values(shape: &keys::Shape) -> Vec<String> {
    use keys::Shape;
    let planted = r#""${PLANT}""#;
    let forms = |forms: &[&str]| forms.iter().map(|form| form.replace('@', planted)).collect::<Vec<_>>();
    let parts = |part: &[keys::Key], before: &str, after: &str| {
        let values = part.iter().flat_map(|key| {
            planted_values(&key.shape).into_iter().map(|value| format!("{}: {value}", key.name))
        });
        values.map(|value| format!("{before}{value}{after}")).collect::<Vec<_>>()
    };
    match shape {
        Shape::Part(part) | Shape::PartList(part) => parts(part, "{", "}"),
        Shape::PartOrInteger(part, _) => [forms(&["@"]), parts(part, "{", "}")].concat(),
        Shape::Parts(part) => {
            let types = ["string", "integer", "enum", "list", "duration"];
            let of_type = |name| parts(part, &format!("{{p: {{type: {name}, "), "}}");
            [parts(part, "{p: {", "}}"), types.into_iter().flat_map(of_type).collect()].concat()
        }
        Shape::Schedules => [
            forms(&["@", "[@, @]"]),
            parts(keys::time::SCHEDULE, "{", "}"),
            parts(keys::time::SCHEDULE, "{every: 1h, ", "}"),
        ]
        .concat(),
        Shape::Pairs | Shape::Variables => {
            forms(&["{a: @}", "{a: {secret: @}}", r#"["a=${PLANT}"]"#, r#"["${PLANT}=a"]"#, "@"])
        }
        Shape::Volumes => forms(&[
            "[@]",
            r#"["${PLANT}:/a"]"#,
            r#"["a:/${PLANT}", "a:/${PLANT}"]"#,
            r#"["a:/a:${PLANT}"]"#,
            "[{source: @, target: /a}]",
            "[{source: a, target: @}, {source: a, target: @}]",
            "[{type: @, source: a, target: /a}]",
        ]),
        Shape::Hosts => forms(&["{a: @}", "[@]", r#"["${PLANT}:10.0.0.1"]"#, r#"["a:${PLANT}"]"#, "@"]),
        Shape::Ulimits => {
            forms(&["{nofile: @}", "{nofile: {soft: @, hard: 1}}", "{nofile: {soft: 1, hard: @}}"])
        }
        Shape::Conditions => forms(&["{a: @}", "{a: [@]}", "[@]", "@"]),
        Shape::Weights(_) | Shape::Values => forms(&["{a: @}", "@"]),
        Shape::Json | Shape::Any => forms(&["@", "[@]", "{a: @}"]),
        _ => forms(&["@", "[@]", "[@, @]"]),
    }
}

#[test]
fn a_word_among_numbers_may_come_from_a_variable() {
    let environment: Environment =
        [("FULL", "full"), ("NONE", "none")].map(|(a, b)| (a.to_owned(), b.to_owned())).into_iter().collect();
    let text = |timeout: &str, jitter: &str| {
        let retry = format!("{{max: 1, backoff: {{jitter: {jitter}}}}}");
        format!("- {{name: a, image: busybox, timeout: {timeout}, retry: {retry}}}\n")
    };
    let read = |text: String| {
        let loaded = parse(&text, Path::new("jobs.yaml"), &environment);
        loaded.unwrap_or_else(|faults| panic!("{faults}")).definitions[0].definition.clone()
    };
    let full = read(text("\"${NONE}\"", "\"${FULL}\""));
    assert_eq!(full, read(text("none", "full")));
    assert_eq!(full.timeout, None);
    assert_eq!(read(text("1h", "\"${NONE}\"")), read(text("1h", "none")));
}

#[test]
fn defaults_that_are_copied_into_every_job_have_a_limit() {
    let jobs: String = (0..20).map(|n| format!("  j{n}: {{}}\n")).collect();
    let text = format!("defaults: {{image: busybox, command: [{}]}}\njobs:\n{jobs}", "x".repeat(2_000));
    let parse = |text: &str, limit| {
        parse_within(&Sources::of_file(text, Path::new("jobs.yaml")), &Environment::default(), limit)
    };
    let codes = |text: &str| {
        let faults = parse(text, 30_000).expect_err("too long");
        faults.list.iter().map(|fault| fault.code).collect::<Vec<_>>()
    };
    assert!(parse(&text, 100_000).is_ok());
    assert_eq!(codes(&text), [FaultCode::TooLong]);
    let with_another_fault = format!("{text}  last: {{imagee: x}}\n");
    assert_eq!(codes(&with_another_fault), [FaultCode::TooLong], "nobody reads on to the last one");
    let repeated: String = (1..20).map(|n| format!("- {{name: j{n}, image: b, command: *c}}\n")).collect();
    let list = format!("- {{name: j0, image: b, command: &c [{}]}}\n{repeated}", "x".repeat(2_000));
    assert_eq!(codes(&list), [FaultCode::TooLong], "a list ends there, too");
    let with_a_fault_before = format!("versio: 1\n{text}");
    assert_eq!(codes(&with_a_fault_before), [FaultCode::UnknownField, FaultCode::TooLong]);
}

#[test]
fn a_proposal_may_take_what_the_accepted_text_took_while_the_present_file_is_faulty() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("jobs.yaml");
    let environment: Environment = [("TAG".to_owned(), "7".to_owned())].into_iter().collect();
    let text = JobsText::File("- {name: a, image: 'app:${TAG}'}\n".to_owned());
    std::fs::write(&path, "garbage: [").expect("written");
    let proposed = |accepted: &[JobsText]| parse_proposed(text.clone(), &path, accepted, &environment);
    assert!(proposed(&[]).expect_err("refused").to_string().contains("takes no \"${TAG}\""));
    let loaded = proposed(std::slice::from_ref(&text)).expect("as accepted");
    assert_eq!(loaded.definitions[0].definition.container.image, "app:7");
}

#[test]
fn a_refused_reference_hides_no_other_fault_and_nothing_is_taken_from_the_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("jobs.yaml");
    std::fs::write(directory.path().join("a.env"), "not a pair\n").expect("written");
    let environment: Environment = [("N".to_owned(), "seven".to_owned())].into_iter().collect();
    let text =
        "- {name: a, image: b, comand: c, env_file: a.env, retry: {max: '${N}'}}\n- {name: d, imag: e}\n";
    let faults = parse_proposed(JobsText::File(text.to_owned()), &path, &[], &environment).expect_err(text);
    let found: Vec<(u32, &str)> = faults.list.iter().map(|it| (it.at.line, it.code.name())).collect();
    let expected = [(1, "unknown_field"), (1, "unset_variable"), (1, "unset_variable"), (2, "unknown_field")];
    assert_eq!(found, expected, "{faults}");
}

#[test]
fn a_file_is_checked_away_from_its_server_without_what_only_the_server_knows() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("jobs.yaml");
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, "version: 1\nrules: [{images: ['app:*']}]\n").expect("written");
    let policy = Arc::new(crate::policy::load(&policy).expect("a policy"));
    let known = [("TAG".to_owned(), "7".to_owned())];
    let environment = known.into_iter().collect::<Environment>().with_policy(policy).elsewhere();
    let text = "- {name: a, image: 'app:${TAG}', env_file: absent.env, environment: {PW: '${PW}', X: y}}\n\
                - {name: b, image: '${IMAGE}', timeout: '${TIMEOUT}'}\n";
    let loaded = parse(text, &path, &environment).expect("valid");
    let container = &loaded.definitions[0].definition.container;
    assert_eq!((&*container.image, container.environment.len()), ("app:7", 1));
    let count = |text: &str| parse(text, &path, &environment).map_or_else(|faults| faults.count(), |_| 0);
    assert_eq!(count("- {name: a, image: '${IMAGE}', timeout: soon}\n"), 1);
    assert_eq!(count("- {name: a, image: 'other:${TAG}'}\n"), 1, "the policy forbids what is known");
    for text in [
        "image: 'app:1', params: {size: {default: '${SIZE}'}}, command: [x, '${params.size}']",
        "image: 'app:1', params: {size: {enum: ['${A}'], default: a}}",
        "image: 'app:1', params: {size: {required: true}}, schedule: [{every: 1h, params: {size: '${SIZE}'}}]",
    ] {
        assert_eq!(count(&format!("- {{name: a, {text}}}\n")), 0, "{text}");
    }
    for command in ["'run.sh ${X}'", "['${BIN}']"] {
        let text = format!("- {{name: a, runtime: process, command: {command}}}\n");
        parse(&text, &path, &Environment::default().elsewhere()).expect("valid");
    }
}
