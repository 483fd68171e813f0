//! Settings of `server` and `worker` from flags, variables and a file, and errors in them.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::stub::{CliOutput, longshore, run};

/// A settings file in a temporary directory.
struct SettingsFile {
    file: PathBuf,
    _directory: TempDir,
}

fn settings_file(text: &str) -> SettingsFile {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("settings.yaml");
    std::fs::write(&file, text).unwrap();
    SettingsFile { file, _directory: directory }
}

impl SettingsFile {
    fn longshore(&self, verb: &str) -> Command {
        let mut command = longshore(&[verb, "--config"]);
        command.arg(&self.file);
        command
    }

    /// Standard error, with the path of the file replaced.
    fn stderr_of(&self, verb: &str) -> CliOutput {
        self.without_path(run(&mut self.longshore(verb)))
    }

    fn without_path(&self, mut said: CliOutput) -> CliOutput {
        said.err = said.err.replace(self.file.to_str().unwrap(), "FILE");
        said
    }
}

#[test]
fn flags_override_variables_and_variables_override_the_file() {
    // These names are not allowed, so the error shows which one was used.
    let file = settings_file("name: from file\n");
    let named = |said: CliOutput, name: &str, origin: &str| {
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains(&format!("--name: `{name}` must be")), "{said:?}");
        let note = said.err.lines().find(|line| line.starts_with("note: ")).unwrap_or_default();
        assert_eq!(note, origin, "{said:?}");
    };
    named(file.stderr_of("worker"), "from file", "note: the value comes from FILE:1");
    let mut command = file.longshore("worker");
    let of_variable = file.without_path(run(command.env("LONGSHORE_NAME", "from variable")));
    named(of_variable, "from variable", "note: the value comes from the environment variable LONGSHORE_NAME");
    named(file.without_path(run(command.args(["--name", "from flag"]))), "from flag", "");
}

#[test]
fn a_setting_without_effect_is_logged_with_what_overrides_it() {
    let file =
        settings_file("state_dir: /srv/worker\nname: a b\nslots: 3\non_term: drain\ndocker: /nowhere\n");
    let mut command = file.longshore("worker");
    command.args([
        "--state-dir",
        "/var/lib/w",
        "--on-term",
        "drain",
        "--no-docker",
        "--allow-fake",
        "--log-format",
        "json",
    ]);
    let said = file.without_path(run(command.env("LONGSHORE_SLOTS", "4")));
    assert!(said.code == 2 && said.err.contains("--name: `a b`"), "{said:?}");
    let mut found = Vec::new();
    for line in said.err.lines().filter(|line| line.contains("has no effect")) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["level"], "WARN", "{line}");
        let field = |name: &str| {
            line.get(name).or_else(|| line["fields"].get(name)).unwrap().as_str().unwrap().to_owned()
        };
        found.push([field("at"), field("setting"), field("by")]);
    }
    assert_eq!(
        found,
        [
            ["FILE:1", "state_dir: /srv/worker", "--state-dir=/var/lib/w"],
            ["FILE:3", "slots: 3", "LONGSHORE_SLOTS=4"],
            ["FILE:5", "docker: /nowhere", "--no-docker"],
        ]
    );
}

#[test]
fn settings_file_can_be_given_by_a_variable() {
    let file = settings_file("slots: 20000\n");
    let said = file.without_path(run(longshore(&["worker"]).env("LONGSHORE_CONFIG", &file.file)));
    assert_eq!(said.code, 2);
    assert!(said.err.contains("error: --slots: 20000 is not between"), "{said:?}");
    assert!(said.err.ends_with("note: the value comes from FILE:1\n"), "{said:?}");
}

#[test]
fn error_in_a_variable_names_it() {
    let told = run(longshore(&["worker"]).env("LONGSHORE_SLOTS", "20000"));
    assert_eq!(told.code, 2);
    assert!(
        told.err.ends_with("note: the value comes from the environment variable LONGSHORE_SLOTS\n"),
        "{told:?}"
    );
    // A flag that is not the cause is not named.
    let flag = run(longshore(&["worker", "--slots", "20000"]).env("LONGSHORE_NAME", "anna"));
    assert!(!flag.err.contains("note:"), "{flag:?}");
}

