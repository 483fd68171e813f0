//! The dashboard in a real browser: live updates, the log viewer, forms and keys, in a wide and a narrow window, light and dark.
//!
//! It needs Chromium and its driver. `LONGSHORE_TEST_BROWSER=required` asks for it; the pictures go to `target/pictures`.
#![expect(clippy::unwrap_used, reason = "a test that cannot set up its browser fails")]

mod busy_day;
mod live;
mod missing_output;
mod operators;
mod output;
mod proxy;
mod restart;

use std::path::{Path, PathBuf};

use busy_day::BusyDay;
use testkit::browser::{self, Browser};
use testkit::{Api, Cluster, Process, wait_until};

const JOBS_FILE: &str = "
version: 1
defaults: { runtime: process }
jobs:
  colours:
    description: Writes lines in colours
    command: [sh, -c, 'printf \"\\033[31mred\\033[0m <b>plain</b>\\n\"; seq 1 5000; echo last >&2']
  broken:
    command: [sh, -c, 'echo no >&2; exit 3']
    notify: { webhook: 'http://127.0.0.1:9/hook' }
  long:
    command: [sleep, '600']
  resize:
    params:
      size: { type: integer, min: 1, max: 10, description: How large it is }
      colour: { enum: [red, blue], default: red }
      sites: { type: list, enum: [oslo, lisbon], required: false }
      token: { secret: true, required: false }
    command: [echo, '${params.size}']
  nightly:
    command: ['true']
    schedule: { id: night, cron: '0 2 * * *', timezone: Europe/Berlin }
";

/// Wide like a desk, narrow like a phone.
const SIZES: [(&str, u32, u32); 2] = [("wide", 1280, 900), ("narrow", 390, 844)];

/// The narrowest phones.
const NARROWEST: (u32, u32) = (360, 740);

async fn keep_picture(browser: &Browser, name: &str) {
    let place: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/pictures");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join(format!("{name}.png")), browser.picture().await).unwrap();
}

async fn number(browser: &Browser, script: &str) -> i64 {
    browser.run(script).await.as_i64().unwrap_or(i64::MIN)
}

/// A server, a worker that runs plain processes, and some jobs.
struct Running {
    api: Api,
    base: String,
    server: Process,
    _worker: Process,
    cluster: Cluster,
}

impl Running {
    async fn start(jobs_file: &str) -> Self {
        let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), jobs_file);
        let (server, api) = (cluster.start_server(&[]).await, cluster.api());
        let worker = cluster.start_worker("rack-1", &["--no-docker", "--allow-process", "--slots", "4"]);
        api.wait_for_ready_worker("rack-1").await;
        let base = format!("http://{}", cluster.address());
        Self { api, base, server, _worker: worker, cluster }
    }
}

