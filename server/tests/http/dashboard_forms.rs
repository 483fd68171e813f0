//! The forms of the dashboard that make jobs, over real HTTP: fields for declared parameters, and refusals beside their fields.

use scheduler::job::State;
use serde_json::json;

use crate::support::{Answered, Server};

const JOBS: &str = r#"jobs:
  resize:
    image: resize:1
    command: [resize, --size, "${params.size}", "${params.files}"]
    environment: { TOKEN: "${params.token}" }
    params:
      size: { type: integer, min: 1, max: 4000, default: 640, description: Width in pixels }
      files: { type: list, max: 3, required: false }
      format: { enum: [png, webp] }
      draft: { type: boolean, default: false }
      sites: { type: list, enum: [oslo, lisbon], required: false }
      token: { secret: true, pattern: "[a-z]+" }
  fixed: { image: fixed:1, allow: [labels] }
"#;

async fn server() -> Server {
    let server = Server::start().await;
    std::fs::write(&server.jobs_file, JOBS).expect("a place for jobs.yaml");
    let answer = server.ask("POST", "/api/definitions/reload", &[], "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    server
}

async fn form(server: &Server, path: &str, fields: &[(&str, &str)]) -> Answered {
    let mut text = form_urlencoded::Serializer::new(String::new());
    text.extend_pairs(fields);
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    server.ask("POST", path, &headers, &text.finish()).await
}

/// The part of the page from the label of a field to the next field.
fn field<'p>(page: &'p str, name: &str) -> &'p str {
    let start = page.find(&format!("name=\"{name}\"")).unwrap_or_else(|| panic!("no field {name}: {page}"));
    page[start..].split("class=\"field").next().unwrap_or_default()
}

fn all_say(part: &str, texts: &[&str]) {
    for text in texts {
        assert!(part.contains(text), "no {text:?} in {part}");
    }
}

#[tokio::test]
async fn values_that_no_line_stands_for_are_kept() {
    let server = server().await;
    let body = json!({"args": ["-c", "echo a\n\necho b", ""], "params": {"format": "png", "files": ["one", ""], "token": "abc"}});
    let made = server.post("/api/jobs/resize", &body.to_string()).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(server.post("/api/jobs/1/cancel", "").await.status, 200);
    let page = server.get("/jobs/1/again").await.body;
    assert!(field(&page, "args").contains("3 kept, as some have line breaks or are empty"), "{page}");
    assert!(!page.contains("echo a") && field(&page, "params.files").contains("kept as it was"), "{page}");
    let again =
        form(&server, "/jobs/1/again", &[("args", ""), ("params.files", ""), ("priority", "3")]).await;
    assert_eq!((again.status, again.header("location")), (303, "/jobs/2"), "{again:?}");
    let record = server.stand.world().record(2).clone();
    assert_eq!((json!(record.overrides.args), record.row.priority), (body["args"].clone(), 3));
    assert_eq!(server.get("/api/jobs/2").await.json()["params"]["files"], body["params"]["files"]);
}

#[tokio::test]
async fn the_run_form_has_a_fitting_field_for_each_parameter() {
    let server = server().await;
    for path in ["/definitions/resize", "/definitions/resize/run"] {
        let page = server.get(path).await;
        assert_eq!(page.status, 200, "{page:?}");
        all_say(
            field(&page.body, "params.size"),
            &["type=\"number\"", "min=\"1\"", "max=\"4000\"", "placeholder=\"640\"", "Width in pixels"],
        );
        let format = field(&page.body, "params.format");
        all_say(format, &[" required", "<option value=\"png\">", "<option value=\"webp\">"]);
        let draft = field(&page.body, "params.draft");
        all_say(draft, &["<option value=\"\">false (default)</option>", "value=\"true\""]);
        assert!(!draft.contains("value=\"false\""), "the default stands there once: {draft}");
        all_say(field(&page.body, "params.sites"), &["type=\"checkbox\"", "value=\"lisbon\""]);
        all_say(field(&page.body, "params.files"), &["textarea", "one item a line"]);
        all_say(field(&page.body, "params.token"), &["type=\"password\"", " required"]);
        all_say(&page.body, &["name=\"input\"", "name=\"labels\"", "name=\"delay\""]);
    }
    let page = server.get("/definitions/resize").await.body;
    assert!(page.contains("href=\"#run\"") && !page.contains("Run now"), "one button is not enough: {page}");
    let fixed = server.get("/definitions/fixed").await.body;
    assert!(fixed.contains("Run now") && fixed.contains("name=\"labels\""), "{fixed}");
    assert!(!fixed.contains("name=\"args\"") && !fixed.contains("name=\"priority\""), "{fixed}");
}

