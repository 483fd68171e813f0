//! Every bad jobs file gets the error that its author needs: the files are in `jobs_files/bad`, each with the expected output beside it.
//!
//! `LONGSHORE_BLESS=1 cargo test -p longshore-server --test jobs_file` writes the present output; the reviewer reads the difference.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use longshore_server::config::jobs_file::{Environment, FAULTS_MAX, FaultCode, Faults, load, parse};

#[test]
fn every_bad_file_gets_the_expected_faults() {
    compare("bad", faults_of);
}

#[test]
fn every_odd_file_gets_the_expected_warnings() {
    compare("odd", warnings_of);
}

/// Compares the output about each file of a kind with the file beside it.
fn compare(kind: &str, output_of: fn(&Path) -> String) {
    let mut wrong = Vec::new();
    for file in files(kind, "yaml") {
        let actual = output_of(&file);
        let expected_file = file.with_extension("expected");
        if std::env::var_os("LONGSHORE_BLESS").is_some() {
            fs::write(&expected_file, &actual).expect("blessed");
        }
        let expected = fs::read_to_string(&expected_file).unwrap_or_default();
        if actual != expected {
            wrong.push(format!("{}:\n--- expected\n{expected}\n--- actual\n{actual}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn no_fault_repeats_a_secret() {
    for file in files("bad", "yaml") {
        let output = faults_of(&file);
        assert!(!output.contains("swordfish") && !output.contains(TOKEN), "{}:\n{output}", file.display());
    }
    for (kind, name, output_of) in [
        ("bad", "variables-in-faults.yaml", faults_of as fn(&Path) -> String),
        ("odd", "variables-in-warnings.yaml", warnings_of),
    ] {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jobs_files").join(kind);
        let output = output_of(&directory.join(name));
        for (variable, value) in VARIABLES.into_iter().chain([("TOKEN", TOKEN)]) {
            assert!(!output.contains(value), "{name}: {variable}:\n{output}");
        }
    }
}

#[test]
fn the_name_of_a_job_from_a_variable_is_not_shown() {
    let text = "- {name: \"${NAME}\", image: busybox, hooks: {on_end: [b, c]}, concurrency: {limit: 1, group: g}}\n\
                - {name: \"${NAME}\", image: busybox}\n\
                - {name: b, image: busybox, hooks: {on_end: planted-namee}}\n\
                - {name: c, image: busybox, hooks: {on_end: \"${NAME}\"}, concurrency: {limit: 2, group: g}}\n";
    let faults = parse(text, Path::new("jobs.yaml"), &environment()).expect_err("faults").to_string();
    assert!(!faults.replace("planted-namee", "").contains("planted-name"), "{faults}");
    for code in ["duplicate_key", "unknown_job", "hook_loop", "invalid_value"] {
        assert!(faults.contains(code), "{code}: {faults}");
    }
}

#[test]
fn every_message_fits_the_form() {
    for file in files("bad", "yaml") {
        let faults = load(&file, &environment()).expect_err("a bad file");
        assert!(faults.list.len() <= FAULTS_MAX);
        for fault in &faults.list {
            let (at, code) = (fault.at, fault.code);
            let line = fault.to_string().lines().next().map(str::to_owned).expect("a line");
            let head = format!("{}:{}:{}: {code}: ", fault.file, at.line, at.column);
            assert!(line.starts_with(&head), "{line}");
            assert!(line.len() < head.len() + 800 && !line.chars().any(char::is_control), "{line}");
        }
    }
}

#[test]
fn an_empty_file_is_a_warning_at_first_and_a_fault_at_reload() {
    for text in ["", "\n# nothing yet\n", "jobs:\n", "jobs: {}\n", "[]", "---\n"] {
        let loaded = parse(text, Path::new("jobs.yaml"), &environment()).expect(text);
        assert_eq!(loaded.warnings.first().map(|warning| warning.code), Some(FaultCode::NoJobs), "{text:?}");
        let faults = loaded.require_jobs().expect_err(text);
        assert_eq!(faults.to_string(), "jobs.yaml: no_jobs: file defines no jobs", "{text:?}");
    }
}

#[test]
fn a_file_of_two_mebibytes_is_too_large() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("jobs.yaml");
    fs::write(&file, vec![b'#'; 2 << 20]).expect("written");
    assert_eq!(only_code(load(&file, &environment()).expect_err("too large")), FaultCode::FileTooLarge);
    let comment = parse(&"#".repeat(2 << 20), &file, &environment()).expect_err("too large");
    assert_eq!(only_code(comment), FaultCode::FileTooLarge);
}

#[test]
fn invalid_utf8_is_reported_with_its_offset() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("jobs.yaml");
    for (content, offset) in
        [(&b"jobs: \xff"[..], "byte offset 6"), (&b"\xff\xfej\0o\0"[..], "byte offset 0")]
    {
        fs::write(&file, content).expect("written");
        let output = load(&file, &environment()).expect_err("not UTF-8").to_string();
        assert!(output.contains("not_utf8") && output.contains(offset), "{output}");
    }
}

#[test]
fn a_nul_character_is_refused_with_its_position_everywhere() {
    for (text, line, column) in [
        ("\0- {name: a, image: busybox}\n", 1, 1),
        ("- {name: a, image: busybox} # \0\n", 1, 31),
        ("- name: a\n  image: 'bü\0box'\n", 2, 13),
        ("- name: a\r\n  im\0age: busybox\r\n", 2, 5),
        ("- name: a\n  image: busybox\n  environment:\n    A: swordfish\0\n", 4, 17),
    ] {
        let faults = parse(text, Path::new("jobs.yaml"), &environment()).expect_err("a NUL");
        let at = faults.list[0].at;
        assert_eq!((at.line, at.column), (line, column), "{text:?}");
        let output = faults.to_string();
        assert!(!output.contains(['\0', '\r']) && !output.contains("swordfish"), "{output}");
        assert_eq!(only_code(faults), FaultCode::NulByte, "{text:?}");
    }
}

#[test]
fn an_unreadable_file_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = |path: &Path| load(path, &environment()).expect_err("unreadable").to_string();
    let missing = output(&directory.path().join("missing.yaml"));
    assert!(missing.ends_with("missing.yaml: cannot_read: it does not exist"), "{missing}");

    let fifo = directory.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("a FIFO");
    assert!(output(&fifo).ends_with("cannot_read: it is not a regular file"));

    let locked = directory.path().join("locked.yaml");
    fs::write(&locked, "jobs: {}").expect("written");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).expect("mode set");
    // Root may read everything: then there is nothing to refuse.
    if let Err(faults) = load(&locked, &environment()) {
        assert!(faults.to_string().contains("cannot_read: permission denied"), "{faults}");
    }
}

