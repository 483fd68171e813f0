//! The log viewer in a browser: a million lines, colours of all kinds, progress bars, and output that means harm.

use testkit::browser::{self, Browser};
use testkit::wait_until;

use crate::{CONTRAST, Running, SIZES, keep_picture, number, submit};

const JOBS_FILE: &str = r#"
version: 1
defaults: { runtime: process }
jobs:
  million:
    command: [seq, '1000000']
  counts:
    command: [sh, -c, 'seq 20000; sleep 600']
  long:
    command: [sh, -c, 'seq 30000; sleep 600']
    log: { max_bytes: 64k }
  slow:
    command: [sh, -c, 'echo first; head -c 1000 /dev/zero | tr "\0" x; echo; sleep 1; echo "last of them"']
  palette:
    command:
      - sh
      - -c
      - |
        printf '\033[38;5;208mindex\033[0m \033[38;2;0;128;128mtrue\033[0m \033[1;97;48:5:17mnamed\033[m\033[32m\n'
        printf 'still green\033[0m\nplain\n'
        for n in 1 2 3; do printf "\rstep $n of 3"; done
        printf '\na line of Windows\r\n'
        printf '\033[38;2;255;255;255;48;2;255;255;255mhidden in white <b>\033[0m\n'
        colours() { seq 50000 | sed 's/.*/E[38;5;9mxE[38;5;14mx/' | tr -d '\n' | tr E '\033'; echo; }
        for n in 1 2 3 4 5 6 7 8; do colours; done
        printf '\033['; head -c 900000 /dev/zero | tr '\0' '!'; echo
        printf '\033['; yes '38;5;1;' | head -n 120000 | tr -d '\n'; echo 'm'
"#;

/// Lines of the long job: each is its number.
const LINES: usize = 1_000_000;

/// Elements that the output may have in the page, whatever its length.
const ELEMENTS_MAX: i64 = 1_000;

async fn elements(browser: &Browser) -> i64 {
    number(browser, "return document.querySelectorAll('#output *').length").await
}