#[tokio::test]
async fn a_form_gives_the_parameters_and_the_job_shows_them() {
    let server = server().await;
    let typed = [
        ("params.size", "1200"),
        ("params.files", "a b\r\nc\r\n"),
        ("params.format", "webp"),
        ("params.draft", ""),
        ("params.sites", "oslo"),
        ("params.sites", "lisbon"),
        ("params.token", "swordfish"),
        ("labels", "team=web"),
        ("input", "{\"pages\": [1, 2]}"),
    ];
    let made = form(&server, "/definitions/resize/run", &typed).await;
    assert_eq!((made.status, made.header("location")), (303, "/jobs/1"), "{made:?}");
    let job = server.get("/api/jobs/1").await.json();
    let params = json!({"size": 1200, "files": ["a b", "c"], "format": "webp", "sites": ["oslo", "lisbon"], "token": "***"});
    assert_eq!((&job["params"], &job["input"]), (&params, &json!({"pages": [1, 2]})));
    assert_eq!(job["labels"], json!({"team": "web"}));

    let page = server.get("/jobs/1").await.body;
    for (name, value) in [("size", "1200"), ("files", "a b, c"), ("token", "***")] {
        all_say(&page, &[&format!("<dt>Parameter {name}</dt><dd><code>{value}</code></dd>")]);
    }
    all_say(&page, &["<h2>Input</h2>", "pages"]);
    assert!(!page.contains("swordfish"), "{page}");
}

#[tokio::test]
async fn a_refused_form_comes_back_with_what_was_typed() {
    let server = server().await;
    let typed = [
        ("params.size", "9000"),
        ("params.files", "one\ntwo"),
        ("params.format", "webp"),
        ("params.sites", "lisbon"),
        ("params.token", "SWORDFISH"),
        ("args", "--last"),
        ("labels", "a b=c"),
        ("timeout", "soon"),
    ];
    let refused = form(&server, "/definitions/resize/run", &typed).await;
    assert_eq!((refused.status, refused.header("content-type")), (422, "text/html; charset=utf-8"));
    let page = &refused.body;
    all_say(field(page, "labels"), &["a b=c", "class=\"fault\""]);
    all_say(field(page, "timeout"), &["value=\"soon\"", "class=\"fault\""]);
    all_say(field(page, "args"), &["--last"]);
    // Parameters are judged once the rest can be read.
    let refused = form(&server, "/definitions/resize/run", &typed[..6]).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    let page = &refused.body;
    all_say(field(page, "params.size"), &["value=\"9000\"", "9000 is out of range", "1 to 4000"]);
    all_say(field(page, "params.files"), &["one\ntwo"]);
    all_say(field(page, "params.format"), &["value=\"webp\" selected"]);
    all_say(field(page, "params.sites"), &["value=\"oslo\">"]);
    all_say(page, &["value=\"lisbon\" checked"]);
    all_say(field(page, "params.token"), &["does not match the pattern"]);
    assert!(!page.contains("SWORDFISH"), "{page}");
    let refused = form(&server, "/definitions/resize/run", &[("input", "{"), ("params.token", "abc")]).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    all_say(field(&refused.body, "input"), &["it is not JSON"]);
    all_say(field(&refused.body, "params.token"), &["Type it again"]);
    assert!(!refused.body.contains("abc"), "{}", refused.body);
    let missing = form(&server, "/definitions/resize/run", &[]).await;
    assert_eq!(missing.status, 422, "{missing:?}");
    all_say(field(&missing.body, "params.format"), &["is missing"]);
    let unknown = form(&server, "/definitions/resize/run", &[("params.old", "1")]).await;
    all_say(&unknown.body, &["role=\"alert\"", "params.old: the definition has no parameter"]);
    assert!(server.stand.world().jobs.is_empty());
}

