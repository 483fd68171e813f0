//! `longshore dev` with the fake runtime: server, worker and verbs together over real HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::stub::{CliOutput, longshore, run};

/// `longshore dev` in a temporary directory.
struct Dev {
    process: Child,
    url: String,
    directory: tempfile::TempDir,
}

impl Dev {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("jobs.yaml"), JOBS_FILE).unwrap();
        std::fs::create_dir(directory.path().join("secrets")).unwrap();
        std::fs::write(directory.path().join("secrets/word"), "sesame").unwrap();
        let mut command =
            longshore(&["dev", "--listen", "127.0.0.1:0", "--no-docker", "--allow-fake", "--allow-process"]);
        command.args(flags);
        command.current_dir(directory.path()).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.find_map(|line| Some(line.split_once("listening on ")?.1.to_owned())).unwrap();
        // Later log lines must not block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let dev = Self { process, url, directory };
        dev.until_said(&["workers"], " ready ");
        dev
    }

    fn longshore(&self, arguments: &[&str]) -> Command {
        let mut command = longshore(arguments);
        command.env("LONGSHORE_SERVER", &self.url);
        command
    }

    /// Polls until the response contains this; the phase of a job is shown a moment after its assignment.
    fn until_said(&self, arguments: &[&str], expected: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !run(&mut self.longshore(arguments)).out.contains(expected) {
            assert!(Instant::now() < deadline, "{arguments:?} never said {expected:?}");
        }
    }

    /// Stops it with SIGINT; returns the exit code.
    fn leave(mut self) -> Option<i32> {
        let pid = i32::try_from(self.process.id()).ok().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        self.process.wait().unwrap().code()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // It has ended if the test passed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn job_is_followed_from_submission_to_its_end() {
    let dev = Dev::start();
    let followed = run(&mut dev.longshore(&["run", "say", "--follow", "-e", "FAKE_EXIT=3"]));
    assert_eq!((followed.code, followed.out.as_str()), (3, "hello\n"), "{followed:?}");
    assert!(followed.err.ends_with("oops\nlongshore: job 1 failed, exit 3\n"), "{followed:?}");

    let logs = run(&mut dev.longshore(&["logs", "1", "--stream", "stderr"]));
    assert_eq!(logs, CliOutput { code: 0, out: String::new(), err: "oops\n".to_owned() });
    let shown = run(&mut dev.longshore(&["show", "1", "-o", "json"]));
    let job: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!((&job["state"], &job["exit_code"]), (&"failed".into(), &3.into()));

    let again = run(&mut dev.longshore(&["retry", "1"]));
    assert!(again.out.starts_with("job 2 tries job 1 again"), "{again:?}");
    assert_eq!(run(&mut dev.longshore(&["run", "unknown"])).code, 4);
    assert_eq!(dev.leave(), Some(0));
}

#[test]
fn process_job_runs_under_the_shim() {
    let dev = Dev::start();
    let told =
        run(&mut dev.longshore(&["run", "process", "--follow", "--", "echo out; echo err >&2; exit 7"]));
    assert_eq!((told.code, told.out.as_str()), (7, "out\n"), "{told:?}");
    assert!(told.err.contains("\nerr\n"), "{told:?}");
    assert_eq!(
        run(&mut longshore(&["shim"])).err,
        "longshore shim: usage: longshore shim ATTEMPT_DIRECTORY\n"
    );
}

#[test]
fn parameters_reach_the_program_as_words_and_variables() {
    let dev = Dev::start();
    let told = |arguments: &[&str]| run(&mut dev.longshore(arguments));
    let said = told(&["run", "resize", "--follow", "-p", "size=5", "-p", "mode=a b; exit 9"]);
    assert_eq!((said.code, said.out.as_str()), (0, "5 a b; exit 9 5 5\n"), "{said:?}");
    let defaults = told(&["run", "resize", "--follow"]);
    assert_eq!(defaults.out, "640  640 640\n", "{defaults:?}");
    let wrong = told(&["run", "resize", "-p", "size=9000"]);
    assert!(wrong.code == 2 && wrong.err.contains("up to 4000"), "{wrong:?}");
    let shown = told(&["show", "1"]);
    assert!(shown.out.contains("'mode=a b; exit 9' size=5"), "{shown:?}");
    let help = told(&["run", "resize", "--help"]);
    assert!(help.out.contains("Parameters of resize:") && help.out.contains("Width in pixels"), "{help:?}");
    assert!(told(&["definitions", "resize"]).out.contains("a whole number up to 4000"));
    let again = told(&["retry", "1", "-p", "size=7"]);
    assert_eq!(again.code, 0, "{again:?}");
    dev.until_said(&["show", "3"], "'mode=a b; exit 9' size=7");
}

