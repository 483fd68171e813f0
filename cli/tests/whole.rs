//! Server, worker and the user's verbs as one: `longshore dev` with the fake runtime, asked over real HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot set its stage fails")]

mod stub;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stub::{Said, longshore, said};

/// `longshore dev` in a directory of its own.
struct Dev {
    process: Child,
    url: String,
    _directory: tempfile::TempDir,
}

impl Dev {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("jobs.yaml"), JOBS_FILE).unwrap();
        let mut command =
            longshore(&["dev", "--listen", "127.0.0.1:0", "--no-docker", "--allow-fake", "--allow-process"]);
        command.current_dir(directory.path()).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.find_map(|line| Some(line.split_once("listening on ")?.1.to_owned())).unwrap();
        // What is logged from here on must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let dev = Self { process, url, _directory: directory };
        dev.until_said(&["workers"], " ready ");
        dev
    }

    fn longshore(&self, arguments: &[&str]) -> Command {
        let mut command = longshore(arguments);
        command.env("LONGSHORE_SERVER", &self.url);
        command
    }

    /// Asks until the answer holds this: what workers are doing is shown a moment later than it is decided.
    fn until_said(&self, arguments: &[&str], expected: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !said(&mut self.longshore(arguments)).out.contains(expected) {
            assert!(Instant::now() < deadline, "{arguments:?} never said {expected:?}");
        }
    }

    /// Leaves as Ctrl-C would have it; the exit code.
    fn leave(mut self) -> Option<i32> {
        let pid = i32::try_from(self.process.id()).ok().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        self.process.wait().unwrap().code()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // Gone already if the test went well.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_job_is_followed_from_the_command_line_to_its_end() {
    let dev = Dev::start();
    let followed = said(&mut dev.longshore(&["run", "say", "--follow", "-e", "FAKE_EXIT=3"]));
    assert_eq!((followed.code, followed.out.as_str()), (3, "hello\n"), "{followed:?}");
    assert!(followed.err.ends_with("oops\nlongshore: job 1 failed, exit 3\n"), "{followed:?}");

    let logs = said(&mut dev.longshore(&["logs", "1", "--stream", "stderr"]));
    assert_eq!(logs, Said { code: 0, out: String::new(), err: "oops\n".to_owned() });
    let shown = said(&mut dev.longshore(&["show", "1", "-o", "json"]));
    let job: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!((&job["state"], &job["exit_code"]), (&"failed".into(), &3.into()));

    let again = said(&mut dev.longshore(&["retry", "1"]));
    assert!(again.out.starts_with("job 2 tries job 1 again"), "{again:?}");
    assert_eq!(said(&mut dev.longshore(&["run", "unknown"])).code, 4);
    assert_eq!(dev.leave(), Some(0));
}

#[test]
fn a_plain_process_runs_under_the_shim_of_the_same_binary() {
    let dev = Dev::start();
    let told =
        said(&mut dev.longshore(&["run", "process", "--follow", "--", "echo out; echo err >&2; exit 7"]));
    assert_eq!((told.code, told.out.as_str()), (7, "out\n"), "{told:?}");
    assert!(told.err.contains("\nerr\n"), "{told:?}");
    assert_eq!(
        said(&mut longshore(&["shim"])).err,
        "longshore shim: usage: longshore shim ATTEMPT_DIRECTORY\n"
    );
}