#[tokio::test]
async fn run_again_is_filled_with_what_the_job_had() {
    let server = server().await;
    let body = r#"{"params":{"size":5,"format":"png","sites":["oslo"],"files":["x","y"],"token":"abc"},"input":{"a":[1]},
        "labels":{"team":"web"},"args":["--first"],"environment":{"MODE":"secret-mode"},"timeout":"90m"}"#;
    assert_eq!(server.post("/api/jobs/resize", body).await.status, 201);
    server.stand.world().end(1, State::Failed, 1);
    let given = r#"{"params":{"format":"png","draft":false,"token":"abc"}}"#;
    assert_eq!(server.post("/api/jobs/resize", given).await.status, 201);
    let page = server.get("/jobs/2/again").await.body;
    all_say(field(&page, "params.draft"), &["<option value=\"false\" selected>", "false (default)"]);
    server.stand.world().jobs.pop();
    let page = server.get("/jobs/1/again").await.body;
    all_say(field(&page, "params.size"), &["value=\"5\"", "placeholder=\"640\""]);
    all_say(field(&page, "params.format"), &["value=\"png\" selected"]);
    all_say(field(&page, "params.files"), &["x\ny"]);
    all_say(field(&page, "params.sites"), &["value=\"oslo\" checked"]);
    let token = field(&page, "params.token");
    assert!(token.contains("kept as it was") && !token.contains(" required"), "{token}");
    all_say(field(&page, "input"), &["&#34;a&#34;: ["]);
    all_say(field(&page, "labels"), &["team=web"]);
    all_say(field(&page, "args"), &["--first"]);
    all_say(field(&page, "timeout"), &["value=\"90m\""]);
    all_say(field(&page, "environment"), &["MODE"]);
    assert!(!page.contains("secret-mode") && !page.contains("abc"), "{page}");

    let typed = [("params.size", "7"), ("params.token", ""), ("labels", "team=shop"), ("input", "[2]")];
    let made = form(&server, "/jobs/1/again", &typed).await;
    assert_eq!((made.status, made.header("location")), (303, "/jobs/2"), "{made:?}");
    let job = server.get("/api/jobs/2").await.json();
    assert_eq!((&job["params"]["size"], &job["params"]["token"]), (&json!(7), &json!("***")));
    assert_eq!((&job["labels"], &job["input"]), (&json!({"team": "shop"}), &json!([2])));
    // Fields that were emptied are none; checkboxes that are not checked send nothing beside the hidden field.
    let typed = [
        ("params.size", ""),
        ("params.files", ""),
        ("params.sites", ""),
        ("params.token", ""),
        ("args", "\r\n"),
        ("environment", ""),
        ("input", ""),
        ("labels", ""),
        ("timeout", ""),
    ];
    let made = form(&server, "/jobs/1/again", &typed).await;
    assert_eq!((made.status, made.header("location")), (303, "/jobs/3"), "{made:?}");
    let job = server.get("/api/jobs/3").await.json();
    assert_eq!(job["params"], json!({"format": "png", "token": "***"}), "{job}");
    let record = server.stand.world().record(3).clone();
    assert_eq!((record.overrides.args, record.overrides.input), (Vec::new(), None));
    assert_eq!(
        record.overrides.environment,
        [("MODE".to_owned(), "secret-mode".to_owned())],
        "it was not shown"
    );
    assert!(record.row.labels.is_empty() && record.row.timeout.is_none(), "{:?}", record.row);
    let missing = form(&server, "/jobs/1/again", &[("params.format", "")]).await;
    all_say(field(&missing.body, "params.format"), &["is missing"]);
    let refused = form(&server, "/jobs/1/again", &[("params.size", "0")]).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    all_say(field(&refused.body, "params.size"), &["value=\"0\"", "out of range"]);
}

/// The idempotency key of the form that leads to this address.
fn key_of<'p>(page: &'p str, action: &str) -> &'p str {
    let from =
        page.find(&format!("action=\"{action}\"")).unwrap_or_else(|| panic!("no form to {action}: {page}"));
    let form = page[from..].split("</form>").next().unwrap_or_default();
    let value =
        form.split("name=\"idempotency_key\" value=\"").nth(1).unwrap_or_else(|| panic!("no key: {form}"));
    value.split('"').next().unwrap_or_default()
}

