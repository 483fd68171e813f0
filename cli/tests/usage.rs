//! Help, usage errors, and verbs that need no server.
//!
//! `LONGSHORE_BLESS=1 cargo test -p longshore-cli --test usage` rewrites `tests/help/*.txt`; the reviewer reads the difference.

mod stub;

use std::path::Path;

use stub::{longshore, run};

const VERBS: &[&str] = &[
    "server",
    "worker",
    "dev",
    "run",
    "submit",
    "wait",
    "ls",
    "top",
    "show",
    "explain",
    "limits",
    "statistics",
    "logs",
    "grep",
    "events",
    "batches",
    "batch",
    "pipeline",
    "cancel",
    "release",
    "retry",
    "ack",
    "reschedule",
    "workers",
    "cordon",
    "uncordon",
    "drain",
    "label",
    "slots",
    "forget",
    "reset-worker",
    "stop-unmanaged",
    "definitions",
    "plan",
    "deploy",
    "reload",
    "changes",
    "schedules",
    "next",
    "fires",
    "backfill",
    "pause",
    "resume",
    "pauses",
    "validate",
    "schema",
    "import",
    "health",
    "doctor",
    "upgrade-check",
    "cert",
    "token",
    "whoami",
    "audit",
    "notify",
    "backup",
    "restore",
    "completions",
];