#[test]
fn a_waiting_person_learns_that_the_job_was_cancelled() {
    let dev = Dev::start();
    let mut waiting = dev.longshore(&["run", "long", "--wait"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(waiting.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(told.next().unwrap().starts_with("longshore: job 1 is "));
    assert_eq!(said(&mut dev.longshore(&["cancel", "1"])).code, 0);
    assert_eq!(told.next().unwrap(), "longshore: job 1 cancelled");
    assert_eq!(waiting.wait().unwrap().code(), Some(143));
    let second = said(&mut dev.longshore(&["cancel", "1"]));
    assert_eq!((second.code, second.out.as_str()), (0, "job 1 is cancelled\n"), "{second:?}");
}

#[test]
fn a_worker_tells_how_its_machine_is() {
    let dev = Dev::start();
    dev.until_said(&["workers", "dev"], "disk free ");
    let shown = said(&mut dev.longshore(&["workers", "id:1", "-o", "json"]));
    let worker: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    assert!(worker["load_milli"].is_u64() && worker["disk_free_bytes"].as_u64() > Some(0), "{worker}");
    assert!(worker["joined_at"].is_string(), "all that is known of one: {worker}");
    assert!(worker.get("engine_id").is_none(), "it has no Docker: {worker}");
    let unknown = said(&mut dev.longshore(&["workers", "anna"]));
    assert_eq!(unknown.code, 4, "{unknown:?}");
}

#[test]
fn a_worker_is_cordoned_by_name_and_jobs_wait_for_a_reason() {
    let dev = Dev::start();
    assert_eq!(said(&mut dev.longshore(&["run", "say", "--wait"])).code, 0);
    assert_eq!(said(&mut dev.longshore(&["cordon", "dev"])).code, 0);
    let waits = said(&mut dev.longshore(&["run", "say"]));
    assert!(waits.out.starts_with("job 2 is queued"), "{waits:?}");
    dev.until_said(&["workers"], "(cordoned)");
    let why = said(&mut dev.longshore(&["explain", "2"]));
    assert!(
        why.out.starts_with("job 2 (say) is queued: the workers that could run it are cordoned"),
        "{why:?}"
    );
    assert!(why.out.contains("\n 1  dev     unable   it is cordoned\n"), "{why:?}");
    let why = said(&mut dev.longshore(&["explain", "1"]));
    assert_eq!(why.out, "job 1 (say) is succeeded: it has ended: succeeded\n");
    let labelled = said(&mut dev.longshore(&["label", "dev", "zone=b", "rack=7"]));
    assert_eq!(labelled.out, "worker dev (id 1) has the labels rack=7 zone=b\n");
    assert_eq!(
        said(&mut dev.longshore(&["label", "1", "rack-"])).out,
        "worker dev (id 1) has the labels zone=b\n"
    );
    dev.until_said(&["workers"], " zone=b ");
    assert_eq!(said(&mut dev.longshore(&["label", "1", "=b"])).code, 2);

    assert_eq!(
        said(&mut dev.longshore(&["slots", "dev", "3"])).out,
        "worker dev (id 1) runs 3 jobs at once\n"
    );
    let none = said(&mut dev.longshore(&["slots", "dev", "0"]));
    assert!(none.code != 0 && none.err.contains("cordon"), "{none:?}");
    assert_eq!(said(&mut dev.longshore(&["uncordon", "1"])).code, 0);
    assert_eq!(said(&mut dev.longshore(&["logs", "-f", "2"])).out, "hello\n");
}

#[test]
fn a_server_with_a_bad_jobs_file_tells_all_of_it_and_ends_with_two() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("jobs.yaml"), "jobs:\n  a: { imgae: x, priority: 9999 }\n").unwrap();
    let mut command = longshore(&["server", "--listen", "127.0.0.1:0", "--data", "data"]);
    let said = said(command.current_dir(directory.path()));
    assert_eq!(said.code, 2);
    assert!(said.err.contains("did you mean \"image\"") && said.err.contains("out_of_range"), "{said:?}");
    assert!(said.err.ends_with("error: the jobs file has 2 faults\n"), "{said:?}");
}

#[test]
fn a_server_beyond_loopback_without_tokens_is_refused() {
    let said = said(&mut longshore(&["server", "--listen", "0.0.0.0:0"]));
    assert_eq!(said.code, 2);
    assert!(said.err.contains("refusing to listen beyond loopback without tokens"), "{said:?}");
}

#[test]
fn dev_beyond_loopback_is_refused_in_its_own_words() {
    let said = said(&mut longshore(&["dev", "--listen", "0.0.0.0:0"]));
    assert_eq!(said.code, 2);
    assert!(said.err.contains("--listen: dev listens on loopback only"), "{said:?}");
    assert!(!said.err.contains("--insecure-no-auth"), "dev has no such flag: {said:?}");
}

const JOBS_FILE: &str = "\
jobs:
  say: { runtime: fake, environment: { FAKE_STDOUT: hello, FAKE_STDERR: oops } }
  process: { runtime: process, command: [/bin/sh, -c] }
  long: { runtime: fake, environment: { FAKE_SLEEP: 1h } }
";
