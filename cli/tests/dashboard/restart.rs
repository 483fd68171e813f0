//! A page that stays open while the server restarts.

use testkit::browser::{self, Browser};
use testkit::wait_until;

use crate::proxy::Proxy;
use crate::{JOBS_FILE, Running, number, submit};

/// The last event that the page knows is gone after the restart.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_page_is_live_again_after_a_restart_of_the_server() {
    if !browser::is_required() {
        return;
    }
    let mut running = Running::start(JOBS_FILE).await;
    let browser = Browser::start(false).await;
    browser.open(&format!("{}/jobs", running.base)).await;
    let failed = "return document.querySelectorAll('td .state.bad').length";
    submit(&running.api, "broken").await;
    wait_until("the page shows the first job's end", async || number(&browser, failed).await == 1).await;

    running.server.kill();
    let live = "return document.getElementById('live').textContent";
    let is_cut_off =
        async || browser.run(live).await.as_str().is_some_and(|it| it.starts_with("not connected"));
    wait_until("the page is not connected", is_cut_off).await;
    running.server = running.cluster.start_server(&[]).await;
    running.api.wait_for_ready_worker("rack-1").await;

    wait_until("the page is live", async || browser.run(live).await == "live").await;
    submit(&running.api, "broken").await;
    wait_until("the page shows the second job's end", async || number(&browser, failed).await == 2).await;
    browser.quit().await;
}

/// Requests for a stream that a proxy refuses until the page is known to try again: the browser's own reconnection, the page's question why,
/// and the next stream.
const REFUSED: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn the_log_viewer_goes_on_behind_a_proxy_that_answered_502_meanwhile() {
    if !browser::is_required() {
        return;
    }
    let counting = "
version: 1
defaults: { runtime: process }
jobs:
  count: { command: [sh, -c, 'n=1; while echo $n; do n=$((n + 1)); sleep 0.2; done'] }
";
    let mut running = Running::start(counting).await;
    let proxy = Proxy::start(running.cluster.address()).await;
    let job = submit(&running.api, "count").await;
    running.api.wait_for_job(job, |job| job["state"] == "running").await;
    let browser = Browser::start(false).await;
    browser.open(&format!("{}/jobs/{job}/output", proxy.base())).await;
    // Each line is its own number, unless lines are missing or repeated.
    let last = "
        const lines = [...document.querySelectorAll('#output .line')].map((it) => [...it.children].map((part) => part.textContent));
        return lines.every(([number, text]) => number === text) ? Number(lines.at(-1)?.[0] ?? 0) : -1";
    wait_until("the output is shown", async || number(&browser, last).await > 2).await;

    running.server.kill();
    let status = "return document.getElementById('output-status').textContent";
    let is_lost = async || browser.run(status).await.as_str().is_some_and(|it| it.contains("is lost"));
    wait_until("the viewer says so", is_lost).await;
    wait_until("the viewer tries again", async || proxy.refused("/logs?") >= REFUSED).await;
    assert!(is_lost().await, "it does not ask to be reloaded");
    let shown = number(&browser, last).await;
    running.server = running.cluster.start_server(&[]).await;

    wait_until("the viewer is connected", async || browser.run(status).await == "").await;
    wait_until("the output goes on", async || number(&browser, last).await > shown).await;
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_page_is_live_again_behind_a_proxy_that_answered_502_meanwhile() {
    if !browser::is_required() {
        return;
    }
    let mut running = Running::start(JOBS_FILE).await;
    let proxy = Proxy::start(running.cluster.address()).await;
    let browser = Browser::start(false).await;
    browser.open(&format!("{}/jobs", proxy.base())).await;
    let live = "return document.getElementById('live').textContent";
    wait_until("the page is live", async || browser.run(live).await == "live").await;

    running.server.kill();
    wait_until("the page tries again", async || proxy.refused("/api/events") >= REFUSED).await;
    assert_eq!(browser.run(live).await, "not connected: this page may be old");
    running.server = running.cluster.start_server(&[]).await;
    running.api.wait_for_ready_worker("rack-1").await;

    wait_until("the page is live again", async || browser.run(live).await == "live").await;
    submit(&running.api, "broken").await;
    let failed = "return document.querySelectorAll('td .state.bad').length";
    wait_until("the page shows the job's end", async || number(&browser, failed).await == 1).await;
    browser.quit().await;
}