#[test]
fn help_of_every_verb_is_unchanged() {
    let mut stale = Vec::new();
    for verb in std::iter::once(&"").chain(VERBS) {
        let arguments: Vec<&str> = [*verb, "--help"].into_iter().filter(|word| !word.is_empty()).collect();
        let said = run(longshore(&arguments).env_remove("LONGSHORE_SERVER").env("COLUMNS", "100"));
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
fn help_of_every_listed_verb_is_checked() {
    let listed = run(longshore(&["--help"]).env("COLUMNS", "100")).out;
    let commands = listed.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    // A line with deeper indentation continues the one above.
    let lines = commands.lines().filter(|line| !line.starts_with("   "));
    let verbs: Vec<&str> = lines.filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(verbs, VERBS);
}

#[test]
fn a_usage_line_asks_for_no_flag_that_a_variable_gives() {
    for (arguments, expected) in [
        (&["wait"][..], "Usage: longshore wait [OPTIONS] <ID>..."),
        (&["token", "create"], "Usage: longshore token create [OPTIONS] --role <ROLE> <NAME>"),
    ] {
        let said = run(longshore(arguments).env("LONGSHORE_SERVER", "127.0.0.1:1"));
        assert!(said.code == 2 && said.err.contains(expected), "{arguments:?}: {said:?}");
    }
}

#[test]
fn wrong_usage_exits_with_2_and_a_hint() {
    for (arguments, expected) in [
        (&["rum"][..], "'run'"),
        (&["ls", "--stat", "failed"], "--state"),
        (&["run"], "<NAME>"),
        (&["run", ".."], "'longshore definitions' lists them"),
        (&["run", "x", "-e", "NOT_SET_HERE"], "write NAME=VALUE"),
        (&["run", "x", "-p", "size=1", "-p", "size=2"], "the parameter \"size\" is given more than once"),
        (&["run", "x", "-e", "A=1", "-e", "B=1", "-e", "A=1"], "the variable \"A\" is given more than once"),
        (&["run", "x", "--label", "a=1", "--label", "a=2"], "the label \"a\" is given more than once"),
        (&["run", "x", "--count", "2", "-p", "a=1", "-p", "a=2"], "the parameter \"a\" is given more"),
        (&["retry", "1", "-p", "size=1", "-p", "size=2"], "the parameter \"size\" is given more than once"),
        (&["run", "x", "--priority", "101"], "-100..=100"),
        (&["run", "x", "--timeout", "5 parsecs"], "write it like 90s"),
        (&["run", "x", "--follow", "--wait"], "cannot be used with"),
        (&["run", "x", "--follow", "-o", "json"], "use --wait -o json"),
        (&["token", "create", "x", "--role", "viewer", "-o", "name"], "would not show the token"),
        (&["logs", "1", "-o", "csv"], "this output has no records"),
        (&["ls", "--watch", "-o", "csv"], "which are no CSV"),
        (&["ls", "--watch", "-q"], "cannot be used with"),
        (&["show", "banana"], "a job's id is a whole number from 1"),
        (&["wait", "12", "batch:x"], "a batch is written batch:100"),
        (&["wait", "abc"], "a job's id is a whole number from 1"),
        (&["wait", "12", "--timeout", "soon"], "write it like 90s"),
        (&["logs", "1", "--exit-code"], "--follow"),
        (&["logs", "abc"], "a job's id is a whole number from 1"),
        (&["cancel", "0"], "a job's id is a whole number from 1"),
        (&["pause"], "batch:ID, --group GROUP, --schedules or --all"),
        (&["cancel", "--batch", "x"], "a job's id is a whole number from 1"),
        (&["slots", "anna", "x"], "not a number from 0 to 10000"),
        (&["server", "--lease", "banana"], "\"banana\" is not a duration from 1s to 30s"),
        (&["drain", "anna", "--deadline", "soon"], "write it like 90s"),
        (&["ls", "-n", "0"], "1..=1000000"),
        (&["ls", "--server", "https://x", "--ca-file", "/nowhere"], "--ca-file: /nowhere"),
        (&["ls", "--token-file", "/nowhere"], "check --token-file"),
        (&["ls", "-o", "yaml"], "table, wide, json, ndjson, csv, name"),
        (&["worker", "--server", "htp://x"], "--server"),
        (&["worker", "--name", "a b"], "--name: `a b` must be"),
        (&["worker", "--slots", "20000"], "--slots: 20000 is not between"),
        (&["worker", "--slots", "many"], "'--slots <N>': not a number from 0 to 10000"),
        (&["worker", "--backlog", "some"], "'--backlog <N>': not a number from 0 to 10000"),
        (&["dev", "--slots", "1.5"], "'--slots <N>': not a number from 0 to 10000"),
        (&["worker", "--allow-docker-socket"], "unexpected argument '--allow-docker-socket'"),
        (
            &["worker", "--label", "gpu"],
            "--label: `gpu` must be KEY=VALUE in one line, each at most 253 bytes",
        ),
        (&["worker", "--no-docker"], "no runtime is left"),
        (&["worker", "--no-docker", "--allow-process", "--log", "x=banana"], "--log"),
    ] {
        let said = run(&mut longshore(arguments));
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{arguments:?}");
        assert!(said.err.contains(expected), "{arguments:?}: {}", said.err);
    }
}

#[test]
fn bad_value_from_the_environment_names_its_variable() {
    let said = run(longshore(&["ls"]).env("LONGSHORE_OUTPUT", "banana"));
    assert_eq!(said.code, 2);
    assert!(said.err.contains("environment variable LONGSHORE_OUTPUT"), "{}", said.err);
}

#[test]
fn worker_token_readable_by_others_is_wrong_usage() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "secret").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o646)).unwrap();
    let mut worker = longshore(&["worker", "--no-docker", "--allow-fake", "--token-file"]);
    let said = run(worker.arg(&token).arg("--state-dir").arg(directory.path().join("w")));
    assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
    assert!(said.err.contains("run: chmod 600") && !said.err.contains("secret"), "{said:?}");
}

#[test]
fn argument_that_is_not_utf8_is_shown_escaped() {
    use std::os::unix::ffi::OsStrExt as _;
    let said = run(longshore(&["run"]).arg(std::ffi::OsStr::from_bytes(b"a\xff\x1b")));
    assert_eq!(
        (said.code, said.err.as_str()),
        (2, "error: invalid_argument: \"a\\xff\\x1b\" is not UTF-8; see 'longshore --help'\n")
    );
}

#[test]
fn completions_are_written_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = run(&mut longshore(&["completions", shell]));
        assert_eq!(said.code, 0);
        assert!(said.out.contains("longshore") && !said.out.contains("shim"), "{shell}");
    }
}