async fn submit(api: &Api, name: &str) -> u64 {
    api.post(&format!("/api/jobs/{name}"), None).await["id"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sees_and_steers_jobs_in_a_browser() {
    if !browser::is_required() {
        return;
    }
    let running = Running::start(JOBS_FILE).await;
    let (api, base) = (&running.api, running.base.as_str());
    let browser = Browser::start(false).await;
    browser.resize(1280, 900).await;

    // An empty server shows how to make the first job.
    browser.open(base).await;
    let text = browser.text().await;
    assert!(text.contains("Nothing has run yet") && text.contains("/api/jobs/broken"), "{text}");

    // A page that is open learns of a job that is made meanwhile.
    browser.open(&format!("{base}/jobs")).await;
    let coloured = submit(api, "colours").await;
    let ended = "return document.querySelectorAll('td .state.good').length";
    let seen = async || number(&browser, ended).await == 1;
    wait_until("the open list shows the job's end", seen).await;

    // Output: all lines, of which only the visible ones are in the page; colours; hostile text stays text.
    browser.open(&format!("{base}/jobs/{coloured}/output")).await;
    let last = format!("job {coloured} succeeded");
    let at_end = async || browser.text().await.contains(&last);
    wait_until("the viewer shows the end", at_end).await;
    let lines = number(&browser, "return document.querySelectorAll('#output .line').length").await;
    assert!((10..200).contains(&lines), "{lines} lines are in the page");
    browser.run("document.getElementById('output').scrollTop = 0").await;
    let first =
        "const red = document.querySelector('#output .c1'); return red && red.textContent === 'red' ? 1 : 0";
    wait_until("the first line is red", async || number(&browser, first).await == 1).await;
    assert_eq!(number(&browser, "return document.querySelectorAll('#output b').length").await, 0);
    browser.enter("#output-tools input", "4711\n").await;
    let found = "return document.querySelector('#output .found')?.textContent.includes('4711') ? 1 : 0";
    wait_until("the text is found", async || number(&browser, found).await == 1).await;
    keep_picture(&browser, "output").await;

    // A search over the output of all jobs leads to the line in the viewer, which stays in view.
    browser.open(&format!("{base}/logs/search?q=%5E47%5B0-9%5D1%24&regex=1")).await;
    assert_eq!(number(&browser, "return document.querySelectorAll('mark').length").await, 10);
    browser.click("a.row[href*='#stdout@']:has(mark)").await;
    let marked = "
        const line = document.querySelector('#output .marked'), box = line?.getBoundingClientRect();
        const view = document.getElementById('output').getBoundingClientRect();
        return line?.querySelector('span').textContent === '4701' && box.top >= view.top && box.bottom <= view.bottom
            && document.getElementById('job-state').textContent === 'succeeded' ? 1 : 0";
    wait_until("the line is marked and in view", async || number(&browser, marked).await == 1).await;
    keep_picture(&browser, "output-from-search").await;

    // A job is cancelled after one confirmation.
    let long = submit(api, "long").await;
    api.wait_for_job(long, |job| job["state"] == "running").await;
    browser.open(&format!("{base}/jobs/{long}")).await;
    browser.click("form[action$='/cancel'] button").await;
    browser.accept_question().await;
    api.wait_for_job(long, |job| job["state"] == "cancelled").await;
    wait_until("the page shows it", async || browser.text().await.contains("cancelled")).await;

    // Keys: past the navigation, the list of keys, the search field, and rows.
    browser.open(&format!("{base}/jobs")).await;
    browser.enter("body", "\u{e004}").await;
    let shown = "
        const link = document.activeElement;
        return link.className === 'skip' && link.getBoundingClientRect().width > 20 && getComputedStyle(link).outlineStyle !== 'none' ? 1 : 0";
    assert_eq!(number(&browser, shown).await, 1, "the first Tab shows a way past the navigation");
    browser.enter(".skip", "\n").await;
    let inside = "return document.activeElement.id === 'main' ? 1 : 0";
    wait_until("the content has the focus", async || number(&browser, inside).await == 1).await;
    browser.enter("body", "?").await;
    let open = "return document.getElementById('help').open ? 1 : 0";
    assert_eq!(number(&browser, open).await, 1);
    browser.enter("#help button", "\n").await;
    wait_until("the list of keys is closed", async || number(&browser, open).await == 0).await;
    browser.open(&format!("{base}/jobs")).await;
    // Exact times without a pointer, also on the next page.
    let exact = "return [...document.querySelectorAll('main time')].every((it) => /^\\d{4}-\\d\\d-\\d\\d /.test(it.textContent)) ? 1 : 0";
    assert_eq!(number(&browser, exact).await, 0, "times are relative");
    browser.enter("body", "t").await;
    assert_eq!(number(&browser, exact).await, 1, "times are exact");
    browser.open(&format!("{base}/jobs/{long}")).await;
    wait_until("the next page has exact times", async || number(&browser, exact).await == 1).await;
    browser.click("#times").await;
    wait_until("times are relative again", async || number(&browser, exact).await == 0).await;
    browser.open(&format!("{base}/jobs")).await;
    browser.enter("body", "j").await;
    let focused = "return document.activeElement.classList.contains('row') ? 1 : 0";
    assert_eq!(number(&browser, focused).await, 1);
    browser.enter("body", "/").await;
    assert_eq!(number(&browser, "return document.activeElement.id === 'search' ? 1 : 0").await, 1);
    browser.enter("#search", "nightly\n").await;
    wait_until("the search leads there", async || browser.text().await.contains("Run with changes")).await;
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_of_parameters_is_mended_and_run_in_a_browser() {
    if !browser::is_required() {
        return;
    }
    let running = Running::start(JOBS_FILE).await;
    let (api, base) = (&running.api, running.base.as_str());
    let browser = Browser::start(false).await;
    browser.resize(1280, 900).await;
    browser.open(&format!("{base}/definitions/resize")).await;
    browser.click(".actions a[href='#run']").await;
    // The browser itself refuses what its field cannot hold; the server must as well.
    browser.run("for (const form of document.forms) form.noValidate = true").await;
    browser.enter("[name='params.size']", "40").await;
    browser.enter("[name='params.token']", "swordfish").await;
    browser.click("[name='params.sites'][value='oslo']").await;
    browser.enter("[name='labels']", "team=web").await;
    // News that would change the page leave typed text alone, also when no field has the focus.
    browser.run("document.activeElement.blur()").await;
    submit(api, "colours").await;
    browser.click("form.run button").await;
    let refused = "return document.querySelector('.fault')?.textContent.includes('out of range') ? 1 : 0";
    wait_until("the fault is beside its field", async || number(&browser, refused).await == 1).await;
    let typed = "
        const value = (name) => document.querySelector(`[name='${name}']`).value;
        return [value('params.size'), value('params.token'), value('labels').trim(),
            document.querySelector(\"[value='oslo']\").checked];";
    assert_eq!(browser.run(typed).await, serde_json::json!(["40", "", "team=web", true]));
    keep_picture(&browser, "run-refused").await;
    browser.run("document.querySelector(\"[name='params.size']\").value = ''").await;
    browser.enter("[name='params.size']", "4").await;
    browser.enter("[name='params.token']", "swordfish").await;
    browser.click("form.run button").await;
    wait_until("the job is shown", async || browser.text().await.contains("Parameter size")).await;
    let text = browser.text().await;
    assert!(text.contains("oslo") && text.contains("***") && !text.contains("swordfish"), "{text}");
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_link_of_the_navigation_works_below_a_base_path() {
    if !browser::is_required() {
        return;
    }
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS_FILE);
    let _server = cluster.spawn_server(&["--base-path", "/tools"]);
    Api::new(&format!("{}/tools", cluster.address())).wait_until_ready().await;
    let base = format!("http://{}/tools", cluster.address());
    let browser = Browser::start(false).await;
    browser.resize(1280, 900).await;
    let here = "return location.pathname + ' ' + document.querySelectorAll('nav [aria-current=page]').length";
    let at = async |path: &str| {
        let expected = format!("{path} 1");
        wait_until(path, async || browser.run(here).await == expected.as_str()).await;
    };
    for start in ["", "/"] {
        browser.open(&format!("{base}{start}")).await;
        for page in ["jobs", "batches", "definitions", "schedules", "workers", "notifications"] {
            browser.click(&format!("nav a[href='/tools/{page}']")).await;
            at(&format!("/tools/{page}")).await;
        }
        browser.click("nav a:first-child").await;
        at("/tools/").await;
    }
    browser.click("nav a[href='/tools/jobs']").await;
    at("/tools/jobs").await;
    browser.click(".brand").await;
    at("/tools/").await;
    browser.enter("body", "gj").await;
    at("/tools/jobs").await;
    browser.enter("body", "go").await;
    at("/tools/").await;
    // The styles and the script came, and the page hears of changes.
    let live = "return document.getElementById('live').textContent === 'live' ? 1 : 0";
    wait_until("the page is live", async || number(&browser, live).await == 1).await;
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_fits_its_window_and_can_be_read() {
    if !browser::is_required() {
        return;
    }
    let day = BusyDay::start().await;
    let base = day.base.as_str();
    let page = |name: &'static str, path: &str| (name, path.to_owned());
    let pages = [
        page("overview", "/"),
        page("jobs", "/jobs"),
        page("job", &format!("/jobs/{}", day.failed)),
        page("job-running", &format!("/jobs/{}", day.running)),
        page("job-waiting", &format!("/jobs/{}", day.waiting)),
        page("output", &format!("/jobs/{}/output", day.failed)),
        page("run", "/definitions/build-site/run"),
        page("again", &format!("/jobs/{}/again", day.failed)),
        page("batches", "/batches"),
        page("batch", &format!("/batches/{}", day.batch)),
        page("definitions", "/definitions"),
        page("definition", "/definitions/build-site"),
        page("definition-limits", "/definitions/train-model#limits"),
        page("revisions", &day.revisions),
        page("schedules", "/schedules"),
        page("schedule", "/schedules?name=backup-db"),
        page("workers", "/workers"),
        page("worker", "/workers/1"),
        page("notifications", "/notifications"),
        page("account", "/account"),
        page("api", "/api-docs"),
        page("search", "/logs/search?q=chapter&since=2026-01-01T00:00:00Z"),
        page("search-form", "/logs/search"),
    ];
    for scheme in ["light", "dark"] {
        let browser = Browser::start(scheme == "dark").await;
        for (size, width, height) in SIZES {
            browser.resize(width, height).await;
            for (name, path) in &pages {
                browser.open(&format!("{base}{path}")).await;
                if *name == "output" {
                    let lines = "return document.querySelectorAll('#output .line').length";
                    wait_until("the output is shown", async || number(&browser, lines).await > 3).await;
                }
                keep_picture(&browser, &format!("{name}-{size}-{scheme}")).await;
                let inexact = number(&browser, INEXACT).await;
                assert_eq!(inexact, 0, "{path} has times without the exact instant in UTC");
                let over = number(&browser, "return document.documentElement.scrollWidth - innerWidth").await;
                assert!(over <= 0, "{path} is {over} px wider than a {size} window");
                let weak = browser.run(CONTRAST).await;
                assert_eq!(weak.as_array().map(Vec::len), Some(0), "{path} {scheme}: {weak}");
                let unnamed = number(&browser, UNNAMED).await;
                assert_eq!(unnamed, 0, "{path} has controls without a name");
            }
        }
        browser.resize(NARROWEST.0, NARROWEST.1).await;
        browser.open(&format!("{base}/definitions")).await;
        let over = number(&browser, "return document.documentElement.scrollWidth - 360").await;
        assert!(over <= 0, "the bars of the definitions are {over} px wider than a small phone");
        let bars = "return Math.max(...[...document.querySelectorAll('.spark')].map((it) => it.querySelectorAll('rect').length))";
        assert!(number(&browser, bars).await > 40, "the list shows as many runs as there are, up to 50");
        keep_picture(&browser, &format!("definitions-360-{scheme}")).await;
        browser.quit().await;
    }
}

/// Texts whose contrast with their ground is below 4.5 to 1 (WCAG 2.1 AA).
const CONTRAST: &str = r"
const luminance = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour.slice(0, 3);
  }
  return [255, 255, 255];
};
const weak = [];
for (const element of document.querySelectorAll('body *')) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const box = element.getBoundingClientRect();
  if (!own || box.width < 2 || box.height < 2 || element.closest('svg, option')) continue;
  const [a, b] = [luminance(parse(getComputedStyle(element).color)), luminance(ground(element))].sort((x, y) => y - x);
  if ((a + 0.05) / (b + 0.05) < 4.5) weak.push(element.outerHTML.slice(0, 120));
}
return weak;
";

/// Times that do not show the exact instant and its zone to a pointer that rests on them.
const INEXACT: &str = r"
return [...document.querySelectorAll('time')].filter((time) => !/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/.test(time.title)).length;
";

/// Links, buttons and fields that a screen reader could not name.
const UNNAMED: &str = "
return [...document.querySelectorAll('a, button, input:not([type=hidden]), select, textarea')].filter((element) =>
  !element.textContent.trim() && !element.getAttribute('aria-label') && !element.labels?.length && !element.closest('svg')).length;
";
