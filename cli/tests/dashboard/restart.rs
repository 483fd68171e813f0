//! A page that stays open while the server restarts.

use testkit::browser::{self, Browser};
use testkit::wait_until;

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
