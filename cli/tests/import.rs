//! `longshore import` with files of other schedulers: each input under `import/` has the jobs file that was agreed on beside it.
//!
//! `LONGSHORE_BLESS=1 cargo test -p longshore-cli --test import` writes the expected files anew; the reviewer reads the difference.

mod stub;

use std::path::{Path, PathBuf};

use stub::{CliOutput, longshore, run};

/// The words after `longshore import`, and the jobs file that is expected.
const CASES: &[(&[&str], &str)] = &[
    (&["crontab", "crontab/user.crontab"], "crontab/user.yaml"),
    (
        &["crontab", "--system", "--timezone", "Europe/Berlin", "crontab/system.crontab"],
        "crontab/system.yaml",
    ),
    (&["crontab", "--runtime", "process", "crontab/process.crontab"], "crontab/process.yaml"),
    (
        &["crontab", "--system", "--runtime", "process", "--worker", "web1", "crontab/system.crontab"],
        "crontab/system-process.yaml",
    ),
    (
        &["crontab", "--user", "deploy", "--runtime", "process", "crontab/process.crontab"],
        "crontab/process-deploy.yaml",
    ),
    (&["crontab", "--user", "deploy", "crontab/machine.crontab"], "crontab/machine.yaml"),
    (
        &[
            "crontab",
            "--user",
            "root",
            "--runtime",
            "process",
            "--timezone",
            "UTC",
            "crontab/machine.crontab",
        ],
        "crontab/machine-process.yaml",
    ),
    (&["crontab", "--system", "--runtime", "process", "crontab/suse.crontab"], "crontab/suse.yaml"),
    (&["crontab", "--user", "root", "--runtime", "process", "crontab/ssh.crontab"], "crontab/ssh-kept.yaml"),
    (
        &[
            "crontab",
            "--replace-ssh",
            "--user",
            "root",
            "--runtime",
            "process",
            "--timezone",
            "UTC",
            "--worker",
            "control",
            "crontab/ssh.crontab",
        ],
        "crontab/ssh.yaml",
    ),
    (&["ofelia", "ofelia/config.ini"], "ofelia/config.yaml"),
    (&["ofelia", "--image", "postgres:16", "--timezone", "UTC", "ofelia/fork.ini"], "ofelia/fork.yaml"),
    (&["compose", "compose/shop.yml"], "compose/shop.jobs.yaml"),
    (&["compose", "compose/swarm.yaml"], "compose/swarm.jobs.yaml"),
    (
        &["systemd-timer", "systemd-timer/backup.service", "systemd-timer/backup.timer"],
        "systemd-timer/backup.yaml",
    ),
    (
        &["systemd-timer", "--runtime", "process", "systemd-timer/probe.timer", "systemd-timer/odd.timer"],
        "systemd-timer/odd.yaml",
    ),
    (
        &["systemd-timer", "systemd-timer/with-drop-ins.timer", "systemd-timer/with-drop-ins.service"],
        "systemd-timer/with-drop-ins.yaml",
    ),
    (&["systemd-timer", "systemd-timer/dynamic.service"], "systemd-timer/dynamic.yaml"),
    (
        &["systemd-timer", "--runtime", "process", "systemd-timer/dynamic.service"],
        "systemd-timer/dynamic-process.yaml",
    ),
    (&["systemd-timer", "systemd-timer/report@.timer"], "systemd-timer/report.yaml"),
    (&["systemd-timer", "systemd-timer/check-mirror.service"], "systemd-timer/alone.yaml"),
    (&["kubernetes-cronjob", "kubernetes-cronjob/backup.yaml"], "kubernetes-cronjob/backup.jobs.yaml"),
    (&["kubernetes-cronjob", "kubernetes-cronjob/lost.yaml"], "kubernetes-cronjob/lost.jobs.yaml"),
    (&["kubernetes-cronjob", "kubernetes-cronjob/list.yaml"], "kubernetes-cronjob/list.jobs.yaml"),
];

#[test]
fn files_of_each_kind_become_the_jobs_files_that_were_agreed_on() {
    let mut stale = Vec::new();
    for (words, expected) in CASES {
        let said = import(words);
        assert_eq!(said.code, 0, "{words:?}: {}", said.err);
        let file = fixtures().join(expected);
        if std::env::var_os("LONGSHORE_BLESS").is_some() {
            std::fs::write(&file, &said.out).unwrap();
        }
        if std::fs::read_to_string(&file).unwrap_or_default() != said.out {
            stale.push(expected);
        }
    }
    assert!(stale.is_empty(), "{stale:?} differ from what is written now; see the head of this file");
}

