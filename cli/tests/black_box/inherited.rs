//! A worker whose starter ignores signals and leaves descriptors open: its jobs get neither.

use std::process::Command;

use testkit::{Cluster, Process};

/// Prints the ignored and the blocked signals, then the open descriptors; the last one is that of `ls` on the directory.
const JOBS: &str = r#"version: 1
jobs:
  show:
    runtime: process
    command: [sh, -c, "grep -E '^Sig(Ign|Blk)' /proc/self/status; ls /proc/self/fd"]
"#;

/// As `nohup` and a shell in the background do it, with two files that nobody has closed.
const STARTER: &str = r#"trap '' HUP INT QUIT USR1; exec "$@" 7</dev/null 8>>"$0""#;

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_process_inherits_no_ignored_signals_and_no_descriptors() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let _server = cluster.start_server(&[]).await;
    let plain = cluster.worker_spec("w1", &cluster.address(), &["--no-docker", "--allow-process"]).command();
    let mut starter = Command::new("sh");
    starter.args(["-c", STARTER]).arg(cluster.path("held")).arg(plain.get_program()).args(plain.get_args());
    starter.env_clear().envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let worker = Process::spawn(starter, &cluster.path("w1.log")).unwrap();
    let api = cluster.api();
    api.wait_for_ready_worker("w1").await;
    // Nobody else may look into a worker.
    if rustix::process::geteuid().is_root() {
        let held = std::fs::read_link(format!("/proc/{}/fd/8", worker.id())).unwrap();
        assert_eq!(held, cluster.path("held"), "the starter's files stay open in the worker");
    }

    let job = api.post("/api/jobs/show?wait=60s", None).await;

    assert_eq!(job["state"], "succeeded", "{job}");
    let output = api.get_bytes(&format!("/api/jobs/{}/logs", job["id"])).await;
    let output = String::from_utf8(output).unwrap();
    let mask = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap() & !OF_THE_C_LIBRARY
    };
    assert_eq!((mask("SigIgn:"), mask("SigBlk:")), (0, 0), "{output}");
    let descriptors: Vec<_> = output.lines().filter(|line| !line.starts_with("Sig")).collect();
    assert_eq!(descriptors, ["0", "1", "2", "3"], "{output}");
}

/// The signals 32 and 33, whose action no program can set.
const OF_THE_C_LIBRARY: u64 = 3 << 31;