#[test]
fn a_job_with_everything_resolved_has_a_limit() {
    let value = "v".repeat(30 * 1024);
    let variables: String = (0..10).map(|n| format!("    V{n}: {value}\n")).collect();
    let text = format!("- name: a\n  image: busybox\n  environment:\n{variables}");
    let faults = parse(&text, Path::new("jobs.yaml"), &environment()).expect_err("too long");
    assert_eq!(only_code(faults), FaultCode::TooLong);
}

#[test]
fn an_argument_that_is_too_long_is_refused_at_its_position() {
    for (keys, before) in [
        ("command: [echo, \"WORD\"]", ""),
        ("command: echo WORD", ""),
        ("entrypoint: [sh, \"WORD\"]", ""),
        ("tmpfs: WORD", "/tmp:"),
        ("user: \"WORD\"", ""),
        ("stop_signal: \"WORD\"", ""),
    ] {
        let read = |bytes: usize| {
            let word = format!("{before}{}2", "0".repeat(bytes - before.len() - 1));
            let text = format!("- name: a\n  image: busybox\n  {}\n", keys.replace("WORD", &word));
            parse(&text, Path::new("jobs.yaml"), &environment())
        };
        assert!(read(131_000).is_ok(), "{keys}");
        let faults = read(131_001).expect_err(keys);
        assert_eq!((only_code(faults.clone()), faults.list[0].at.line), (FaultCode::TooLong, 3), "{keys}");
        let key = keys.split(':').next().expect("a key");
        assert_eq!(faults.list[0].text, format!("{key}: 131001 bytes are too long (max 131000)"), "{keys}");
        assert!(faults.to_string().len() < 500, "{keys}");
    }
}

