//! A headless Chromium, driven by the WebDriver protocol of its `chromedriver`.
//!
//! Written by hand: the libraries for it switch on a feature of `serde_json` that changes the order of keys in the product's own answers
//! wherever both are built together.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::http;
use crate::port::ReservedPort;
use crate::wait::wait_for;

/// Returns true if `LONGSHORE_TEST_BROWSER=required` asks for the tests in a browser. Otherwise prints that the test is skipped.
pub fn is_required() -> bool {
    let required = std::env::var("LONGSHORE_TEST_BROWSER").is_ok_and(|value| value == "required");
    if !required {
        eprintln!("skipped: this test needs a browser (LONGSHORE_TEST_BROWSER is not `required`)");
    }
    required
}

/// A browser with one window. It ends when it is dropped.
#[derive(Debug)]
pub struct Browser {
    http: reqwest::Client,
    session: String,
    _driver: Child,
    _port: ReservedPort,
}

impl Browser {
    /// Starts a browser that prefers dark pages, or light ones.
    ///
    /// # Panics
    /// `chromedriver` cannot be started, or no browser comes up.
    pub async fn start(dark: bool) -> Self {
        let port = ReservedPort::new();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={}", port.number()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("chromedriver is installed: apt-get install chromium chromium-driver");
        let http = http::client().timeout(Duration::from_secs(60)).build().expect("a client");
        let address = format!("http://127.0.0.1:{}", port.number());
        let scheme = if dark {
            "--blink-settings=preferredColorScheme=0"
        } else {
            "--blink-settings=preferredColorScheme=1"
        };
        // Pictures are half as large without colours at the edges of letters.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-lcd-text",
            "--hide-scrollbars",
            scheme,
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": arguments}}}});
        let session = wait_for("the browser starts", async || {
            let answer = http.post(format!("{address}/session")).json(&wanted).send().await.ok()?;
            let answer: Value = answer.json().await.ok()?;
            answer["value"]["sessionId"].as_str().map(|id| format!("{address}/session/{id}"))
        })
        .await;
        Self { http, session, _driver: driver, _port: port }
    }

    /// Sends a command; the error is the driver's message.
    async fn try_to(&self, command: &str, body: &Value) -> Result<Value, String> {
        let request = self.http.post(format!("{}/{command}", self.session)).json(body);
        let answer = request.send().await.expect("the driver answers");
        let is_done = answer.status().is_success();
        let answer: Value = answer.json().await.expect("the driver answers in JSON");
        if is_done { Ok(answer["value"].clone()) } else { Err(answer["value"]["message"].to_string()) }
    }

    async fn tell(&self, command: &str, body: Value) -> Value {
        self.try_to(command, &body).await.unwrap_or_else(|error| panic!("{command} {body}: {error}"))
    }

    /// Acts on the first element that fits. A page that is read anew meanwhile replaces its elements, so it is tried again.
    async fn act(&self, selector: &str, action: &str, body: &Value) {
        wait_for(&format!("{action} of {selector}"), async || {
            let wanted = json!({"using": "css selector", "value": selector});
            let found = self.try_to("element", &wanted).await.ok()?;
            let id = found.as_object()?.values().next()?.as_str()?.to_owned();
            self.try_to(&format!("element/{id}/{action}"), body).await.ok()
        })
        .await;
    }

    /// Opens an address and waits until it is loaded.
    pub async fn open(&self, address: &str) {
        self.tell("url", json!({"url": address})).await;
    }

    /// Sets the size of the window in pixels.
    pub async fn resize(&self, width: u32, height: u32) {
        self.tell("window/rect", json!({"width": width, "height": height})).await;
    }

    /// Runs a script in the page and returns its value.
    pub async fn run(&self, script: &str) -> Value {
        self.tell("execute/sync", json!({"script": script, "args": []})).await
    }

    /// The visible text of the page's main part.
    pub async fn text(&self) -> String {
        let text = self.run("return document.getElementById('main').innerText").await;
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Clicks the first element that fits.
    pub async fn click(&self, selector: &str) {
        self.act(selector, "click", &json!({})).await;
    }

    /// Types into the first element that fits; `\n` is the Enter key.
    pub async fn enter(&self, selector: &str, text: &str) {
        self.act(selector, "value", &json!({"text": text.replace('\n', "\u{e007}")})).await;
    }

    /// Says yes to the question that the page asks.
    pub async fn accept_question(&self) {
        self.tell("alert/accept", json!({})).await;
    }

    /// A picture of the window, as a PNG file.
    ///
    /// # Panics
    /// The driver gives none.
    pub async fn picture(&self) -> Vec<u8> {
        let answer = self.http.get(format!("{}/screenshot", self.session)).send().await.expect("an answer");
        let answer: Value = answer.json().await.expect("JSON");
        let text = answer["value"].as_str().expect("a picture");
        data_encoding::BASE64.decode(text.as_bytes()).expect("base64")
    }

    /// Ends the browser.
    pub async fn quit(self) {
        let _ = self.http.delete(&self.session).send().await;
    }
}
