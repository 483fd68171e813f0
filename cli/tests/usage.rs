//! What the program says about itself, and to those who use it wrongly. Needs no server.
//!
//! `LONGSHORE_BLESS=1 cargo test -p longshore-cli --test usage` writes `tests/help/*.txt` anew; the reviewer reads the difference.

mod stub;

use std::path::Path;

use stub::{longshore, said};

const VERBS: &[&str] = &[
    "server",
    "worker",
    "dev",
    "run",
    "ls",
    "show",
    "explain",
    "logs",
    "cancel",
    "release",
    "retry",
    "workers",
    "cordon",
    "uncordon",
    "drain",
    "label",
    "slots",
    "forget",
    "stop-unmanaged",
    "definitions",
    "reload",
    "validate",
    "schema",
    "health",
    "doctor",
    "backup",
    "restore",
    "completions",
];

#[test]
fn every_verb_has_the_help_that_was_agreed_on() {
    let mut stale = Vec::new();
    for verb in std::iter::once(&"").chain(VERBS) {
        let arguments: Vec<&str> = [*verb, "--help"].into_iter().filter(|word| !word.is_empty()).collect();
        let said = said(longshore(&arguments).env_remove("LONGSHORE_SERVER").env("COLUMNS", "100"));
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{verb}");
        let name = if verb.is_empty() { "longshore" } else { verb };
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help").join(format!("{name}.txt"));
        if std::env::var_os("LONGSHORE_BLESS").is_some() {
            std::fs::write(&file, &said.out).unwrap();
        }
        if std::fs::read_to_string(&file).unwrap_or_default() != said.out {
            stale.push(name);
        }
    }
    assert!(stale.is_empty(), "the help of {stale:?} differs from tests/help; see the head of this file");
}

#[test]
fn every_verb_that_is_listed_has_its_help_checked() {
    let listed = said(longshore(&["--help"]).env("COLUMNS", "100")).out;
    let commands = listed.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    // What is indented further goes on with the line above.
    let lines = commands.lines().filter(|line| !line.starts_with("   "));
    let verbs: Vec<&str> = lines.filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(verbs, VERBS);
}

#[test]
fn wrong_usage_ends_with_two_and_says_what_would_be_right() {
    for (arguments, expected) in [
        (&["rum"][..], "'run'"),
        (&["ls", "--stat", "failed"], "--state"),
        (&["run"], "<NAME>"),
        (&["run", ".."], "'longshore definitions' lists them"),
        (&["run", "x", "-e", "NOT_SET_HERE"], "write NAME=VALUE"),
        (&["run", "x", "--priority", "101"], "-100..=100"),
        (&["run", "x", "--timeout", "5 parsecs"], "write it like 90s"),
        (&["run", "x", "--follow", "--wait"], "cannot be used with"),
        (&["run", "x", "--follow", "-o", "json"], "use --wait -o json"),
        (&["show", "banana"], "a job's id is a whole number from 1"),
        (&["logs", "abc"], "a job's id is a whole number from 1"),
        (&["cancel", "0"], "a job's id is a whole number from 1"),
        (&["cancel", "--batch", "x"], "a job's id is a whole number from 1"),
        (&["slots", "anna", "x"], "not a number from 1 to 10000"),
        (&["server", "--lease", "banana"], "\"banana\" is not a duration from 1s to 30s"),
        (&["drain", "anna", "--deadline", "soon"], "write it like 90s"),
        (&["ls", "-n", "0"], "1..=1000000"),
        (&["ls", "--server", "https://x"], "TLS is not built in"),
        (&["ls", "--token-file", "/nowhere"], "check --token-file"),
        (&["ls", "-o", "yaml"], "table, json"),
        (&["worker", "--server", "htp://x"], "--server"),
        (&["worker", "--name", "a b"], "--name: `a b` must be"),
        (&["worker", "--slots", "0"], "--slots: 0 is not between"),
        (&["worker", "--slots", "many"], "'--slots <N>': not a number from 1 to 10000"),
        (&["worker", "--backlog", "some"], "'--backlog <N>': not a number from 0 to 10000"),
        (&["dev", "--slots", "1.5"], "'--slots <N>': not a number from 1 to 10000"),
        (&["worker", "--allow-docker-socket"], "unexpected argument '--allow-docker-socket'"),
        (&["worker", "--label", "gpu"], "--label: `gpu` is not KEY=VALUE"),
        (&["worker", "--no-docker"], "no runtime is left"),
        (&["worker", "--no-docker", "--allow-process", "--log", "x=banana"], "--log"),
    ] {
        let said = said(&mut longshore(arguments));
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{arguments:?}");
        assert!(said.err.contains(expected), "{arguments:?}: {}", said.err);
    }
}