#[test]
fn error_in_a_number_names_variable_and_range() {
    for (verb, variable, range) in [
        ("worker", "LONGSHORE_SLOTS", "not a number from 0 to 10000"),
        ("worker", "LONGSHORE_BACKLOG", "not a number from 0 to 10000"),
        ("dev", "LONGSHORE_SLOTS", "not a number from 0 to 10000"),
        ("server", "LONGSHORE_HEARTBEAT", "100ms to 10s"),
        ("server", "LONGSHORE_LEASE", "1s to 30s"),
        ("server", "LONGSHORE_KEEP_JOBS", "1m to 3650d"),
        ("server", "LONGSHORE_KEEP_JOBS_MAX", "not a number from 1000"),
        ("server", "LONGSHORE_KEEP_OUTPUT_MAX", "min 256m, max 1024t"),
    ] {
        let told = run(longshore(&[verb]).env(variable, "banana"));
        assert_eq!((told.code, told.out.as_str()), (2, ""), "{told:?}");
        assert!(told.err.contains(variable) && told.err.contains(range), "{told:?}");
    }
    let huge = run(longshore(&["worker"]).env("LONGSHORE_SLOTS", "99999999999"));
    assert!(huge.code == 2 && huge.err.contains("not a number from 0 to 10000"), "{huge:?}");
}

#[test]
fn every_flag_is_a_key_of_the_settings_file() {
    let switches = settings_file("no_docker: true\nallow_fake: false\nallow_process: false\nslots: 3\n");
    let said = switches.stderr_of("worker");
    assert!(said.code == 2 && said.err.contains("no runtime is left"), "{said:?}");
    let list = settings_file("label: [a=1, a=2]\nallow_capability: [NET_ADMIN]\nallow_mount: /srv\n");
    let said = list.stderr_of("worker");
    assert!(said.err.contains("--label: `a` is given twice"), "{said:?}");
    let server = settings_file("listen: 127.0.0.1:0\nkeep_jobs: 1 parsec\n");
    let said = server.stderr_of("server");
    assert!(said.code == 2 && said.err.contains("--keep-jobs (LONGSHORE_KEEP_JOBS)"), "{said:?}");
    assert!(said.err.ends_with("note: the value comes from FILE:2\n"), "{said:?}");
}

#[test]
fn flag_overrides_conflicting_settings() {
    let file = settings_file("docker: /nowhere/docker\nname: a b\n");
    let said = file.without_path(run(file.longshore("worker").arg("--no-docker").arg("--allow-fake")));
    assert!(said.err.contains("--name: `a b`"), "{said:?}");
}

#[test]
fn false_switch_conflicts_with_nothing_and_overrides_the_file() {
    let file = settings_file("docker: /nowhere/docker\nname: a b\n");
    let off = run(file.longshore("worker").env("LONGSHORE_NO_DOCKER", "false"));
    assert!(off.err.contains("--name: `a b`"), "{off:?}");
    let file = settings_file("no_docker: true\ntoken_file: /nowhere/token\n");
    assert!(file.stderr_of("worker").err.contains("no runtime is left"));
    let overruled = run(file.longshore("worker").env("LONGSHORE_NO_DOCKER", "false"));
    assert!(overruled.err.contains("cannot read the token file /nowhere/token"), "{overruled:?}");
}

#[test]
fn all_faults_of_the_file_are_printed_with_lines_and_suggestions() {
    let file = settings_file(
        "# ours\nslot: 4\nslots: many\nrejoin: yes\nname: [a, b]\non_term: dran\nconfig: x\nhelp: true\nlease: 3s\nlabel: { zone: a }\n",
    );
    let said = file.stderr_of("worker");
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    for expected in [
        "FILE:2:1: unknown_field: there is no setting \"slot\"; did you mean \"slots\"?\n",
        "FILE:3:8: invalid_value: invalid value 'many' for '--slots <N>': not a number from 0 to 10000\n",
        "FILE:4:9: invalid_value: must be true or false\n",
        "FILE:5:7: invalid_value: must be a single value, not a list\n",
        "FILE:6:10: invalid_value: invalid value 'dran' for '--on-term <WHAT>'",
        "a similar value exists: 'drain'",
        "FILE:7:1: unknown_field: there is no setting \"config\"",
        "FILE:8:1: unknown_field: there is no setting \"help\"",
        "FILE:9:1: unknown_field: there is no setting \"lease\"",
        "FILE:10:8: invalid_value: a setting is a value or a list of values\n",
        "error: the settings file has 9 faults; see 'longshore worker --help'\n",
    ] {
        assert!(said.err.contains(expected), "{expected}: {}", said.err);
    }
    let broken = settings_file("slots: [1\n").stderr_of("server");
    assert!(broken.code == 2 && broken.err.contains("yaml_syntax"), "{broken:?}");
}

