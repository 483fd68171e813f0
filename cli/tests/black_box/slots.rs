//! Slots by the real program: how their jobs ended, how their retries did, and how failed dates are repaired.

use serde_json::{Value, json};

use crate::running::Running;

/// The second and the fourth of March fail, unless somebody forces them.
const JOBS: &str = "version: 1
defaults: { runtime: process }
jobs:
  report:
    command:
      - sh
      - -c
      - 'test -n \"$$FORCE\" || case $$LONGSHORE_SCHEDULED_AT in 2026-03-02*|2026-03-04*) exit 3;; esac'
    schedule: { id: nightly, cron: \"0 HOUR * * *\", timezone: Europe/Berlin }
";

/// A server with these jobs. Their schedule fires some hours from now at the earliest. Also gives the hour of its slots, in Berlin.
async fn start() -> (Running, String) {
    let seconds = std::time::UNIX_EPOCH.elapsed().expect("a time after 1970").as_secs();
    let hour = if (6..18).contains(&(seconds / 3_600 % 24)) { "02" } else { "12" };
    (Running::start(&JOBS.replace("HOUR", hour)).await, hour.to_owned())
}

fn json_of(running: &Running, arguments: &[&str]) -> Value {
    let output = running.run_cli(&[arguments, &["-o", "json"]].concat());
    assert_eq!(output.code, 0, "{arguments:?}: {output:?}");
    serde_json::from_str(&output.out).expect("JSON")
}

/// Makes the jobs of these days, and waits for their ends.
async fn backfill(running: &Running, from: &str, to: &str) -> Vec<u64> {
    let made = json_of(running, &["backfill", "report", "--from", from, "--to", to]);
    let jobs = made["slots"].as_array().expect("slots").iter().filter_map(|it| it["job"].as_u64());
    let jobs: Vec<u64> = jobs.collect();
    for job in &jobs {
        running.api.wait_for_job(*job, |job| job["ended_at"].is_string()).await;
    }
    jobs
}

/// The ids that a list prints.
fn ids(running: &Running, arguments: &[&str]) -> Vec<u64> {
    let listed = running.run_cli(&[arguments, &["-q"]].concat());
    assert_eq!(listed.code, 0, "{listed:?}");
    listed.out.lines().map(|line| line.parse().expect("a number")).collect()
}

/// Retries a job with this flag, and waits for the end of the new one.
fn retry(running: &Running, job: u64, more: &[&str]) -> u64 {
    let retried = running.run_cli(&[&["retry", &job.to_string(), "--wait"], more].concat());
    assert!([0, 3].contains(&retried.code), "{retried:?}");
    ids(running, &["ls", "-n", "1"])[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_shows_its_end_and_counts_as_failed_until_its_last_job_has_succeeded() {
    let (running, hour) = start().await;
    let none = running.run_cli(&["fires", "report"]);
    assert!(none.code == 0 && none.out.is_empty(), "{none:?}");
    assert!(
        none.err.contains("no slot of report (nightly) is in the ledger; the next one is 20"),
        "{none:?}"
    );
    let planned =
        running.run_cli(&["backfill", "report", "--from", "2026-03-01", "--to", "2026-03-03", "--dry-run"]);
    assert!(
        planned.out.contains("LOCAL") && planned.out.contains(&format!("Sun 2026-03-01 {hour}:00:00 +01:00")),
        "{planned:?}"
    );

    let jobs = backfill(&running, "2026-03-01", "2026-03-03").await;
    let fires = json_of(&running, &["fires", "report"]);
    let shown = |row: usize| ["job", "state", "exit_code", "unresolved"].map(|key| fires[row][key].clone());
    assert_eq!(shown(0)[..2], [json!(jobs[2]), json!("succeeded")]);
    assert_eq!(shown(1), [json!(jobs[1]), json!("failed"), json!(3), json!(true)]);
    let failed = |running: &Running| json_of(running, &["fires", "report", "--failed"]);
    let only = failed(&running);
    assert_eq!((&only[0], &only[1]), (&fires[1], &Value::Null), "{only}");

    let again = retry(&running, jobs[1], &[]);
    let only = failed(&running);
    assert_eq!((&only[0]["retry"]["id"], &only[0]["retry"]["state"]), (&json!(again), &json!("failed")));
    let table = running.run_cli(&["fires", "report", "--failed"]);
    assert!(
        table.out.contains("failed, exit 3") && table.out.contains(&format!("{hour}:00:00 +01:00")),
        "{table:?}"
    );
    let repaired = retry(&running, again, &["-e", "FORCE=1"]);
    assert_eq!(failed(&running), json!([]));
    let row = json_of(&running, &["fires", "report"])[1].clone();
    assert_eq!((&row["state"], &row["retry"]["id"]), (&json!("failed"), &json!(repaired)), "{row}");
    let listed = ids(&running, &["ls", "--schedule", "nightly", "-n", "9"]);
    assert_eq!(listed, [repaired, again, jobs[2], jobs[1], jobs[0]], "retries carry the slot on");

    // Nothing is left to ask about, but the answer says why.
    let left = running.run_cli(&["retry", "--name", "report", "--state", "failed"]);
    let expected = "0 retried of 0 jobs; 2 jobs beside them retried before\n";
    assert_eq!((left.code, left.out.as_str()), (0, expected), "{left:?}");
    assert!(left.err.contains(&format!("job {again} was retried before: job {repaired} is")), "{left:?}");

    let page = String::from_utf8(running.api.get_bytes("/schedules?name=report").await).expect("text");
    assert!(page.contains(&format!("job {repaired}</a> <span class=\"state good\">succeeded")), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_dates_are_retried_oldest_first_and_each_once() {
    let (running, _) = start().await;
    // The later dates have the lower numbers.
    let late = backfill(&running, "2026-03-03", "2026-03-05").await;
    let early = backfill(&running, "2026-03-01", "2026-03-02").await;
    let select = ["retry", "--name", "report", "--schedule", "nightly", "--state", "failed"];
    let retried = running.run_cli(&[&select[..], &["--yes"]].concat());
    assert_eq!(retried.code, 0, "{retried:?}");
    let newest = ids(&running, &["ls", "-n", "2"]);
    let expected = format!(
        "job {} tries job {} again\njob {} tries job {} again\n2 retried of 2 jobs\n",
        newest[1], early[1], newest[0], late[1]
    );
    assert_eq!(retried.out, expected);
    for job in &newest {
        running.api.wait_for_job(*job, |job| job["ended_at"].is_string()).await;
    }
    // The originals and their retries have failed: each date is retried once.
    let again = running.run_cli(&[&select[..], &["--yes"]].concat());
    assert!(again.out.ends_with("2 retried of 2 jobs; 2 jobs beside them retried before\n"), "{again:?}");
    assert!(again.out.contains(&format!("tries job {} again", newest[1])), "{again:?}");
    let note = format!("job {} was retried before: job {} is ", early[1], newest[1]);
    assert!(again.err.contains(&note), "{again:?}");
    for job in ids(&running, &["ls", "-n", "2"]) {
        running.api.wait_for_job(job, |job| job["ended_at"].is_string()).await;
        running.run_cli(&["ack", &job.to_string(), "--reason", "done by hand"]);
    }
    let unresolved = ["retry", "--name", "report", "--schedule", "nightly", "--unresolved", "--yes"];
    let nothing = running.run_cli(&unresolved);
    assert_eq!((nothing.code, nothing.out.as_str()), (0, "0 retried of 0 jobs\n"), "{nothing:?}");
}