#[test]
fn a_bad_value_from_the_environment_names_its_variable() {
    let said = said(longshore(&["ls"]).env("LONGSHORE_OUTPUT", "banana"));
    assert_eq!(said.code, 2);
    assert!(said.err.contains("environment variable LONGSHORE_OUTPUT"), "{}", said.err);
}

#[test]
fn a_workers_token_that_others_may_read_is_wrong_usage() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "secret").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).unwrap();
    let mut worker = longshore(&["worker", "--no-docker", "--allow-fake", "--token-file"]);
    let said = said(worker.arg(&token).arg("--state-dir").arg(directory.path().join("w")));
    assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
    assert!(said.err.contains("run: chmod 600") && !said.err.contains("secret"), "{said:?}");
}

#[test]
fn an_argument_that_is_no_text_is_shown_by_its_bytes() {
    use std::os::unix::ffi::OsStrExt as _;
    let said = said(longshore(&["run"]).arg(std::ffi::OsStr::from_bytes(b"a\xff\x1b")));
    assert_eq!(
        (said.code, said.err.as_str()),
        (2, "error: invalid_argument: \"a\\xff\\x1b\" is not UTF-8; see 'longshore --help'\n")
    );
}

#[test]
fn completions_are_written_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = said(&mut longshore(&["completions", shell]));
        assert_eq!(said.code, 0);
        assert!(said.out.contains("longshore") && !said.out.contains("shim"), "{shell}");
    }
}

#[test]
fn validate_tells_all_faults_of_a_file_and_ends_with_two() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs.yaml");
    std::fs::write(&file, "jobs:\n  a: { imgae: x }\n  b: { image: y, priority: 9999 }\n").unwrap();
    let told = said(longshore(&["validate"]).arg(&file));
    assert_eq!((told.code, told.out.as_str()), (2, ""));
    for expected in
        [":2:8: unknown_field: ", "\"image\"", ":3:", "out_of_range", "the jobs file has 2 faults\n"]
    {
        assert!(told.err.contains(expected), "{expected}: {}", told.err);
    }
    let json: serde_json::Value =
        serde_json::from_str(&said(longshore(&["validate", "-o", "json"]).arg(&file)).out).unwrap();
    assert_eq!((&json["valid"], &json["faults"][0]["code"]), (&false.into(), &"unknown_field".into()));
}

#[test]
fn validate_needs_no_server_and_takes_variables_from_here() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs.yaml");
    std::fs::write(&file, "- { name: a, image: \"x:${TAG}\" }\n").unwrap();
    let unset = said(longshore(&["validate"]).arg(&file));
    assert!(unset.code == 2 && unset.err.contains("TAG"), "{unset:?}");
    let set = said(longshore(&["validate"]).arg(&file).env("TAG", "1"));
    assert_eq!((set.code, set.err.as_str()), (0, ""));
    assert!(set.out.ends_with("jobs.yaml: 1 job, no faults\n"), "{set:?}");
}

#[test]
fn the_schema_is_json_that_knows_the_keys() {
    let said = said(&mut longshore(&["schema"]));
    let schema: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert!(schema["$schema"].is_string() && said.out.contains("\"stop_grace_period\""), "{}", said.out);
}

#[test]
fn a_server_whose_store_cannot_be_used_says_why_and_who_tells_more() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("longshore.db"), "a letter, longer than the head of a database ".repeat(99))
        .unwrap();
    std::fs::write(directory.path().join("jobs.yaml"), "jobs: { a: { image: busybox } }").unwrap();
    let mut server = longshore(&["server", "--listen", "127.0.0.1:0", "--data"]);
    let said = said(server.arg(&data).arg("--jobs").arg(directory.path().join("jobs.yaml")));
    let hint = format!("; 'longshore doctor --data {}' tells more\n", data.display());
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.err.contains("longshore.db is not a Longshore store") && said.err.ends_with(&hint),
        "{said:?}"
    );
}

#[test]
fn a_directory_of_somebody_elses_is_no_data_directory() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("jobs.yaml"), "jobs: { a: { image: busybox } }").unwrap();
    let mut server = longshore(&["server", "--listen", "127.0.0.1:0", "--data"]);
    let said = said(server.arg(directory.path()).arg("--jobs").arg(directory.path().join("jobs.yaml")));
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("no store of ours, but other things (jobs.yaml)"), "{said:?}");
    assert!(!said.err.contains("doctor"), "there is nothing to look at: {said:?}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "it is as it was");
}