#[test]
fn what_is_written_passes_validate() {
    let directory = tempfile::tempdir().unwrap();
    // Environment files are looked for beside the jobs file.
    std::fs::copy(fixtures().join("compose/mailer.env"), directory.path().join("mailer.env")).unwrap();
    std::fs::write(directory.path().join("omen.env"), "OMEN=1\n").unwrap();
    let knows_schedules = run(&mut longshore(&["schema"])).out.contains("\"catch_up_window\"");
    for (_, expected) in CASES {
        let text = std::fs::read_to_string(fixtures().join(expected)).unwrap();
        let text = if knows_schedules { text } else { without_schedules(&text) };
        let file = directory.path().join("jobs.yaml");
        std::fs::write(&file, text.replace("/etc/omen.env", "omen.env")).unwrap();
        let mut validate = longshore(&["validate", "-o", "json"]);
        let variables = [("DB_PASSWORD", "x"), ("TZ", "UTC"), ("FROM", "a@example.org")];
        let said = run(validate.arg(&file).envs(variables));
        let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!((said.code, &told["faults"]), (0, &serde_json::json!([])), "{expected}: {}", said.err);
    }
}

#[test]
fn a_file_of_another_kind_is_one_clear_line() {
    for (words, expected) in [
        (
            &["crontab", "compose/swarm.yaml"][..],
            "compose/swarm.yaml: not a crontab; no line has a rule and a command",
        ),
        (&["ofelia", "crontab/user.crontab"], "crontab/user.crontab: not a configuration of Ofelia: "),
        (
            &["ofelia", "systemd-timer/odd.service"],
            "systemd-timer/odd.service:1: [Service] is no section of Ofelia; allowed are",
        ),
        (&["compose", "ofelia/config.ini"], "ofelia/config.ini:"),
        (&["compose", "kubernetes-cronjob/list.yaml"], "not a compose file: it must hold one YAML document"),
        (&["compose", "kubernetes-cronjob/backup.yaml"], "not a compose file: it has no \"services\""),
        (&["systemd-timer", "ofelia/config.ini"], "not a unit of systemd: it has [global]"),
        (&["systemd-timer", "compose/swarm.yaml"], "not a unit of systemd: "),
        (&["kubernetes-cronjob", "compose/swarm.yaml"], "compose/swarm.yaml: no manifest of a CronJob"),
        (
            &["crontab", "--timezone", "Mars/X", "crontab/user.crontab"],
            "\"Mars/X\" is no time zone; write one like Europe/Berlin",
        ),
        (&["crontab", "nowhere"], "nowhere: cannot read it: No such file"),
        (&["crontab", "."], ".: cannot read it: "),
    ] {
        let said = import(words);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{words:?}: {}", said.err);
        assert!(said.err.starts_with("error: ") && said.err.contains(expected), "{words:?}: {}", said.err);
        assert_eq!(said.err.lines().count(), 1, "{words:?}: {}", said.err);
    }
}

#[test]
fn a_random_delay_beyond_all_numbers_is_a_remark() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("crontab");
    std::fs::write(&file, "RANDOM_DELAY=307445734561826\n0 2 * * * a\n").unwrap();
    let said = run(longshore(&["import", "crontab"]).arg(&file));
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("jitter: 1h") && said.out.contains("the longest jitter is 1h"), "{}", said.out);
}

#[test]
fn volumes_of_compose_may_have_variables_with_defaults() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("compose.yaml");
    let volumes = |item: &str| {
        let text = format!(
            "services:\n  a:\n    image: b\n    volumes: [{item}]\nvolumes: {{v: {{name: '${{N:-x}}'}}}}\n"
        );
        std::fs::write(&file, text).unwrap();
        let said = run(longshore(&["import", "compose"]).arg(&file));
        assert_eq!(said.code, 0, "{item}: {said:?}");
        said.out
    };
    for (item, expected) in [
        ("'${DATA:-/srv}:/data'", "volumes: [/srv:/data]"),
        ("'${DATA:-/srv}:${TO:-/data}:ro'", "volumes: [/srv:/data:ro]"),
        ("'${DATA:?set it}:/data'", "volumes: [\"${DATA}:/data\"]"),
        ("'${ALL:-/srv:/data}'", "volumes: [/srv:/data]"),
        ("'$DATA/a:/data'", "volumes: [\"${DATA}/a:/data\"]"),
        ("{type: bind, source: '${DATA:-/srv}', target: /data}", "volumes: [/srv:/data]"),
        ("'${VOLUME:-v}:/data'", "volumes: [x:/data]"),
        ("'${DATA:-./srv}:/data'", "Not translated: line 4: volume: ./srv: a job runs on any worker"),
    ] {
        let out = volumes(item);
        assert!(out.contains(expected), "{item}: {out}");
    }
}

