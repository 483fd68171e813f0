//! Flags, then variables, then a file: where the settings of `server` and `worker` come from, and what is said of wrong ones.

#![expect(clippy::unwrap_used, reason = "a test that cannot set its stage fails")]

mod stub;

use std::path::PathBuf;
use std::process::Command;

use stub::{Said, longshore, said};
use tempfile::TempDir;

/// A settings file in a place of its own.
struct Stage {
    file: PathBuf,
    _directory: TempDir,
}

fn file(text: &str) -> Stage {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("settings.yaml");
    std::fs::write(&file, text).unwrap();
    Stage { file, _directory: directory }
}

impl Stage {
    fn longshore(&self, verb: &str) -> Command {
        let mut command = longshore(&[verb, "--config"]);
        command.arg(&self.file);
        command
    }

    /// What is said of it, with its own path taken out.
    fn said(&self, verb: &str) -> Said {
        self.without_path(said(&mut self.longshore(verb)))
    }

    fn without_path(&self, mut said: Said) -> Said {
        said.err = said.err.replace(self.file.to_str().unwrap(), "FILE");
        said
    }
}

#[test]
fn a_flag_goes_before_a_variable_and_a_variable_before_the_file() {
    // None of these names is allowed, so the program says which one it took.
    let stage = file("name: from file\n");
    let named = |said: Said, name: &str, origin: &str| {
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains(&format!("--name: `{name}` must be")), "{said:?}");
        let note = said.err.lines().find(|line| line.starts_with("note: ")).unwrap_or_default();
        assert_eq!(note, origin, "{said:?}");
    };
    named(stage.said("worker"), "from file", "note: the value comes from FILE:1");
    let mut command = stage.longshore("worker");
    let of_variable = stage.without_path(said(command.env("LONGSHORE_NAME", "from variable")));
    named(of_variable, "from variable", "note: the value comes from the environment variable LONGSHORE_NAME");
    named(stage.without_path(said(command.args(["--name", "from flag"]))), "from flag", "");
}

#[test]
fn the_file_may_be_named_by_a_variable() {
    let stage = file("slots: 0\n");
    let said = stage.without_path(said(longshore(&["worker"]).env("LONGSHORE_CONFIG", &stage.file)));
    assert_eq!(said.code, 2);
    assert!(said.err.contains("error: --slots: 0 is not between"), "{said:?}");
    assert!(said.err.ends_with("note: the value comes from FILE:1\n"), "{said:?}");
}

#[test]
fn a_wrong_value_of_a_variable_is_told_with_its_name() {
    let told = said(longshore(&["worker"]).env("LONGSHORE_SLOTS", "0"));
    assert_eq!(told.code, 2);
    assert!(
        told.err.ends_with("note: the value comes from the environment variable LONGSHORE_SLOTS\n"),
        "{told:?}"
    );
    // A flag that is not the cause has nothing to do with it.
    let flag = said(longshore(&["worker", "--slots", "0"]).env("LONGSHORE_NAME", "anna"));
    assert!(!flag.err.contains("note:"), "{flag:?}");
}

#[test]
fn what_is_no_number_is_told_with_its_variable_and_its_range() {
    for (verb, variable, range) in [
        ("worker", "LONGSHORE_SLOTS", "not a number from 1 to 10000"),
        ("worker", "LONGSHORE_BACKLOG", "not a number from 0 to 10000"),
        ("dev", "LONGSHORE_SLOTS", "not a number from 1 to 10000"),
        ("server", "LONGSHORE_HEARTBEAT", "100ms to 10s"),
        ("server", "LONGSHORE_LEASE", "1s to 30s"),
        ("server", "LONGSHORE_KEEP_JOBS", "1m to 3650d"),
        ("server", "LONGSHORE_KEEP_JOBS_MAX", "not a number from 1000"),
        ("server", "LONGSHORE_KEEP_OUTPUT_MAX", "min 256m, max 1024t"),
    ] {
        let told = said(longshore(&[verb]).env(variable, "banana"));
        assert_eq!((told.code, told.out.as_str()), (2, ""), "{told:?}");
        assert!(told.err.contains(variable) && told.err.contains(range), "{told:?}");
    }
    let huge = said(longshore(&["worker"]).env("LONGSHORE_SLOTS", "99999999999"));
    assert!(huge.code == 2 && huge.err.contains("not a number from 1 to 10000"), "{huge:?}");
}

