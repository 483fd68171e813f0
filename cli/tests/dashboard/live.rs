//! An open page that changes while somebody uses it: typed filters, selected text and clicks stay as they are.

use testkit::browser::{self, Browser};
use testkit::wait_until;

use crate::{JOBS_FILE, Running, number, submit};

/// Waits until the page says this about its updates.
async fn wait_for_live(browser: &Browser, text: &str) {
    let shown = format!("return document.getElementById('live').textContent.startsWith('{text}') ? 1 : 0");
    wait_until(text, async || number(browser, &shown).await == 1).await;
}

/// Waits until the list has this many jobs.
async fn wait_for_rows(browser: &Browser, rows: i64) {
    let count = "return document.querySelectorAll('a.row[href*=\"/jobs/\"]').length";
    wait_until("the list is current", async || number(browser, count).await == rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typed_filters_selected_text_and_clicks_survive_news() {
    if !browser::is_required() {
        return;
    }
    let running = Running::start(JOBS_FILE).await;
    let (api, base) = (&running.api, running.base.as_str());
    let browser = Browser::start(false).await;
    browser.resize(1280, 900).await;
    submit(api, "long").await;
    browser.open(&format!("{base}/jobs")).await;
    wait_for_live(&browser, "live").await;
    wait_for_rows(&browser, 1).await;

    browser.enter("form.filter [name=name]", "lon").await;
    browser.run("document.activeElement.blur()").await;
    submit(api, "long").await;
    wait_for_live(&browser, "paused").await;
    assert_eq!(browser.run("return document.querySelector('form.filter [name=name]').value").await, "lon");
    browser.run("document.querySelector('form.filter').reset()").await;
    submit(api, "long").await;
    wait_for_rows(&browser, 3).await;
    wait_for_live(&browser, "live").await;

    browser.run("getSelection().selectAllChildren(document.querySelector('main h1'))").await;
    submit(api, "long").await;
    wait_for_live(&browser, "paused").await;
    assert_eq!(browser.run("return getSelection().toString()").await, "Jobs");
    browser.run("getSelection().removeAllRanges()").await;
    wait_for_rows(&browser, 4).await;

    let point = |event: &str| {
        format!(
            "document.querySelector('main h1').dispatchEvent(new PointerEvent('{event}', {{ bubbles: true, button: 0 }}))"
        )
    };
    browser.run("window.heading = document.querySelector('main h1')").await;
    browser.run(&point("pointerdown")).await;
    submit(api, "long").await;
    wait_for_live(&browser, "paused").await;
    assert_eq!(number(&browser, "return window.heading.isConnected ? 1 : 0").await, 1);
    browser.run(&point("pointerup")).await;
    wait_for_rows(&browser, 5).await;
    browser.quit().await;
}