#[test]
fn a_fault_is_told_with_its_file_its_line_and_what_is_allowed() {
    for (kind, text, expected) in [
        (
            "crontab",
            "0 2 * * * a\n61 2 * * * b\n",
            ":2: minute \"61\" is not allowed: write *, numbers from 0 to 59",
        ),
        ("crontab", "0 2 * * * a\n0 2 * * *\n", ":2: the command is missing"),
        ("crontab", "0 2 * * * a\n@often b\n", ":2: \"@often\" is not a rule; allowed are @yearly"),
        (
            "crontab",
            "0 2 * * * a\n17 * * * * root cd / && run-parts /etc/cron.hourly\n",
            ":2: the user root stands before the command, as in /etc/crontab: add --system",
        ),
        ("crontab", "RANDOM_DELAY=x\n0 2 * * * a\n", ":1: RANDOM_DELAY is a number of minutes"),
        ("ofelia", "[job-run \"a\"]\nimage = b\n", ":1: the job has no schedule"),
        ("ofelia", "[job-run]\nimage = b\n", ":1: the job has no name"),
        (
            "ofelia",
            "[job-local \"a\"]\nschedule = @daily\ncommand = 'x\n",
            ":3: command: a quote is not closed",
        ),
        ("ofelia", "[job-local \"a\"]\nschedule = 1 2 3\n", ":2: schedule: a rule has five fields"),
        ("compose", "services:\n  a: busybox\n", ":2: the service \"a\" must be a map"),
        ("compose", "services:\n  a: {}\n  a: {}\n", ":3: the key \"a\" stands at line 2 already"),
        (
            "compose",
            "services:\n  a:\n    image: b\n    labels:\n      swarm.cronjob.schedule: soon\n",
            ":5: swarm.cronjob.schedule: a rule has five fields",
        ),
        (
            "systemd-timer",
            "[Timer]\nOnCalendar=daily\nUnit=x.service\n",
            ":1: the timer starts x.service, which is not among the files",
        ),
        ("systemd-timer", "[Service]\nExecStart=/bin/a 'b\n", ":2: ExecStart: a quote is not closed"),
        ("systemd-timer", "[Service]\nType=oneshot\n", ":1: the service has no ExecStart="),
        ("kubernetes-cronjob", "kind: CronJob\nspec: {}\n", ":1: the CronJob has no metadata.name"),
        (
            "kubernetes-cronjob",
            "kind: CronJob\nmetadata: {name: a}\nspec:\n  schedule: daily\n",
            ":4: schedule: a rule has five fields",
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("input");
        std::fs::write(&file, text).unwrap();
        let said = run(longshore(&["import", kind]).arg(&file));
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{text}: {}", said.err);
        assert!(said.err.contains(expected) && said.err.contains("input"), "{text}: {}", said.err);
    }
}

#[test]
fn only_roots_crontab_becomes_enabled_processes() {
    let import = |user: &[&str]| {
        let said = import(&[&["crontab", "crontab/process.crontab", "--runtime", "process"], user].concat());
        (said.code, said.out.matches("    enabled: false\n").count(), said.err)
    };
    let hint = "all of them are disabled: --user NAME says whose crontab it is\n";
    let (code, disabled, err) = import(&[]);
    assert!((code, disabled) == (0, 2) && err.ends_with(hint), "{err}");
    for (user, expected) in [("root", 0), ("deploy", 2)] {
        let (code, disabled, err) = import(&["--user", user]);
        assert!((code, disabled) == (0, expected) && !err.contains(hint), "{user}: {err}");
    }
    for wrong in [&["--user", "a:b"][..], &["--user", ""], &["--user", "root", "--system"]] {
        let (code, _, err) = import(wrong);
        assert!(code == 2 && err.contains("--user"), "{err}");
    }
}

#[test]
fn a_unit_of_a_user_is_no_enabled_process() {
    let directory = tempfile::tempdir().unwrap();
    let units = directory.path().join("systemd/user");
    std::fs::create_dir_all(&units).unwrap();
    std::fs::write(units.join("a.service"), "[Service]\nExecStart=/bin/a\n").unwrap();
    let mut command = longshore(&["import", "systemd-timer", "--runtime", "process", "a.service"]);
    let said = run(command.current_dir(&units));
    assert!(said.code == 0 && said.out.contains("    enabled: false\n"), "{said:?}");
    assert!(
        said.out.contains("# Not translated: a unit of a user, and not of the system: a plain"),
        "{said:?}"
    );
}

#[test]
fn a_worker_is_given_to_every_entry() {
    let timer = "systemd-timer/backup.timer";
    for words in [&["crontab", "crontab/process.crontab"][..], &["systemd-timer", timer]] {
        let any = import(words);
        assert!(any.err.ends_with("jobs run on any worker (--worker NAME names one)\n"), "{any:?}");
        assert!(any.out.contains("--worker NAME names") && !any.out.contains("workers:"), "{}", any.out);
        let one = import(&[words, &["--worker", "web1"]].concat());
        assert!(!one.err.contains("any worker") && !one.out.contains("any worker"), "{one:?}");
        let entries = one.out.matches("# From ").count();
        assert_eq!(one.out.matches("    workers: [web1]\n").count(), entries, "{}", one.out);
    }
    let wrong = import(&["crontab", "crontab/process.crontab", "--worker", ""]);
    assert!(wrong.code == 2 && wrong.out.is_empty() && wrong.err.contains("--worker"), "{wrong:?}");
}

#[test]
fn standard_input_is_read_and_an_existing_file_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jobs.yaml");
    let import = |more: &[&str]| {
        let mut command = longshore(&["import", "crontab", "-", "-o"]);
        command
            .arg(&file)
            .args(more)
            .stdin(std::fs::File::open(fixtures().join("crontab/process.crontab")).unwrap());
        run(&mut command)
    };
    let written = import(&[]);
    assert_eq!(
        (written.code, written.out.as_str(), written.err.as_str()),
        (
            0,
            "",
            "2 definitions; everything is translated; jobs run on any worker (--worker NAME names one)\n"
        )
    );
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("# From standard input, line 5.\n"), "{text}");
    let refused = import(&[]);
    assert!(
        refused.code == 5 && refused.err.ends_with("jobs.yaml exists already; --force overwrites it\n"),
        "{refused:?}"
    );
    std::fs::write(&file, "x".repeat(100_000)).unwrap();
    assert_eq!(import(&["--force"]).code, 0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn each_kind_has_the_help_that_was_agreed_on() {
    let mut stale = Vec::new();
    for kind in ["crontab", "ofelia", "compose", "systemd-timer", "kubernetes-cronjob"] {
        let said = run(longshore(&["import", kind, "--help"]).env("COLUMNS", "100"));
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/help/import-{kind}.txt"));
        if std::env::var_os("LONGSHORE_BLESS").is_some() {
            std::fs::write(&file, &said.out).unwrap();
        }
        if said.code != 0 || std::fs::read_to_string(&file).unwrap_or_default() != said.out {
            stale.push(kind);
        }
    }
    assert!(stale.is_empty(), "the help of {stale:?} differs from tests/help; see the head of this file");
}

/// The file without the keys of schedules, for a server that does not know them yet.
fn without_schedules(text: &str) -> String {
    let keys = ["schedule:", "overlap:", "catch_up:", "catch_up_window:"];
    let mut is_left_out = false;
    let keeps = |line: &&str| {
        let indent = line.len() - line.trim_start().len();
        // Lines with more indentation belong to the key above.
        is_left_out =
            (is_left_out && indent > 4) || (indent == 4 && keys.iter().any(|key| line[4..].starts_with(key)));
        !is_left_out
    };
    text.lines().filter(keeps).map(|line| format!("{line}\n")).collect()
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import")
}

/// Runs `longshore import` among the inputs.
fn import(words: &[&str]) -> CliOutput {
    run(longshore(&["import"]).args(words).current_dir(fixtures()))
}
