//! `longshore top` on a real terminal, against a real server; and colours on a terminal.

mod pty;

use rustix::process::Signal;

use self::pty::Pty;
use crate::running::Running;
use crate::stub::{JSON, Stub, job, longshore, run};

/// Its output tries to clear the screen and to set the title of the window.
const JOBS: &str = "version: 1
jobs:
  talks: { runtime: process, command: [sh, -c, \"printf 'one\\\\n\\\\033]0;owned\\\\007\\\\033[2Jtwo\\\\n'; sleep 600\"] }
  rests: { runtime: process, command: [sleep, '600'] }
";

const COLOURS: &str = "version: 1
jobs:
  builds:
    runtime: process
    command: [printf, '\\033[31mred\\033[0m\\n10 %%\\r20 %%\\n\\033]0;owned\\007\\033[2J\\033[1mbold\\n']
  asks: {runtime: process, command: [printf, 'Continue? ']}
";

#[tokio::test(flavor = "multi_thread")]
async fn jobs_appear_as_they_change_and_can_be_looked_at_and_cancelled() {
    let running = Running::start(JOBS).await;
    let address = running.cluster.address();
    let talks = running.api.post("/api/jobs/talks", None).await["id"].as_u64().unwrap();
    let mut top = Pty::start(&["top"], &address);
    top.wait_for_line("talks  running").await;
    let rests = running.api.post("/api/jobs/rests", None).await["id"].as_u64().unwrap();
    let row = top.wait_for_line("rests  running").await;
    assert!(row.contains("only"), "{row}");
    top.wait_for_line("running 2").await;

    top.send("j\r");
    top.wait_for_line("two").await;
    let lines = top.lines();
    assert!(lines.iter().any(|line| line.contains(&format!("{talks} talks"))), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("␛]0;owned␇␛[2Jtwo")), "{lines:?}");
    assert!(lines.iter().any(|line| line == "one"), "{lines:?}");
    top.send("q");
    top.wait_for_line("rests  running").await;

    top.send("kc");
    top.wait_for_line(&format!("cancel job {rests}?")).await;
    top.send("y");
    top.wait_for_line("rests  cancelled").await;
    running.api.wait_for_job(rests, |job| job["state"] == "cancelled").await;

    top.send("/talks\r");
    top.wait_until_gone("rests").await;
    top.wait_for_line("filter: talks").await;
    top.send("\t");
    top.wait_for_line("nothing fits the filter").await;
    top.send("\x1b");
    top.wait_for_line("only  ready").await;

    top.resize(100, 30);
    let at_the_foot = async || top.lines()[29].contains("q: quit").then_some(());
    testkit::wait_for("the keys in the last line of the new size", at_the_foot).await;
    top.send("?");
    top.wait_for_line("a page up, down").await;
    top.send("xq");
    let (code, lines) = top.end().await;
    assert_eq!(code, 0, "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_named_and_found_again() {
    let mut running = Running::start(JOBS).await;
    let mut top = Pty::start(&["top", "--tab", "definitions"], &running.cluster.address());
    top.wait_for_line("rests").await;
    running.server.kill();
    top.wait_for_line("trying again").await;
    assert!(top.lines().iter().any(|line| line.contains("rests")), "the last lists stay: {:?}", top.lines());
    running.server = running.cluster.start_server(&[]).await;
    top.wait_until_gone("trying again").await;
    running.api.post("/api/jobs/talks", None).await;
    top.wait_for_line("running 1").await;
    // In raw mode Ctrl-C is a key.
    top.send("\x03");
    assert_eq!(top.end().await.0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_gives_the_terminal_back() {
    let running = Running::start(JOBS).await;
    let top = Pty::start(&["top"], &running.cluster.address());
    top.wait_for_line("workers 1").await;
    let once = running.run_cli(&["top", "--once", "--tab", "workers"]);
    assert!(once.code == 0 && once.out.contains("only  ready"), "{once:?}");
    top.signal(Signal::TERM);
    assert_eq!(top.end().await.0, 128 + 15);
}

#[test]
fn without_a_terminal_it_fails_with_one_line() {
    let said = run(&mut longshore(&["top"]));
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    assert_eq!(
        said.err,
        "error: top needs a terminal; print the view once with --once, or use 'longshore ls' in scripts\n"
    );
}

#[test]
fn one_frame_is_text_and_says_when_there_is_more() {
    let stub = Stub::new();
    let list = format!("[{}]", job(7, r#""state":"queued""#));
    let page = format!(
        "HTTP/1.1 200 OK\r\nlink: </api/jobs?cursor=c2>; rel=\"next\"\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{list}",
        list.len()
    );
    let jobs = |states: &str, limit: u32| {
        format!("GET /api/jobs?state={}&limit={limit}", states.replace(',', "%2C"))
    };
    let waiting = jobs("queued,scheduled,quarantined", 200);
    stub.on(&jobs("running,assigned", 200), "200 OK", JSON, "[]")
        .on_raw(&waiting, page.as_bytes())
        .on(&jobs("succeeded,failed,cancelled,expired,lost", 50), "200 OK", JSON, "[]")
        .on("GET /api/workers", "200 OK", JSON, "[]");
    stub.on(&format!("{}&cursor=c2", waiting.replace("limit=200", "limit=199")), "200 OK", JSON, "[]");
    let said = run(stub.longshore(&["top", "--once"]).env("COLUMNS", "100").env("LINES", "10"));
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    let lines: Vec<&str> = said.out.lines().collect();
    assert!(lines[0].ends_with("running 0   waiting 1   workers 0   slots 0/0"), "{said:?}");
    assert!(lines[3].starts_with(" 7  resize  queued"), "{said:?}");
    assert_eq!((lines.len(), said.out.contains('\x1b')), (4, false), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_keeps_its_colours_and_nothing_else_that_drives_a_terminal() {
    let running = Running::start(COLOURS).await;
    let address = running.cluster.address();
    let job = running.api.post("/api/jobs/builds", None).await["id"].as_u64().unwrap();
    let job = job.to_string();
    // The end of a job does not wait for its output.
    testkit::wait_until("the output is there", async || {
        running.run_cli(&["logs", &job]).out.ends_with("bold\n")
    })
    .await;
    let logs = |more: &[&str], no_color: &str| {
        let arguments: Vec<&str> = ["logs", &job].into_iter().chain(more.iter().copied()).collect();
        let variables = [("TERM", "xterm"), ("NO_COLOR", no_color), ("LONGSHORE_SERVER", address.as_str())];
        // The terminal itself makes CRLF of each line break.
        pty::written(&arguments, &variables).replace("\r\n", "\n")
    };
    assert_eq!(logs(&[], ""), "\x1b[31mred\x1b[0m\n10 %\r20 %\n␛]0;owned␇␛[2J\x1b[1mbold\n\x1b[0m");
    assert_eq!(logs(&[], "1"), "red\n10 %\r20 %\n␛]0;owned␇␛[2Jbold\n");
    let stamped = logs(&["--timestamps"], "1");
    assert!(stamped.contains("Z 10 %␍20 %\n"), "nothing overwrites a time: {stamped:?}");
    let plain = running.run_cli(&["logs", &job]).out;
    assert!(plain.contains("\x1b]0;owned\x07\x1b[2J"), "a file gets the bytes as they are: {plain:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_last_line_without_a_line_break_is_ended_on_a_terminal_only() {
    let running = Running::start(COLOURS).await;
    let address = running.cluster.address();
    let run = ["run", "asks", "--follow", "--server", address.as_str()];
    let text = pty::written(&run, &[("TERM", "xterm"), ("NO_COLOR", "1")]);
    assert!(text.contains("Continue? \r\nlongshore: job "), "{text:?}");
    assert_eq!(running.run_cli(&["run", "asks", "--follow"]).out, "Continue? ");
}

#[test]
fn no_color_and_dumb_terminals_get_no_escape_sequences() {
    // Nobody listens on port 1: the error is written at once.
    let arguments = ["ls", "--server", "http://127.0.0.1:1"];
    let coloured = "\u{1b}[1;31merror:\u{1b}[0m";
    for variables in [&[("TERM", "xterm")][..], &[("TERM", "xterm"), ("NO_COLOR", "")]] {
        let text = pty::written(&arguments, variables);
        assert!(text.contains(coloured), "{variables:?}: {text:?}");
    }
    for variables in [[("TERM", "xterm"), ("NO_COLOR", "1")], [("TERM", "dumb"), ("COLUMNS", "80")]] {
        let text = pty::written(&arguments, &variables);
        assert!(text.contains("error:") && !text.contains('\u{1b}'), "{variables:?}: {text:?}");
    }
    for arguments in [&["--help"][..], &["ls", "--nope"], &["top", "--help"]] {
        let text = pty::written(arguments, &[("TERM", "xterm"), ("NO_COLOR", "1")]);
        assert!(!text.is_empty() && !text.contains('\u{1b}'), "{arguments:?}: {text:?}");
    }
}