#[test]
fn unreadable_settings_file_is_named() {
    let missing = run(&mut longshore(&["server", "--config", "/nowhere/settings.yaml"]));
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("cannot read the settings file /nowhere/settings.yaml"), "{missing:?}");
    assert!(missing.err.ends_with("; check --config or LONGSHORE_CONFIG\n"), "{missing:?}");
    let directory = run(&mut longshore(&["worker", "--config", "/"]));
    assert!(directory.code == 2 && directory.err.contains("not a regular file"), "{directory:?}");
}

#[test]
fn help_ignores_the_settings_file() {
    let said = settings_file("nonsense: 1\n").stderr_of("worker");
    assert_eq!(said.code, 2);
    let file = settings_file("nonsense: 1\n");
    let help = run(file.longshore("worker").arg("--help"));
    assert!(help.code == 0 && help.out.contains("--config <FILE>"), "{help:?}");
}

#[test]
fn empty_variable_counts_as_unset() {
    let file = settings_file("name: from file\n");
    let mut command = file.longshore("worker");
    let empty =
        ["LONGSHORE_NAME", "LONGSHORE_SLOTS", "LONGSHORE_NO_DOCKER", "LONGSHORE_LOG", "LONGSHORE_OUTPUT"];
    let said = file.without_path(run(command.envs(empty.map(|name| (name, "")))));
    assert_eq!(said.code, 2, "the name of the file is not allowed: {said:?}");
    assert!(said.err.contains("--name: `from file` must be"), "{said:?}");
    assert!(said.err.ends_with("note: the value comes from FILE:1\n"), "{said:?}");
}

#[test]
fn wrong_variable_is_named_if_an_argument_contains_its_value() {
    let said = run(longshore(&["ls", "--name", "xml-to-json"]).env("LONGSHORE_OUTPUT", "xml"));
    let note = "note: the value comes from the environment variable LONGSHORE_OUTPUT\n";
    assert!(said.code == 2 && said.err.ends_with(note), "{said:?}");
}

#[test]
fn watermarks_of_images_are_checked_from_each_source() {
    let wrong = |said: CliOutput, text: &str| {
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains(&format!("--image-gc: {text}")), "{said:?}");
    };
    let worker = |flags: &[&str]| longshore(&[&["worker"], flags].concat());
    let order = "is not high=PERCENT,low=PERCENT";
    wrong(run(&mut worker(&["--image-gc", "high=70%,low=85%"])), &format!("`high=70%,low=85%` {order}"));
    wrong(run(&mut worker(&["--image-gc", "high=70%", "low=85%"])), &format!("`high=70% low=85%` {order}"));
    wrong(run(worker(&[]).env("LONGSHORE_IMAGE_GC", "high=70% low=x")), &format!("`high=70% low=x` {order}"));
    wrong(settings_file("image_gc: high=70%\n").stderr_of("worker"), &format!("`high=70%` {order}"));
    wrong(
        settings_file("image_gc: [high=7%, low=8%]\n").stderr_of("worker"),
        &format!("`high=7% low=8%` {order}"),
    );

    let valid = ["--image-gc", "high=85%", "low=70%"];
    wrong(run(&mut worker(&[&valid[..], &["--no-docker", "--allow-process"]].concat())), "it needs Docker");
    let remote = run(worker(&valid).env("DOCKER_HOST", "tcp://10.255.255.1:2376"));
    wrong(remote, "this worker does not see its engine's disks");
}