#[tokio::test]
async fn fields_stand_in_the_order_of_the_file() {
    let server = server().await;
    let page = server.get("/definitions/resize/run").await.body;
    let names: Vec<&str> =
        page.split("name=\"params.").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let mut shown = names.clone();
    // An item of a list is a field of its own.
    shown.dedup();
    assert_eq!(shown, ["size", "files", "format", "draft", "sites", "token"], "{page}");
    let definition = server.get("/api/definitions/resize").await.json();
    let names: Vec<&str> = definition["params"]
        .as_array()
        .unwrap()
        .iter()
        .map(|param| param["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, shown);
    // Another order is another file, and the same definition.
    let other = JOBS
        .replace("      draft: { type: boolean, default: false }\n", "")
        .replace("      size: {", "      draft: { type: boolean, default: false }\n      size: {");
    let headers = [("content-type", "text/plain")];
    let plan = server.ask("POST", "/api/definitions/plan", &headers, &other).await.json();
    assert_eq!(plan["changed"][0]["keys"], json!([{"key": "params", "hidden": true}]), "{plan}");
    assert_ne!(plan["revision"], plan["current_revision"]);
    std::fs::write(&server.jobs_file, other).unwrap();
    assert_eq!(server.ask("POST", "/api/definitions/reload", &[], "").await.status, 200);
    let after = server.get("/api/definitions/resize").await.json();
    assert_eq!((&after["params"][0]["name"], &after["revision"]), (&json!("draft"), &definition["revision"]));
}

#[tokio::test]
async fn a_form_that_is_sent_twice_makes_one_job() {
    let server = server().await;
    let page = server.get("/definitions/resize").await.body;
    let (action, again) = ("/definitions/resize/run", server.get("/definitions/resize").await.body);
    let key = key_of(&page, action);
    assert_ne!(key, key_of(&again, action), "each rendering has its own");
    let typed = [("idempotency_key", key), ("params.format", "png"), ("params.token", "abc")];
    for _ in 0..2 {
        let made = form(&server, action, &typed).await;
        assert_eq!((made.status, made.header("location")), (303, "/jobs/1"), "{made:?}");
    }
    // The form after a step back, with another value.
    let other = [("idempotency_key", key), ("params.format", "webp"), ("params.token", "abc")];
    let refused = form(&server, action, &other).await;
    assert_eq!(refused.status, 409, "{refused:?}");
    all_say(&refused.body, &["role=\"alert\"", "This form was sent before", "value=\"webp\" selected"]);
    let next = key_of(&refused.body, action);
    let other = [("idempotency_key", next), ("params.format", "webp"), ("params.token", "abc")];
    assert_eq!(form(&server, action, &other).await.header("location"), "/jobs/2");
    // A refusal keeps the key, as the job may have been made.
    let wrong = [("idempotency_key", "kept"), ("params.format", "gif")];
    assert_eq!(key_of(&form(&server, action, &wrong).await.body, action), "kept");
    let bad = form(&server, action, &[("idempotency_key", "a b"), ("params.format", "png")]).await;
    assert_eq!(bad.status, 400, "{bad:?}");
    assert_eq!(server.stand.world().jobs.len(), 2);
}

#[tokio::test]
async fn buttons_that_make_jobs_make_them_once() {
    let server = server().await;
    let page = server.get("/definitions/fixed").await.body;
    let key = key_of(&page, "/definitions/fixed/run");
    for _ in 0..2 {
        let made = form(&server, "/definitions/fixed/run", &[("idempotency_key", key)]).await;
        assert_eq!(made.header("location"), "/jobs/1", "{made:?}");
    }
    server.stand.world().end(1, State::Failed, 1);
    for (shown_by, action) in [("/jobs/1", "/jobs/1/retry"), ("/jobs/1/again", "/jobs/1/again")] {
        let page = server.get(shown_by).await.body;
        let fields = [("idempotency_key", key_of(&page, action))];
        let (first, second) = (form(&server, action, &fields).await, form(&server, action, &fields).await);
        assert_eq!(first.status, 303, "{action}: {first:?}");
        assert_eq!(first.header("location"), second.header("location"), "{action}");
    }
    assert_eq!(server.stand.world().jobs.len(), 3);
}
