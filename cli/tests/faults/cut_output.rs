//! Output that is longer than `log.max_bytes`: a follower is told at once, and everything that shows or searches it says that it was cut.

use std::sync::{Arc, Mutex};

use protocol::report::{ChunkData, Numbered, OutputLengths, Succeeded, Timing};
use protocol::{Report, ReportNo, Token};
use serde_json::json;

use crate::support::peer::Peer;
use crate::support::{Cluster, wait_until};

const JOBS: &str = "\
version: 1
jobs:
  quick: { runtime: fake, log: { max_bytes: 64k } }
";
const HEAD: usize = 48 << 10;
const WRITTEN: u64 = 100_000;
const GAP: u64 = WRITTEN - (HEAD as u64) - (8 << 10);

/// Lines of a followed output that have come so far.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn push(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }

    fn count(&self, line: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|it| it.as_str() == line).count()
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// A worker with an attempt of a job that has not written anything.
async fn enqueued(cluster: &Cluster) -> (Peer, u64, Token) {
    let mut peer = Peer::join(cluster.port(), "honest", 1).await;
    let job = cluster.api().post("/api/jobs/quick", None).await["id"].as_u64().unwrap();
    let token = peer.enqueued().await;
    (peer, job, token)
}

/// The head of the output arrives: all that comes before the end.
async fn write_head(peer: &mut Peer, token: Token) {
    let head = [vec![b'a'; HEAD - 1], b"\n".to_vec()].concat();
    peer.write_at(token, 0, ChunkData::Bytes(head)).await;
}

/// The middle is left out, the tail arrives, and the attempt ends.
async fn write_end(peer: &mut Peer, token: Token) {
    peer.write_at(token, HEAD as u64, ChunkData::Gap(GAP)).await;
    peer.write_at(token, HEAD as u64 + GAP, ChunkData::Bytes(vec![b'z'; 8 << 10])).await;
    let output = OutputLengths { stdout: WRITTEN, stderr: 0 };
    let ended = Succeeded {
        token,
        output,
        timing: Timing::default(),
        usage: Default::default(),
        result: None,
        note: None,
    };
    peer.say(&Report::Success(Numbered { first: ReportNo(1), list: vec![ended] })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_is_told_at_once_that_further_output_is_withheld() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(&[]).await;
    let (mut peer, job, token) = enqueued(&cluster).await;
    let followers = ["", "&stream=stdout", "&stream=stderr"].map(|stream| {
        let (api, lines) = (cluster.api(), Lines::default());
        let task = tokio::spawn({
            let lines = lines.clone();
            async move {
                let path = format!("/api/jobs/{job}/logs?follow=1{stream}");
                api.follow_lines(&path, |line| lines.push(line)).await.unwrap();
            }
        });
        (lines, task)
    });
    write_head(&mut peer, token).await;
    let told = "longshore: output beyond 48 KiB is not shown while the attempt runs; its last part follows at the end (log.max_bytes is 64 KiB)";
    for (lines, _) in &followers {
        wait_until("it says that output is withheld", async || lines.count(told) == 1).await;
    }
    let events = cluster.run_cli(&["logs", &job.to_string(), "--server", &cluster.address()]);
    assert!(events.1.trim_end().ends_with(told), "a reader that does not follow is told, too: {}", events.1);
    write_end(&mut peer, token).await;
    let cut = format!("longshore: {GAP} bytes of stdout cut at log.max_bytes (64 KiB)");
    for (lines, task) in followers {
        task.await.unwrap();
        assert_eq!(lines.count(told), 1, "once");
        let all = lines.all();
        assert!(all.last().unwrap().ends_with("succeeded"), "{all:?}");
        let of_stdout = all[0].starts_with('a');
        assert_eq!(lines.count(&cut), usize::from(of_stdout));
    }
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_shows_or_searches_cut_output_says_so() {
    let cluster = Cluster::new(JOBS);
    let mut server = cluster.start_server(&[]).await;
    let api = cluster.api();
    let (mut peer, job, token) = enqueued(&cluster).await;
    write_head(&mut peer, token).await;
    write_end(&mut peer, token).await;
    let full = api.wait_for_job(job, |job| job["state"] == "succeeded").await;

    let cut = json!({ "max_bytes": 65_536, "stdout_stored_bytes": 57_344, "stderr_stored_bytes": 0 });
    let output = json!({ "stdout_bytes": WRITTEN, "stderr_bytes": 0, "cut": cut });
    assert_eq!(full["attempts"][0]["output"], output);
    let words = "cut at log.max_bytes (64 KiB): 57344 of 100000 bytes of stdout are stored";
    let cli = |arguments: &[&str]| cluster.run_cli(&[arguments, &["--server", &cluster.address()]].concat());
    let (_, shown) = cli(&["show", &job.to_string()]);
    assert!(shown.contains(&format!("\noutput of attempt 1 {words}\n")), "{shown}");
    let page = String::from_utf8(api.get_bytes(&format!("/jobs/{job}")).await).unwrap();
    assert!(page.contains(&format!("Output of attempt 1 {words}.")), "{page}");

    let found = api.get("/api/logs/search?q=zzz").await;
    assert_eq!(found["cut_jobs"], json!([job]), "{found}");
    let page = String::from_utf8(api.get_bytes("/logs/search?q=zzz").await).unwrap();
    assert!(page.contains("Output of 1 of these jobs was cut at log.max_bytes"), "{page}");
    let (code, said) = cli(&["grep", "-m", "1", "no such line"]);
    let note =
        format!("longshore: output of job {job} was cut at log.max_bytes: only what is stored was searched");
    assert_eq!((code, said.trim_end()), (1, note.as_str()));
    server.terminate().await;
}
