//! The log viewer says why output is missing: removed, interrupted by a restart, or gone with its job.

use testkit::browser::{self, Browser};
use testkit::{Database, wait_until};

use crate::{CONTRAST, Running, SIZES, keep_picture, number, submit};

const JOBS_FILE: &str = "
version: 1
defaults: { runtime: process }
jobs:
  short: { command: [echo, 'a line of output'] }
  long: { command: [sh, -c, 'echo first; exec sleep 600'] }
";

/// Pixels by which the page is wider than the window.
const OVERHANG: &str = "return document.documentElement.scrollWidth - innerWidth";

async fn wait_for_text(browser: &Browser, text: &str) {
    wait_until(&format!("the page says: {text}"), async || browser.text().await.contains(text)).await;
}

/// Removes all output of a stopped server, and makes its jobs an hour older: younger output might still arrive.
fn remove_output(data: &std::path::Path) {
    for segment in std::fs::read_dir(data.join("logs")).unwrap() {
        std::fs::remove_file(segment.unwrap().path()).unwrap();
    }
    let age = "DROP TRIGGER ended_is_for_good; UPDATE ended SET closed_at = closed_at - 3600000, ended_at = ended_at - 3600000";
    Database::execute(data, age);
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_output_is_explained() {
    if !browser::is_required() {
        return;
    }
    let mut running = Running::start(JOBS_FILE).await;
    let job = submit(&running.api, "short").await;
    running.api.wait_for_job(job, |job| job["state"] == "succeeded").await;
    running.server.terminate().await;
    remove_output(&running.cluster.path("data"));
    running.server = running.cluster.start_server(&[]).await;
    for (name, width, height) in SIZES {
        let browser = Browser::start(name == "narrow").await;
        browser.resize(width, height).await;
        browser.open(&format!("{}/jobs/{job}/output", running.base)).await;
        wait_for_text(&browser, "Attempt 1 wrote 17 B of output, and the server has none of it any more")
            .await;
        assert_eq!(number(&browser, "return document.querySelectorAll('#output').length").await, 0);
        assert!(number(&browser, OVERHANG).await <= 0, "{name}");
        let weak = browser.run(CONTRAST).await;
        assert_eq!(weak.as_array().map(Vec::len), Some(0), "{name}: {weak}");
        keep_picture(&browser, &format!("output-removed-{name}")).await;
        browser.quit().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_viewer_says_why_the_output_stands_still() {
    if !browser::is_required() {
        return;
    }
    let mut running = Running::start(JOBS_FILE).await;
    let job = submit(&running.api, "long").await;
    running.api.wait_for_job(job, |job| job["state"] == "running").await;
    let browser = Browser::start(false).await;
    browser.resize(SIZES[1].1, SIZES[1].2).await;
    browser.open(&format!("{}/jobs/{job}/output", running.base)).await;
    let shown = "return document.querySelector('#output .line > span')?.textContent === 'first' ? 1 : 0";
    wait_until("the output is shown", async || number(&browser, shown).await == 1).await;
    let status = "return document.getElementById('output-status').textContent";
    assert_eq!(browser.run(status).await, "");

    running.server.terminate().await;
    wait_for_text(&browser, "The server is shutting down, which does not affect the job.").await;
    assert!(number(&browser, OVERHANG).await <= 0);
    keep_picture(&browser, "output-server-leaves-narrow").await;
    running.server = running.cluster.start_server(&[]).await;
    wait_until("the output goes on", async || browser.run(status).await == "").await;

    running.server.kill();
    wait_for_text(&browser, "The connection to the server is lost.").await;
    // A server that does not know the job refuses the stream for good.
    std::fs::remove_dir_all(running.cluster.path("data")).unwrap();
    running.server = running.cluster.start_server(&[]).await;
    wait_for_text(&browser, &format!("The output does not go on: there is no job {job}.")).await;
    browser.resize(SIZES[0].1, SIZES[0].2).await;
    keep_picture(&browser, "output-refused-wide").await;
    browser.quit().await;
}