#[test]
fn a_program_is_no_longer_than_a_path() {
    for keys in [
        "command: [WORD]",
        "command: WORD with more",
        "entrypoint: [WORD]",
        "entrypoint: WORD\n  command: [a]",
        "runtime: process\n  command: [WORD]",
        "runtime: process\n  entrypoint: [WORD]",
    ] {
        let read = |bytes: usize| {
            let image = if keys.starts_with("runtime") { "" } else { "  image: busybox\n" };
            let text = format!("- name: a\n{image}  {}\n", keys.replace("WORD", &"x".repeat(bytes)));
            parse(&text, Path::new("jobs.yaml"), &environment())
        };
        assert!(read(4_095).is_ok(), "{keys}");
        let faults = read(4_096).expect_err(keys);
        let key = if keys.contains("entrypoint") { "entrypoint" } else { "command" };
        assert_eq!(faults.list[0].text, format!("{key}: 4096 bytes are too long (max 4095)"), "{keys}");
        assert_eq!(only_code(faults), FaultCode::TooLong, "{keys}");
    }
    // After an entrypoint a command is an argument, also if one of them stands in `defaults`.
    let long = "x".repeat(4_096);
    for text in [
        format!("- name: a\n  image: busybox\n  entrypoint: [sh, -c]\n  command: [{long}]\n"),
        format!("defaults:\n  command: [{long}]\njobs:\n  a: {{image: busybox, entrypoint: [sh, -c]}}\n"),
        format!("defaults:\n  entrypoint: [sh, -c]\njobs:\n  a: {{image: busybox, command: [{long}]}}\n"),
    ] {
        assert!(parse(&text, Path::new("jobs.yaml"), &environment()).is_ok());
    }
}

#[test]
fn a_word_that_a_variable_makes_too_long_is_refused_and_not_shown() {
    let value = "swordfish".repeat(15_000);
    let environment: Environment = [("LONG".to_owned(), value)].into_iter().collect();
    for keys in ["command: ['${LONG}']", "command: echo ${LONG}"] {
        let text = format!("- name: a\n  image: busybox\n  {keys}\n");
        let faults = parse(&text, Path::new("jobs.yaml"), &environment).expect_err(keys);
        assert!(!faults.to_string().contains("swordfish"), "{faults}");
        assert_eq!(only_code(faults), FaultCode::TooLong, "{keys}");
    }
}

#[test]
fn files_with_huge_lists_or_texts_are_refused() {
    let mounts: String = (0..40_000).map(|n| format!("  - v:/{n}\n")).collect();
    let text = format!("- name: a\n  image: busybox\n  volumes:\n{mounts}");
    let faults = parse(&text, Path::new("jobs.yaml"), &environment()).expect_err("too long");
    assert!(faults.list.iter().all(|fault| fault.code == FaultCode::TooLong), "{faults}");

    let jobs: String = (0..40_000).map(|n| format!("  j{n}: {{}}\n")).collect();
    let text = format!("defaults:\n  image: busybox\n  volumes:\n{mounts}jobs:\n{jobs}");
    let faults = parse(&text, Path::new("jobs.yaml"), &environment()).expect_err("too long");
    assert_eq!((only_code(faults.clone()), faults.list[0].at.line), (FaultCode::TooLong, 2));

    let long = "k".repeat(900_000);
    let text = format!("x-a: &a {long}\nx-b: [{}]\njobs: {{}}\n", "*a, ".repeat(200_000));
    let faults = parse(&text, Path::new("jobs.yaml"), &environment()).expect_err("repeated too often");
    assert_eq!(only_code(faults), FaultCode::YamlBudget);
    let text = format!("- name: a\n  image: busybox\n  stop_signal: {long}\n  ? {long}\n  : 1\n");
    let faults = parse(&text, Path::new("jobs.yaml"), &environment()).expect_err("unknown");
    let codes: Vec<_> = faults.list.iter().map(|fault| fault.code).collect();
    assert_eq!(codes, [FaultCode::InvalidValue, FaultCode::UnknownField], "{faults}");
}

#[test]
fn beyond_fifty_faults_are_only_counted() {
    let text: String = (0..70).map(|n| format!("- {{name: j{n}, imgae: x, image: busybox}}\n")).collect();
    let faults = parse(&text, Path::new("jobs.yaml"), &environment()).expect_err("faults");
    assert_eq!((faults.list.len(), faults.more), (FAULTS_MAX, 20));
    assert!(faults.to_string().ends_with("\nand 20 more faults"));
}

#[test]
fn a_token_in_the_file_is_a_warning_that_does_not_repeat_it() {
    let text =
        "- name: a\n  image: busybox\n  environment:\n    GH: ghp_0123456789abcdefghijABCDEFGHIJ012345\n";
    let loaded = parse(text, Path::new("jobs.yaml"), &environment()).expect("a good file");
    let [warning] = &loaded.warnings[..] else { panic!("{:?}", loaded.warnings) };
    assert_eq!((warning.code, warning.at.line), (FaultCode::LooksLikeSecret, 4));
    assert!(!warning.to_string().contains("ghp_"), "{warning}");
    let from_outside = text.replace("ghp_0123456789abcdefghijABCDEFGHIJ012345", "${TOKEN}");
    let loaded = parse(&from_outside, Path::new("jobs.yaml"), &environment()).expect("a good file");
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}

