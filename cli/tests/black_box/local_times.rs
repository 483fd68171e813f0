//! Times without a zone in `--at` and `--until`, against a stub server: it gets the instant.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::process::Stdio;

use testkit::wait_until;

use crate::stub::{CliOutput, JSON, Stub, job, longshore, run};

const SCHEDULED: &str = r#""state":"scheduled","due_at":"2999-12-01T17:30:00.000Z""#;

fn stub() -> Stub {
    let stub = Stub::new();
    stub.on("POST /api/jobs/resize", "201 Created", JSON, &job(12, SCHEDULED))
        .on("POST /api/jobs/3/retry", "201 Created", JSON, &job(12, SCHEDULED))
        .on("PATCH /api/jobs/12", "200 OK", JSON, &job(12, SCHEDULED))
        .on("POST /api/definitions/resize/pause", "204 No Content", JSON, "");
    stub
}

/// The instant in the body of the last request.
fn sent(stub: &Stub) -> String {
    let body: serde_json::Value = serde_json::from_str(&stub.requests().last().unwrap().body).unwrap();
    body["run_at"].as_str().or(body["until"].as_str()).unwrap().to_owned()
}

#[test]
fn each_verb_sends_the_instant_and_shows_it_by_both_clocks() {
    let stub = stub();
    for (verb, flag) in [
        (&["run", "resize"][..], "--at"),
        (&["retry", "3"], "--at"),
        (&["reschedule", "12"], "--at"),
        (&["pause", "resize"], "--until"),
    ] {
        let ask = |more: &[&str]| -> CliOutput { run(stub.longshore(verb).args(more)) };
        let said = ask(&[flag, "2999-12-01 18:30", "--timezone", "Europe/Berlin"]);
        let note = format!(
            "longshore: {flag} 2999-12-01 18:30 is 2999-12-01T17:30:00.000Z, in Europe/Berlin Sun 2999-12-01 18:30:00 +01:00\n"
        );
        assert_eq!((said.code, said.err), (0, note), "{verb:?}");
        assert_eq!(sent(&stub), "2999-12-01T17:30:00.000Z", "{verb:?}");
        let said = ask(&[flag, "2999-03-01T09:30:00+02:00"]);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{verb:?}");
        assert_eq!(sent(&stub), "2999-03-01T09:30:00+02:00", "an instant with its zone is sent as it is");
        let before = stub.requests().len();
        for (time, zone, why) in [
            ("2999-12-01", "UTC", "\"2999-12-01\" is no time; write 18:30 (the next one)"),
            ("2020-12-01 18:30", "UTC", "2020-12-01 18:30 is past in UTC"),
            ("18:30", "Europe/Berln", "did you mean Europe/Berlin?"),
        ] {
            let said = ask(&[flag, time, "--timezone", zone]);
            assert!(said.code == 2 && said.err.contains(why), "{verb:?}: {said:?}");
        }
        let twice = ask(&[flag, "2999-03-01T09:30:00Z", "--timezone", "UTC"]);
        assert!(twice.code == 2 && twice.err.contains("names its own zone"), "{verb:?}: {twice:?}");
        assert_eq!(ask(&["--timezone", "UTC"]).code, 2, "{verb:?}: a zone belongs to a time");
        assert_eq!(stub.requests().len(), before);
    }
}

#[test]
fn the_zone_is_that_of_the_variable() {
    let stub = stub();
    let at = |zone: &str| run(stub.longshore(&["run", "resize", "--at", "2999-07-01 18:30"]).env("TZ", zone));
    for (zone, instant) in [
        ("Europe/Berlin", "2999-07-01T16:30:00.000Z"),
        (":America/New_York", "2999-07-01T22:30:00.000Z"),
        (":/usr/share/zoneinfo/Asia/Tokyo", "2999-07-01T09:30:00.000Z"),
        ("", "2999-07-01T18:30:00.000Z"),
    ] {
        let said = at(zone);
        assert_eq!((said.code, sent(&stub).as_str()), (0, instant), "{zone}: {said:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("localtime");
    std::os::unix::fs::symlink("/usr/share/zoneinfo/Asia/Tokyo", &link).unwrap();
    let said = at(&format!(":{}", link.display()));
    assert_eq!((said.code, sent(&stub).as_str()), (0, "2999-07-01T09:30:00.000Z"), "{said:?}");
    let said = at("CET-1CEST");
    assert!(said.code == 2 && said.err.contains("the variable TZ is \"CET-1CEST\""), "{said:?}");
    assert!(said.err.contains("give --timezone"), "{said:?}");
}

#[test]
fn a_time_that_clocks_skip_or_show_twice_is_that_of_a_schedule() {
    let stub = stub();
    // The rules of the zone hold for all years to come.
    for (time, instant, local) in [
        ("2999-03-31 02:30", "2999-03-31T01:00:00.000Z", "2999-03-31 03:00:00 +02:00"),
        ("2999-10-27 02:30", "2999-10-27T00:30:00.000Z", "2999-10-27 02:30:00 +02:00"),
    ] {
        let said = run(&mut stub.longshore(&["run", "resize", "--at", time, "--timezone", "Europe/Berlin"]));
        assert_eq!(sent(&stub), instant, "{said:?}");
        assert!(said.err.contains(local), "{said:?}");
    }
}

#[test]
fn quiet_verbs_do_not_note_the_instant() {
    let stub = stub();
    for verb in [&["run", "resize"][..], &["retry", "3"]] {
        let said = run(stub.longshore(verb).args(["-q", "--at", "2999-12-01 18:30", "--timezone", "UTC"]));
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (0, "12\n", ""), "{verb:?}");
    }
}

#[tokio::test]
async fn wrong_flags_are_refused_before_the_note_and_before_standard_input_is_read() {
    let at = ["--at", "2999-12-01 18:30", "--timezone", "UTC"];
    for (words, why) in [
        (&["retry", "--name", "x", "--yes"][..], "flags that change the new jobs"),
        (&["retry", "1", "2", "--follow"], "--follow is for one job"),
        (
            &["retry", "1", "--set-label", "a=1", "--set-label", "a=2"],
            "the label \"a\" is given more than once",
        ),
        (&["run", "resize", "-p", "a=1", "-p", "a=2"], "the parameter \"a\" is given more than once"),
        (&["pause"], "pause what?"),
    ] {
        let time = if words[0] == "pause" { ["--until", at[1], at[2], at[3]] } else { at };
        let mut command = longshore(words);
        command.args(time).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if words[0] != "pause" {
            command.args(["--input", "-"]);
        }
        let mut child = command.spawn().unwrap();
        // It stays open: a program that reads it never ends.
        let input = child.stdin.take();
        wait_until("the flags are refused", async || child.try_wait().unwrap().is_some()).await;
        drop(input);
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {err}");
        assert!(err.starts_with("error: ") && err.contains(why), "{words:?}: {err}");
    }
}