/// Waits until this line can be seen in the view.
async fn wait_for_line(browser: &Browser, text: &str) {
    let seen = format!(
        "const view = document.getElementById('output').getBoundingClientRect();
        const line = [...document.querySelectorAll('#output .line > span')].find((it) => it.textContent === '{text}')?.getBoundingClientRect();
        return line && line.top >= view.top && line.bottom <= view.bottom ? 1 : 0"
    );
    wait_until(&format!("the line {text} is in view"), async || number(browser, &seen).await == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_million_lines_are_read_with_few_of_them_in_the_page() {
    if !browser::is_required() {
        return;
    }
    let running = Running::start(JOBS_FILE).await;
    let long = submit(&running.api, "million").await;
    running.api.wait_for_job(long, |job| job["state"] == "succeeded").await;
    let browser = Browser::start(false).await;
    browser.resize(1280, 900).await;
    let address = format!("{}/jobs/{long}/output", running.base);
    browser.open(&address).await;
    // The line of the end is the last one.
    let last = format!("job {long} succeeded");
    let at_end = async || browser.text().await.contains(&last);
    wait_until("the viewer shows the end", at_end).await;
    wait_for_line(&browser, &LINES.to_string()).await;
    assert!(elements(&browser).await < ELEMENTS_MAX);
    let counted = "return document.querySelector('#output .line:last-child > a').textContent";
    assert_eq!(browser.run(counted).await, (LINES + 1).to_string());

    // The scroll bar leads everywhere, although no element is as tall as a million lines.
    browser.run("document.getElementById('output').scrollTop = 0").await;
    wait_for_line(&browser, "1").await;
    browser
        .run("const view = document.getElementById('output'); view.scrollTop = view.scrollHeight / 2")
        .await;
    let middle = "
        const line = document.querySelector('#output .line:nth-child(20) > a')?.textContent ?? '0';
        return Math.abs(Number(line) - 500000) < 100 ? 1 : 0";
    wait_until("the middle is in the middle", async || number(&browser, middle).await == 1).await;
    let height = number(&browser, "return document.querySelector('#output .space').offsetHeight").await;
    assert!(height <= 12_000_000, "browsers draw no element of {height} pixels");
    browser.run("location.hash = '#L654321'").await;
    wait_for_line(&browser, "654321").await;
    browser.enter("#output-tools input", "777777\n").await;
    wait_for_line(&browser, "777777").await;
    browser.run("[...document.querySelectorAll('#output-tools button')].find((it) => it.textContent === 'Wrap').click()").await;
    wait_for_line(&browser, "777777").await;
    browser.run("[...document.querySelectorAll('#output-tools button')].find((it) => it.textContent === 'Jump to the end').click()").await;
    wait_for_line(&browser, &LINES.to_string()).await;
    browser.run("[...document.querySelectorAll('#output-tools button')].find((it) => it.textContent === 'Times').click()").await;
    let timed = "return document.querySelectorAll('#output time').length";
    wait_until("the times are shown", async || number(&browser, timed).await > 20).await;
    assert!(elements(&browser).await < ELEMENTS_MAX);
    keep_picture(&browser, "output-million").await;
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_to_a_line_leads_there_before_the_job_ends() {
    if !browser::is_required() {
        return;
    }
    let running = Running::start(JOBS_FILE).await;
    let job = submit(&running.api, "counts").await;
    running.api.wait_for_job(job, |job| job["state"] == "running").await;
    let browser = Browser::start(false).await;
    browser.resize(1280, 900).await;
    browser.open(&format!("{}/jobs/{job}/output#L1200", running.base)).await;
    let all = "return document.querySelector('#output .space').offsetHeight >= 20000 * 18 ? 1 : 0";
    wait_until("all lines have come", async || number(&browser, all).await == 1).await;
    wait_for_line(&browser, "1200").await;
    let marked = "return document.querySelector('#output .marked > span').textContent";
    assert_eq!(browser.run(marked).await, "1200");
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_page_says_that_further_output_is_withheld() {
    if !browser::is_required() {
        return;
    }
    let running = Running::start(JOBS_FILE).await;
    let job = submit(&running.api, "long").await;
    running.api.wait_for_job(job, |job| job["state"] == "running").await;
    let browser = Browser::start(false).await;
    browser.resize(1280, 900).await;
    browser.open(&format!("{}/jobs/{job}/output", running.base)).await;
    let told = "output beyond 48 KiB is not shown while the attempt runs; its last part follows at the end (log.max_bytes is 64 KiB)";
    wait_for_line(&browser, told).await;
    browser.quit().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_shows_the_time_of_each_line() {
    if !browser::is_required() {
        return;
    }
    let running = Running::start(JOBS_FILE).await;
    let job = submit(&running.api, "slow").await;
    running.api.wait_for_job(job, |job| job["state"] == "succeeded").await;
    let text = running.api.get_bytes(&format!("/api/jobs/{job}/logs?timestamps=1")).await;
    let text = String::from_utf8(text).unwrap();
    let instants: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once(' ')?.0)).collect();
    for (name, width, height) in SIZES {
        let browser = Browser::start(false).await;
        browser.resize(width, height).await;
        browser.open(&format!("{}/jobs/{job}/output", running.base)).await;
        wait_for_line(&browser, "last of them").await;
        let times =
            "return [...document.querySelectorAll('#output .line > time')].map((it) => it.textContent)";
        assert_eq!(browser.run(times).await, serde_json::json!([]), "they are not shown before");
        let switch =
            "[...document.querySelectorAll('#output-tools button')].find((it) => it.textContent === 'Times')";
        browser.run(&format!("{switch}.click()")).await;
        let shown = format!(
            "return {switch}.ariaPressed === 'true' && document.querySelector('#output time') ? 1 : 0"
        );
        wait_until("the times are shown", async || number(&browser, &shown).await == 1).await;
        // The local time of the server's instants, with the instant on hover; the line of the end has none.
        let expected = format!(
            "const local = (text) => {{
                const at = new Date(text), two = (number) => String(number).padStart(2, '0');
                return [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(':') + text.slice(-5, -1);
            }};
            return [...{}.map(local), '']",
            serde_json::json!(instants)
        );
        assert_eq!(browser.run(times).await, browser.run(&expected).await);
        let titles =
            "return [...document.querySelectorAll('#output time')].map((it) => it.title.split('\\n')[0])";
        assert_eq!(browser.run(titles).await, serde_json::json!([instants[0], instants[1], instants[2], ""]));
        let copied = "getSelection().selectAllChildren(document.querySelector('#output .line')); return getSelection().toString()";
        assert_eq!(browser.run(copied).await.as_str().map(str::trim), Some("first"), "times are not copied");
        browser.run("getSelection().removeAllRanges()").await;
        let overlap = "
            const [number, time, text] = [...document.querySelector('#output .line').children].map((it) => it.getBoundingClientRect());
            return number.right <= time.left && time.right <= text.left && text.left < innerWidth ? 0 : 1";
        assert_eq!(number(&browser, overlap).await, 0);
        let weak = browser.run(CONTRAST).await;
        assert_eq!(weak.as_array().map(Vec::len), Some(0), "{weak}");
        keep_picture(&browser, &format!("output-times-{name}")).await;
        // Wrapped lines get less room beside the times, and the scroll bar knows it.
        browser.run(&format!("{}.click()", switch.replace("Times", "Wrap"))).await;
        let fits = "
            const [space, sheet] = ['space', 'sheet'].map((it) => document.querySelector(`#output .${it}`).offsetHeight);
            return space === sheet && sheet > 5 * 18 ? 1 : 0";
        wait_until("all rows are counted", async || number(&browser, fits).await == 1).await;
        browser.run(&format!("{switch}.click()")).await;
        let hidden = "return document.querySelector('#output time') ? 0 : 1";
        wait_until("the times are hidden", async || number(&browser, hidden).await == 1).await;
        browser.quit().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_and_progress_bars_look_as_in_a_terminal_and_hide_nothing() {
    if !browser::is_required() {
        return;
    }
    let running = Running::start(JOBS_FILE).await;
    let job = submit(&running.api, "palette").await;
    running.api.wait_for_job(job, |job| job["state"] == "succeeded").await;
    for dark in [false, true] {
        let browser = Browser::start(dark).await;
        browser.resize(1280, 900).await;
        browser.open(&format!("{}/jobs/{job}/output", running.base)).await;
        let last = format!("job {job} succeeded");
        wait_until("the viewer shows the end", async || browser.text().await.contains(&last)).await;
        let texts = "return [...document.querySelectorAll('#output .line > span')].map((it) => it.textContent.slice(0, 40))";
        let texts = browser.run(texts).await;
        let texts: Vec<&str> = texts.as_array().unwrap().iter().filter_map(|it| it.as_str()).collect();
        let expected = [
            "index true named",
            "still green",
            "plain",
            "step 3 of 3",
            "a line of Windows",
            "hidden in white <b>",
        ];
        assert_eq!(texts[..6], expected, "{texts:?}");
        assert!(texts[6].starts_with("xxxx"), "{texts:?}");
        let colour = async |text: &str, property: &str| {
            let script = format!(
                "const span = [...document.querySelectorAll('#output .line span span')].find((it) => it.textContent === '{text}');
                return getComputedStyle(span).{property}.match(/\\d+/g).map(Number)"
            );
            let colour: Vec<i64> = serde_json::from_value(browser.run(&script).await).unwrap();
            colour
        };
        // Mixed towards the text of the page until it can be read, which keeps the hue.
        let orange = colour("index", "color").await;
        assert!(orange[0] > orange[1] && orange[1] > orange[2], "{orange:?}");
        let teal = colour("true", "color").await;
        assert!(teal[1] == teal[2] && teal[1] > teal[0], "{teal:?}");
        assert_eq!(colour("named", "backgroundColor").await, [0, 0, 95], "a colour of the cube");
        let classes = "return [...document.querySelectorAll('#output .c2')].map((it) => it.textContent)";
        assert_eq!(
            browser.run(classes).await,
            serde_json::json!(["still green"]),
            "a colour goes on to the next line"
        );
        let weak = browser.run(CONTRAST).await;
        assert_eq!(weak.as_array().map(Vec::len), Some(0), "dark {dark}: {weak}");
        assert!(
            elements(&browser).await < 7_000,
            "lines of 100,000 colours are cut, and the last ones have none"
        );
        assert!(browser.text().await.contains("the line goes on"));
        keep_picture(&browser, if dark { "output-palette-dark" } else { "output-palette-light" }).await;
        browser.quit().await;
    }
}
