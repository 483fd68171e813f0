//! Verbs that read standard input or relative times.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::fs::File;

use testkit::wait_until;

use crate::running::Running;
use crate::stub::{CliOutput, longshore, run};

const JOBS_FILE: &str = "
defaults: { runtime: process }
jobs:
  tick: { command: ['true'], schedule: { every: 1h } }
";

/// Runs the program with this text on its standard input.
fn verb_with_input(running: &Running, arguments: &[&str], text: &str) -> CliOutput {
    let file = running.cluster.path("input");
    std::fs::write(&file, text).unwrap();
    let address = format!("http://{}", running.cluster.address());
    run(longshore(arguments).env("LONGSHORE_SERVER", address).stdin(File::open(file).unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn verbs_take_standard_input_and_relative_times() {
    let running = Running::start(JOBS_FILE).await;
    let wrong = "jobs:\n  a: { imgae: x }\n";
    let planned = verb_with_input(&running, &["plan", "-"], wrong);
    assert!(planned.code == 2 && planned.err.starts_with("standard input:2:8: unknown_field"), "{planned:?}");
    let file = running.cluster.path("mine.yaml");
    std::fs::write(&file, wrong).unwrap();
    let planned = running.run_cli(&["plan", file.to_str().unwrap()]);
    assert!(planned.err.starts_with(&format!("{}:2:8: ", file.display())), "{planned:?}");
    let planned = verb_with_input(&running, &["plan", "-"], JOBS_FILE);
    assert!(planned.code == 0 && planned.out.contains("0 changed"), "{planned:?}");
    let checked = verb_with_input(&running, &["validate", "-"], wrong);
    assert!(checked.code == 2 && checked.err.starts_with("standard input:2:8: unknown_field"), "{checked:?}");
    let checked = verb_with_input(&running, &["validate", "-"], JOBS_FILE);
    assert_eq!(
        (checked.code, checked.out.as_str()),
        (0, "standard input: 1 job, no faults\n"),
        "{checked:?}"
    );

    running.run_cli(&["cordon", "only"]);
    let audited = async || running.run_cli(&["audit", "--since", "1h"]).out.contains("/api/workers/");
    wait_until("the audit log has the request", audited).await;
    let wrong = running.run_cli(&["audit", "--since", "soon"]);
    assert!(wrong.code == 2 && wrong.err.contains("or a duration before now"), "{wrong:?}");
    let slots = running.run_cli(&["backfill", "tick", "--from", "150m", "--dry-run"]);
    // 150 minutes hold two full hours, or three if the clock shows less than half past.
    let has_count = ["2 jobs would be made", "3 jobs would be made"].iter().any(|it| slots.err.contains(it));
    assert!(slots.code == 0 && has_count, "{slots:?}");

    let untargeted = running.run_cli(&["notify", "test", "tick"]);
    assert!(
        untargeted.code == 1 && untargeted.err.contains("tick has no targets; add `notify`"),
        "{untargeted:?}"
    );
    let unknown = running.run_cli(&["notify", "test", "tikc"]);
    assert!(unknown.code == 4 && unknown.err.contains("did you mean \"tick\"?"), "{unknown:?}");
}