#[test]
fn a_condition_as_the_value_of_a_label_is_a_warning_with_the_right_form() {
    let warnings = |requires: &str| {
        let text = format!("jobs:\n  a:\n    image: busybox\n    requires: {requires}\n");
        let warnings = parse(&text, Path::new("jobs.yaml"), &environment()).expect("a good file").warnings;
        warnings.into_iter().map(|warning| (warning.code, warning.text)).collect::<Vec<_>>()
    };
    for (requires, form) in [
        (r#"{cores: ">= 8"}"#, r#"["cores >= 8"]"#),
        (r#"{cores: "<4"}"#, r#"["cores < 4"]"#),
        (r#"{cores: ">= many"}"#, r#"["cores >= many"]"#),
        (r#"{gpu: "in (a, b)"}"#, r#"["gpu in (a, b)"]"#),
        (r#"{gpu: "not in (a)"}"#, r#"["gpu not in (a)"]"#),
        (r#"{gpu: ["a", "!=b"]}"#, r#"["gpu not in (b)"]"#),
    ] {
        let warnings = warnings(requires);
        let [(code, text)] = &warnings[..] else { panic!("{requires}: {warnings:?}") };
        assert_eq!(*code, FaultCode::LooksLikeCondition);
        assert!(text.ends_with(&format!("such as requires: {form}")), "{text}");
    }
    for requires in ["{cores: 8}", "{zone: a}", "{zone: [a, b]}", r#"["cores >= 8"]"#, "{team: 'in transit'}"]
    {
        assert_eq!(warnings(requires), [], "{requires}");
    }
}

#[test]
fn a_user_by_number_alone_is_a_warning() {
    let warnings = |keys: &str| {
        let text = format!("defaults: {{user: 1000}}\njobs:\n  a: {{image: busybox{keys}}}\n");
        parse(&text, Path::new("jobs.yaml"), &environment()).expect("a good file").warnings
    };
    let [warning] = &warnings("")[..] else { panic!("one warning") };
    assert_eq!((warning.code, warning.at.line, warning.at.column), (FaultCode::RootGroup, 1, 18));
    assert!(warning.text.contains("such as 1000:1000"), "{warning}");
    let [own] = &warnings(", user: '1001'")[..] else { panic!("one warning") };
    assert_eq!(own.at.line, 3);
    for keys in [", user: 1000:1000", ", user: sailor", ", user: 0", ", user: root", ", runtime: fake"] {
        assert_eq!(warnings(keys), [], "{keys}");
    }
}

fn only_code(faults: Faults) -> FaultCode {
    assert_eq!(faults.list.len(), 1, "{faults}");
    faults.list[0].code
}

/// The printed faults of a file, without its directory.
fn faults_of(file: &Path) -> String {
    let faults = load(file, &environment()).expect_err(&format!("{} is refused", file.display()));
    let directory = format!("{}/", file.parent().expect("a directory").display());
    format!("{faults}\n").replace(&directory, "")
}

/// The printed warnings of a file, without its directory.
fn warnings_of(file: &Path) -> String {
    let loaded = load(file, &environment()).unwrap_or_else(|faults| panic!("{faults}"));
    let directory = format!("{}/", file.parent().expect("a directory").display());
    loaded.warnings.iter().map(|warning| format!("{warning}\n").replace(&directory, "")).collect()
}

fn environment() -> Environment {
    let mut variables = VARIABLES.to_vec();
    variables.extend([("WORD", "banana"), ("TOKEN", TOKEN)]);
    variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn files(kind: &str, extension: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jobs_files").join(kind);
    let entries = fs::read_dir(directory).expect("the directory of test files");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

/// Values of variables where a key takes only a certain form, such as a duration or a number. No fault may show one of them.
const VARIABLES: [(&str, &str); 11] = [
    ("NEVER", "0 0 30 2 *"),
    ("ZONE", "Europe/Berlim"),
    ("INSTANT", "2001-02-03T04:05:06Z"),
    ("NUMBER", "719"),
    ("SHORT", "23s"),
    ("GRACE", "2713s"),
    ("DURATION", "7919s"),
    ("NIGHTLY", "17 3 * * *"),
    ("ODD", "13 7 31 * *"),
    ("ZONE_OF_A_JOB", "Asia/Kolkata"),
    ("NAME", "planted-name"),
];
