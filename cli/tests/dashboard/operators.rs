//! Operators in the browser: cordons from the list of workers and with a length, drains with a deadline, pauses of one schedule.

use serde_json::{Value, json};
use testkit::browser::{self, Browser};
use testkit::wait_until;

use super::{JOBS_FILE, Running, keep_picture};

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_cordons_and_drains_a_worker_and_pauses_a_schedule_in_a_browser() {
    if !browser::is_required() {
        return;
    }
    let running = Running::start(JOBS_FILE).await;
    let (api, base) = (&running.api, running.base.as_str());
    let browser = Browser::start(false).await;
    browser.resize(1280, 900).await;
    let worker = async || api.get("/api/workers/1").await;

    // From the list, which is shown again.
    browser.open(&format!("{base}/workers?all=1")).await;
    browser.click("td form[action$='/workers/1/cordon'] button").await;
    browser.accept_question().await;
    wait_until("it is cordoned", async || worker().await["cordoned"] == true).await;
    let address = "return location.pathname + location.search";
    wait_until("the same list is shown", async || browser.run(address).await == "/workers?all=1").await;
    wait_until("the list shows it", async || browser.text().await.contains("cordoned")).await;
    browser.click("td form[action$='/workers/1/uncordon'] button").await;
    wait_until("it is not cordoned", async || worker().await["cordoned"] == false).await;

    // With a length, which stays when the reason changes.
    browser.open(&format!("{base}/workers/1")).await;
    browser.enter("form[action$='/cordon'] [name='reason']", "disk swap").await;
    browser.enter("form[action$='/cordon'] [name='for']", "2h").await;
    browser.click("form[action$='/cordon'] button").await;
    browser.accept_question().await;
    wait_until("it is cordoned", async || worker().await["cordon"]["until"].is_string()).await;
    let until = worker().await["cordon"]["until"].clone();
    wait_until("the page shows it", async || browser.text().await.contains("disk swap")).await;
    browser.enter("form[action$='/cordon'] [name='reason']", " of rack 7").await;
    browser.click("form[action$='/cordon'] button").await;
    let reason = json!("disk swap of rack 7");
    wait_until("the reason is another", async || worker().await["cordon"]["reason"] == reason).await;
    assert_eq!(worker().await["cordon"]["until"], until);
    for (name, width, height) in [("wide", 1280, 900), ("narrow", 390, 844)] {
        browser.resize(width, height).await;
        for (page, path) in [("worker-cordoned", "/workers/1"), ("workers-cordoned", "/workers")] {
            browser.open(&format!("{base}{path}")).await;
            keep_picture(&browser, &format!("{page}-{name}")).await;
            let over = browser.run("return document.documentElement.scrollWidth - innerWidth").await;
            assert!(over.as_i64() <= Some(0), "{path} is {over} px wider than a {name} window");
        }
    }
    browser.resize(1280, 900).await;

    // A drain has a deadline, and no end.
    let job = super::submit(api, "long").await;
    browser.open(&format!("{base}/workers/1")).await;
    browser.click("form[action$='/uncordon'] button").await;
    api.wait_for_job(job, |job| job["state"] == "running").await;
    browser.open(&format!("{base}/workers/1")).await;
    browser.enter("form[action$='/drain'] [name='reason']", "new kernel").await;
    browser.enter("form[action$='/drain'] [name='deadline']", "1h").await;
    browser.click("form[action$='/drain'] button").await;
    browser.accept_question().await;
    wait_until("it drains", async || worker().await["drain_deadline"].is_string()).await;
    let cordon = worker().await["cordon"].clone();
    assert_eq!((&cordon["reason"], &cordon["until"]), (&json!("new kernel"), &Value::Null), "{cordon}");
    wait_until("the page shows it", async || browser.text().await.contains("Its drain ends")).await;
    browser.click("form[action$='/uncordon'] button").await;
    browser.accept_question().await;
    wait_until("the drain is taken back", async || worker().await["cordoned"] == false).await;

    // One schedule, from the page of its slots.
    browser.open(&format!("{base}/schedules?name=nightly")).await;
    browser.enter("td form[action$='/pause'] [name='reason']", "the disk is full").await;
    browser.enter("td form[action$='/pause'] [name='for']", "2h").await;
    browser.click("td form[action$='/pause'] button").await;
    wait_until("it is paused", async || api.get("/api/pauses").await[0]["until"].is_string()).await;
    let pause = api.get("/api/pauses").await[0].clone();
    assert_eq!((&pause["of"], &pause["schedule"]), (&json!("schedule"), &json!("night")), "{pause}");
    assert_eq!(pause["reason"], "the disk is full");
    let resume = "return document.querySelectorAll(\"td form[action$='/resume']\").length";
    wait_until("the page can resume it", async || browser.run(resume).await == 1).await;
    assert_eq!(browser.run(address).await, "/schedules?name=nightly");
    keep_picture(&browser, "schedule-paused-wide").await;
    browser.click("td form[action$='/resume'] button").await;
    wait_until("it goes on", async || api.get("/api/pauses").await == json!([])).await;
    browser.quit().await;
}