#[test]
fn an_input_is_read_and_a_result_comes_back() {
    let dev = Dev::start();
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("input.json");
    std::fs::write(&input, r#"{"pages": [1, 2]}"#).unwrap();
    let told = |script: &str, input: &std::path::Path| {
        let mut command = dev.longshore(&["run", "process", "--wait", "-o", "json", "--input"]);
        let said = run(command.arg(input).args(["--", script]));
        serde_json::from_str::<serde_json::Value>(&said.out).unwrap_or_else(|_| panic!("{said:?}"))
    };
    let job = told("cat $LONGSHORE_INPUT > $LONGSHORE_RESULT", &input);
    assert_eq!(
        (&job["result"], &job["input"]),
        (&job["input"], &serde_json::json!({"pages": [1, 2]})),
        "{job}"
    );
    let torn = told("echo '{' > $LONGSHORE_RESULT", &input);
    assert_eq!((&torn["state"], torn.get("result")), (&"succeeded".into(), None), "{torn}");
    assert!(torn.to_string().contains("its result was left out: it is not JSON"), "{torn}");
    let said = run(&mut dev.longshore(&[
        "run",
        "process",
        "--wait",
        "--",
        "echo '{\"loss\": NaN}' > $LONGSHORE_RESULT",
    ]));
    let warning = "its result was left out: it is not JSON: expected value at line 1 column 10";
    assert!(said.code == 0 && said.err.contains(warning), "{said:?}");
    let large = told("head -c 70000 /dev/zero > $LONGSHORE_RESULT", &input);
    assert!(
        large["state"] == "succeeded" && large.to_string().contains("larger than 65536 bytes"),
        "{large}"
    );
    std::fs::write(&input, "{").unwrap();
    let wrong = run(dev.longshore(&["run", "process", "--input"]).arg(&input));
    assert!(wrong.code == 2 && wrong.err.contains("is not JSON"), "{wrong:?}");
}

#[test]
fn run_wait_prints_that_the_job_was_cancelled() {
    let dev = Dev::start();
    let mut waiting = dev.longshore(&["run", "long", "--wait"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(waiting.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(told.next().unwrap().starts_with("longshore: job 1 is "));
    assert_eq!(run(&mut dev.longshore(&["cancel", "1"])).code, 0);
    assert!(told.next().unwrap().starts_with("longshore: job 1 cancelled by "));
    assert_eq!(waiting.wait().unwrap().code(), Some(143));
    let second = run(&mut dev.longshore(&["cancel", "1"]));
    assert_eq!((second.code, second.out.as_str()), (0, "job 1 is cancelled\n"), "{second:?}");
}

#[test]
fn dev_has_secrets_and_reads_a_changed_jobs_file_again() {
    let dev = Dev::start_with(&["--secrets-dir", "secrets"]);
    let changed = "jobs: { knock: { runtime: process, command: [sh, -c, 'test $W = sesame'], environment: { W: { secret: word } } } }\n";
    std::fs::write(dev.directory.path().join("jobs.yaml"), changed).unwrap();
    dev.until_said(&["definitions", "-o", "name"], "knock");
    let ran = run(&mut dev.longshore(&["run", "knock", "--wait"]));
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn worker_shows_load_and_disk_of_its_machine() {
    let dev = Dev::start();
    dev.until_said(&["workers", "dev"], "disk free ");
    let shown = run(&mut dev.longshore(&["workers", "id:1", "-o", "json"]));
    let worker: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    assert!(worker["load_milli"].is_u64() && worker["disk_free_bytes"].as_u64() > Some(0), "{worker}");
    assert!(worker["joined_at"].is_string(), "all that is known of one: {worker}");
    assert!(worker.get("engine_id").is_none(), "it has no Docker: {worker}");
    let unknown = run(&mut dev.longshore(&["workers", "anna"]));
    assert_eq!(unknown.code, 4, "{unknown:?}");
}

#[test]
fn job_shows_that_its_only_worker_is_cordoned() {
    let dev = Dev::start();
    assert_eq!(run(&mut dev.longshore(&["run", "say", "--wait"])).code, 0);
    assert_eq!(run(&mut dev.longshore(&["cordon", "dev"])).code, 0);
    let waits = run(&mut dev.longshore(&["run", "say"]));
    assert!(waits.out.starts_with("job 2 is queued"), "{waits:?}");
    dev.until_said(&["workers"], "(cordoned)");
    let why = run(&mut dev.longshore(&["explain", "2"]));
    assert!(
        why.out.starts_with("job 2 (say) is queued: the workers that could run it are cordoned"),
        "{why:?}"
    );
    assert!(why.out.contains("\n 1  dev     unable   it is cordoned (since 2"), "{why:?}");
    let why = run(&mut dev.longshore(&["explain", "1"]));
    assert_eq!(why.out, "job 1 (say) has succeeded\n");
    let labelled = run(&mut dev.longshore(&["label", "dev", "zone=b", "rack=7"]));
    assert_eq!(labelled.out, "worker dev (id 1) has the labels rack=7 zone=b\n");
    assert_eq!(
        run(&mut dev.longshore(&["label", "1", "rack-"])).out,
        "worker dev (id 1) has the labels zone=b\n"
    );
    dev.until_said(&["workers"], " zone=b ");
    assert_eq!(run(&mut dev.longshore(&["label", "1", "=b"])).code, 2);

    assert_eq!(
        run(&mut dev.longshore(&["slots", "dev", "3"])).out,
        "worker dev (id 1) runs 3 jobs at once\n"
    );
    assert_eq!(
        run(&mut dev.longshore(&["slots", "dev", "0"])).out,
        "worker dev (id 1) runs 10000 jobs at once\n",
        "no bound but the protocol's"
    );
    assert_eq!(run(&mut dev.longshore(&["uncordon", "1"])).code, 0);
    assert_eq!(run(&mut dev.longshore(&["logs", "-f", "2"])).out, "hello\n");
}

#[test]
fn server_with_a_bad_jobs_file_prints_all_faults_and_exits_with_2() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("jobs.yaml"), "jobs:\n  a: { imgae: x, priority: 9999 }\n").unwrap();
    let mut command = longshore(&["server", "--listen", "127.0.0.1:0", "--data", "data"]);
    let said = run(command.current_dir(directory.path()));
    assert_eq!(said.code, 2);
    assert!(said.err.contains("did you mean \"image\"") && said.err.contains("out_of_range"), "{said:?}");
    assert!(said.err.ends_with("error: the jobs file has 2 faults\n"), "{said:?}");
}

#[test]
fn dev_refuses_addresses_beyond_loopback() {
    let said = run(&mut longshore(&["dev", "--listen", "0.0.0.0:0"]));
    assert_eq!(said.code, 2);
    assert!(said.err.contains("--listen: dev listens on loopback only"), "{said:?}");
    assert!(!said.err.contains("--insecure-no-auth"), "dev has no such flag: {said:?}");
}

const JOBS_FILE: &str = "\
jobs:
  say: { runtime: fake, environment: { FAKE_STDOUT: hello, FAKE_STDERR: oops } }
  process: { runtime: process, command: [/bin/sh, -c] }
  resize:
    runtime: process
    command: [/bin/sh, -c, 'echo \"$0 $1 $PARAM_SIZE $WIDTH\"', \"${params.size}\", \"${params.mode}\"]
    environment: { WIDTH: \"${params.size}\" }
    params:
      size: { type: integer, max: 4000, default: 640, description: Width in pixels }
      mode: { enum: [fast, 'a b; exit 9'], required: false }
  long: { runtime: fake, environment: { FAKE_SLEEP: 1h } }
";