#[test]
fn every_flag_is_a_key_of_the_file_switches_and_lists_too() {
    let switches = file("no_docker: true\nallow_fake: false\nallow_process: false\nslots: 3\n");
    let said = switches.said("worker");
    assert!(said.code == 2 && said.err.contains("no runtime is left"), "{said:?}");
    let list = file("label: [a=1, a=2]\nallow_capability: [NET_ADMIN]\nallow_mount: /srv\n");
    let said = list.said("worker");
    assert!(said.err.contains("--label: `a` is given twice"), "{said:?}");
    let server = file("listen: 127.0.0.1:0\nkeep_jobs: 1 parsec\n");
    let said = server.said("server");
    assert!(said.code == 2 && said.err.contains("--keep-jobs (LONGSHORE_KEEP_JOBS)"), "{said:?}");
    assert!(said.err.ends_with("note: the value comes from FILE:2\n"), "{said:?}");
}

#[test]
fn what_contradicts_a_flag_is_overruled_by_it() {
    let stage = file("docker: /nowhere/docker\nname: a b\n");
    let said = stage.without_path(said(stage.longshore("worker").arg("--no-docker").arg("--allow-fake")));
    assert!(said.err.contains("--name: `a b`"), "{said:?}");
}

#[test]
fn a_switch_that_is_off_contradicts_nothing_and_overrules_the_file() {
    let stage = file("docker: /nowhere/docker\nname: a b\n");
    let off = said(stage.longshore("worker").env("LONGSHORE_NO_DOCKER", "false"));
    assert!(off.err.contains("--name: `a b`"), "{off:?}");
    let stage = file("no_docker: true\ntoken_file: /nowhere/token\n");
    assert!(stage.said("worker").err.contains("no runtime is left"));
    let overruled = said(stage.longshore("worker").env("LONGSHORE_NO_DOCKER", "false"));
    assert!(overruled.err.contains("cannot read the token file /nowhere/token"), "{overruled:?}");
}

#[test]
fn all_faults_of_the_file_are_told_with_their_lines_and_what_was_meant() {
    let stage = file(
        "# ours\nslot: 4\nslots: many\nrejoin: yes\nname: [a, b]\non_term: dran\nconfig: x\nhelp: true\nlease: 3s\n",
    );
    let said = stage.said("worker");
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    for expected in [
        "FILE:2:1: unknown_field: there is no setting \"slot\"; did you mean \"slots\"?\n",
        "FILE:3:8: invalid_value: invalid value 'many' for '--slots <N>': not a number from 1 to 10000\n",
        "FILE:4:9: invalid_value: it is true or false\n",
        "FILE:5:7: invalid_value: it is one word, no list\n",
        "FILE:6:10: invalid_value: invalid value 'dran' for '--on-term <WHAT>'",
        "a similar value exists: 'drain'",
        "FILE:7:1: unknown_field: there is no setting \"config\"",
        "FILE:8:1: unknown_field: there is no setting \"help\"",
        "FILE:9:1: unknown_field: there is no setting \"lease\"",
        "error: the settings file has 8 faults; see 'longshore worker --help'\n",
    ] {
        assert!(said.err.contains(expected), "{expected}: {}", said.err);
    }
    let broken = file("slots: [1\n").said("server");
    assert!(broken.code == 2 && broken.err.contains("yaml_syntax"), "{broken:?}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let missing = said(&mut longshore(&["server", "--config", "/nowhere/settings.yaml"]));
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("cannot read the settings file /nowhere/settings.yaml"), "{missing:?}");
    assert!(missing.err.ends_with("; check --config or LONGSHORE_CONFIG\n"), "{missing:?}");
    let directory = said(&mut longshore(&["worker", "--config", "/"]));
    assert!(directory.code == 2 && directory.err.contains("not a regular file"), "{directory:?}");
}

#[test]
fn help_is_given_whatever_the_file_says() {
    let said = file("nonsense: 1\n").said("worker");
    assert_eq!(said.code, 2);
    let stage = file("nonsense: 1\n");
    let help = stub::said(stage.longshore("worker").arg("--help"));
    assert!(help.code == 0 && help.out.contains("--config <FILE>"), "{help:?}");
}

#[test]
fn a_variable_without_a_value_is_as_if_it_were_not_there() {
    let stage = file("name: from file\n");
    let mut command = stage.longshore("worker");
    let empty =
        ["LONGSHORE_NAME", "LONGSHORE_SLOTS", "LONGSHORE_NO_DOCKER", "LONGSHORE_LOG", "LONGSHORE_OUTPUT"];
    let said = stage.without_path(said(command.envs(empty.map(|name| (name, "")))));
    assert_eq!(said.code, 2, "the name of the file is not allowed: {said:?}");
    assert!(said.err.contains("--name: `from file` must be"), "{said:?}");
    assert!(said.err.ends_with("note: the value comes from FILE:1\n"), "{said:?}");
}

#[test]
fn a_wrong_variable_is_named_although_its_value_is_within_another_word() {
    let said = said(longshore(&["ls", "--name", "xml-to-json"]).env("LONGSHORE_OUTPUT", "xml"));
    let note = "note: the value comes from the environment variable LONGSHORE_OUTPUT\n";
    assert!(said.code == 2 && said.err.ends_with(note), "{said:?}");
}