#[test]
fn manual_pages_are_written_for_every_verb() {
    let directory = tempfile::tempdir().unwrap();
    let said = run(longshore(&["man"]).arg(directory.path().join("man1")));
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, "", ""));
    let entries = std::fs::read_dir(directory.path().join("man1")).unwrap();
    let pages: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    for page in VERBS.iter().map(|verb| format!("longshore-{verb}.1")).chain(["longshore.1".to_owned()]) {
        assert!(pages.contains(&page), "{page} is not one of {pages:?}");
    }
    assert!(!pages.iter().any(|page| page.contains("help") || page.contains("-man.")), "{pages:?}");
    let run_page = std::fs::read_to_string(directory.path().join("man1/longshore-run.1")).unwrap();
    let title = format!(".TH longshore-run 1  \"longshore {}\" Longshore\n", env!("CARGO_PKG_VERSION"));
    assert!(run_page.contains(&title), "{run_page}");
}

#[test]
fn validate_prints_all_faults_and_exits_with_2() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs.yaml");
    std::fs::write(&file, "jobs:\n  a: { imgae: x }\n  b: { image: y, priority: 9999 }\n").unwrap();
    let told = run(longshore(&["validate"]).arg(&file));
    assert_eq!((told.code, told.out.as_str()), (2, ""));
    for expected in
        [":2:8: unknown_field: ", "\"image\"", ":3:", "out_of_range", "the jobs file has 2 faults\n"]
    {
        assert!(told.err.contains(expected), "{expected}: {}", told.err);
    }
    let json: serde_json::Value =
        serde_json::from_str(&run(longshore(&["validate", "-o", "json"]).arg(&file)).out).unwrap();
    assert_eq!((&json["valid"], &json["faults"][0]["code"]), (&false.into(), &"unknown_field".into()));
}

#[test]
fn validate_needs_no_server_and_uses_local_variables() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs.yaml");
    std::fs::write(&file, "- { name: a, image: \"x:${TAG}\" }\n").unwrap();
    let unset = run(longshore(&["validate"]).arg(&file));
    assert!(unset.code == 2 && unset.err.contains("TAG"), "{unset:?}");
    let set = run(longshore(&["validate"]).arg(&file).env("TAG", "1"));
    assert_eq!((set.code, set.err.as_str()), (0, ""));
    assert!(set.out.ends_with("jobs.yaml: 1 job, no faults\n"), "{set:?}");
}

#[test]
fn schema_is_json_with_all_keys() {
    let said = run(&mut longshore(&["schema"]));
    let schema: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert!(schema["$schema"].is_string() && said.out.contains("\"stop_grace_period\""), "{}", said.out);
}

#[test]
fn server_with_an_unusable_store_prints_reason_and_doctor_command() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("longshore.db"), "a letter, longer than the head of a database ".repeat(99))
        .unwrap();
    std::fs::write(directory.path().join("jobs.yaml"), "jobs: { a: { image: busybox } }").unwrap();
    let mut server = longshore(&["server", "--listen", "127.0.0.1:0", "--data"]);
    let said = run(server.arg(&data).arg("--jobs").arg(directory.path().join("jobs.yaml")));
    let hint = format!("; 'longshore doctor --data {}' shows details\n", data.display());
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.err.contains("longshore.db is not a Longshore store") && said.err.ends_with(&hint),
        "{said:?}"
    );
}

#[test]
fn directory_of_another_program_is_refused_as_data_directory() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("jobs.yaml"), "jobs: { a: { image: busybox } }").unwrap();
    let mut server = longshore(&["server", "--listen", "127.0.0.1:0", "--data"]);
    let said = run(server.arg(directory.path()).arg("--jobs").arg(directory.path().join("jobs.yaml")));
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("no store of ours, but other things (jobs.yaml)"), "{said:?}");
    assert!(!said.err.contains("doctor"), "there is nothing to look at: {said:?}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "it is as it was");
}
