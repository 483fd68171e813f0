//! The page of a definition over real HTTP: its limits in use, its keys, and the differences between its revisions.
#![expect(clippy::unwrap_used, reason = "a stage that cannot be set is a failed test")]

use std::time::Duration;

use protocol::{JobId, Timestamp};
use scheduler::limits::rate::Rate;
use scheduler::limits::rules::RateLimit;
use scheduler::limits::{LIMITS_OF_DEFINITION, LimitFacts, LimitId, LimitKind, LimitSelection, LimitsReport};
use scheduler::snapshot::Waiting;
use scheduler::step::PendingReason;

use crate::support::{Answered, Server};

async fn reload(server: &Server, jobs: &str) {
    std::fs::write(&server.jobs_file, jobs).unwrap();
    let answer = server.ask("POST", "/api/definitions/reload", &[], "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn all_say(answer: &Answered, texts: &[&str]) {
    assert_eq!(answer.status, 200, "{answer:?}");
    for text in texts {
        assert!(answer.body.contains(text), "no {text:?} in {}", answer.body);
    }
}

fn permits(kind: LimitKind, name: &str, key: Option<&str>, holders: std::ops::Range<u64>) -> LimitFacts {
    LimitFacts {
        id: LimitId { kind, name: name.into(), key: key.map(Into::into) },
        permits: Some(2),
        rate: None,
        in_use: holders.end - holders.start,
        waiting: 3,
        holders: holders.take(10).map(JobId).collect(),
        next_start: None,
    }
}

#[tokio::test]
async fn limits_in_use_name_their_holders_and_lead_to_what_waits() {
    let server = Server::start().await;
    let jobs = "jobs:
  export: { image: 'a:1', concurrency: { limit: 2, key: labels.customer }, rate_limit: { limit: 6, per: 1m, burst: 2 }, max_queued: 5 }
  backup: { image: 'a:1', concurrency: { limit: 1, group: db } }
  vacuum: { image: 'a:1', concurrency: { limit: 1, group: db } }
  free: { image: 'a:1' }
";
    reload(&server, jobs).await;
    let rule = RateLimit { limit: 6, per: Duration::from_secs(60), burst: 2, key: None };
    let rate = LimitFacts {
        permits: None,
        rate: Some(Rate::of(&rule)),
        next_start: Some(Timestamp(9_000)),
        ..permits(LimitKind::Rate, "export", None, 0..0)
    };
    server.stand.world().limits.limits =
        vec![permits(LimitKind::Definition, "export", Some("acme <b>"), 7..9), rate];
    let api = server.get("/api/definitions/export").await.json();
    let limit = &api["limits"][0];
    assert_eq!((&limit["key"], &limit["in_use"]), (&"acme <b>".into(), &2.into()), "{api}");
    assert_eq!((&limit["holders"], &api["limits"][1]["kind"]), (&serde_json::json!([7, 8]), &"rate".into()));
    let list = server.get("/api/definitions").await.json();
    assert!(list[1]["limits"].is_null(), "a list does not ask for limits: {list}");
    let page = server.get("/definitions/export").await;
    all_say(
        &page,
        &[
            "<code>acme &#60;b&#62;</code>",
            "<td>2 at once</td>",
            "<span class=\"state warn\">2</span>",
            "href=\"/jobs/7\">7</a>",
            "href=\"/jobs/8\">8</a>",
            "state=queued%2Cscheduled%2Cquarantined&#38;name=export&#38;label=customer%3Dacme+%3Cb%3E\">3</a>",
            "<td>6 within 1m 0s, 2 at once after a quiet time</td>",
            "next start",
            "<td>waiting jobs</td>",
            "<td>5 at once</td>",
        ],
    );
    let link = "/jobs?state=queued%2Cscheduled%2Cquarantined&name=export&label=customer%3Dacme+%3Cb%3E";
    assert_eq!(server.get(link).await.status, 200);

    // A group leads to the jobs of all its definitions, and ten holders are named.
    server.stand.world().limits.limits = vec![permits(LimitKind::Group, "db", None, 20..33)];
    let page = server.get("/definitions/backup").await;
    let links = ["jobs of the group db", "name=backup%2Cvacuum\">3</a>", ">29</a>", "and 3 more"];
    all_say(&page, &links);
    assert!(!page.body.contains("/jobs/30\""), "{}", page.body);
    let asked = server.stand.world().limit_selections.last().cloned();
    let backup = LimitSelection::OfDefinition { name: "backup".into(), group: Some("db".into()) };
    assert_eq!(asked, Some(backup));

    // Limits that no job needs are shown as well, and the engine is not asked for definitions without any.
    server.stand.world().limits = LimitsReport::default();
    all_say(
        &server.get("/definitions/export").await,
        &["2 at once for each labels.customer", "6 within 1m 0s"],
    );
    server.stand.world().limit_selections.clear();
    let free = server.get("/definitions/free").await;
    assert!(!free.body.contains("<h2>Limits</h2>") && server.stand.world().limit_selections.is_empty());
}

#[tokio::test]
async fn a_definition_with_many_keys_has_a_page_of_bounded_length() {
    let server = Server::start().await;
    let jobs = "jobs: { export: { image: 'a:1', concurrency: { limit: 2, key: params.site }, max_queued: 4, \
                params: { site: { default: x } } } }";
    reload(&server, jobs).await;
    let keys = (0..LIMITS_OF_DEFINITION).map(|key| format!("site-{key:02}"));
    server.stand.world().limits.limits =
        keys.map(|key| permits(LimitKind::Definition, "export", Some(&key), 7..8)).collect();
    server.snapshot.send_modify(|snapshot| {
        let snapshot = std::sync::Arc::make_mut(snapshot);
        let (revision, definition) = snapshot.definitions.iter().next().unwrap();
        let definition =
            scheduler::definition::Definition { name: "export".into(), ..(**definition).clone() };
        let waiting = Waiting {
            revision: *revision,
            narrowing: None,
            pinned_to: None,
            reason: PendingReason::Limited,
            count: 4,
        };
        snapshot.definitions = std::sync::Arc::new([(*revision, definition.into())].into());
        snapshot.waiting = vec![waiting];
    });
    let page = server.get("/definitions/export").await;
    all_say(
        &page,
        &["site-49", "<code>longshore limits export</code>", "<span class=\"state warn\">4</span>"],
    );
    assert!(!page.body.contains("state=queued%2Cscheduled"), "no filter knows parameters: {}", page.body);
}

#[tokio::test]
async fn the_difference_between_two_revisions_names_keys_and_hides_values_of_variables() {
    let server = Server::start().await;
    let first = "jobs: { site: { image: 'a:1', command: [build], retry: 1, environment: { TOKEN: sword } } }";
    let second = "jobs: { site: { image: 'a:2', command: [build, '<b>'], retry: 1, user: deploy, \
                  environment: { TOKEN: fish } } }";
    reload(&server, first).await;
    let revision = async || {
        let definition = server.get("/api/definitions/site").await.json();
        definition["revision"].as_str().unwrap().to_owned()
    };
    let old = revision().await;
    server.post("/api/jobs/site", "").await;
    let link = format!("href=\"/definitions/site/revisions?from={old}\"");
    assert!(!server.get("/jobs/1").await.body.contains(&link), "nothing was changed since");
    reload(&server, second).await;
    all_say(&server.get("/jobs/1").await, &[&link]);
    let new = revision().await;
    let page = server.get("/definitions/site").await;
    all_say(
        &page,
        &[
            "<summary>All keys</summary><pre>",
            "image: a:2\n",
            "retry.max: 1\n",
            "href=\"/definitions/site/revisions\"",
        ],
    );
    assert!(!page.body.contains("fish"), "{}", page.body);
    let list = server.get("/definitions/site/revisions").await;
    let link = format!("/definitions/site/revisions?from={old}&#38;to={new}\"");
    all_say(&list, &["in force", &link, &format!("/jobs?revision={old}\"")]);
    assert!(list.body.find(&new).unwrap() < list.body.find(&old).unwrap(), "the newest first: {}", list.body);
    let difference = server.get(&format!("/definitions/site/revisions?from={old}&to={new}")).await;
    all_say(
        &difference,
        &[
            "<code>image</code></td><td data-label=\"before\"><code class=\"old\">a:1</code>",
            "<code class=\"new\">a:2</code>",
            "<code class=\"new\">[&#34;build&#34;,&#34;&#60;b&#62;&#34;]</code>",
            "<code>environment.TOKEN</code></td><td colspan=\"2\" class=\"muted\">changed; the values are not shown",
            "<code>user</code></td><td data-label=\"before\"><span class=\"muted\">none</span>",
            "<code class=\"new\">deploy</code>",
        ],
    );
    let body = &difference.body;
    assert!(!body.contains("sword") && !body.contains("fish") && !body.contains("<b>"), "{body}");
    assert!(!body.contains("retry.max"), "it did not change: {body}");

    // Without one end it is the revision in force.
    all_say(&server.get(&format!("/definitions/site/revisions?from={old}")).await, &["\"new\">a:2</code>"]);
    all_say(&server.get(&format!("/definitions/site/revisions?from={new}")).await, &["No key differs"]);
    // Back to the first: it keeps its place, and is in force again.
    reload(&server, first).await;
    let list = server.get("/definitions/site/revisions").await;
    let marked = list.body.find("in force").unwrap();
    assert!(list.body.find(&old).unwrap() < marked, "{}", list.body);

    // A definition that left the file has its revisions still.
    reload(&server, "jobs: { other: { image: 'a:1' } }").await;
    let gone = server.get(&format!("/definitions/site/revisions?from={old}&to={new}")).await;
    all_say(&gone, &["<code class=\"old\">a:1</code>"]);
    assert!(!gone.body.contains("in force"), "{}", gone.body);
}

#[tokio::test]
async fn revisions_that_are_not_there_are_problems() {
    let server = Server::start().await;
    reload(&server, "jobs: { site: { image: 'a:1' }, other: { image: 'b:1' } }").await;
    let other = server.get("/api/definitions/other").await.json()["revision"].as_str().unwrap().to_owned();
    for (path, status, text) in [
        ("/definitions/sit/revisions".to_owned(), 404, "did you mean"),
        (format!("/definitions/site/revisions?from={}", "0".repeat(32)), 409, "is gone"),
        (format!("/definitions/site/revisions?from={other}"), 409, "is gone"),
        ("/definitions/site/revisions?from=x".to_owned(), 400, "32 hexadecimal digits"),
        ("/definitions/site/revisions?form=x".to_owned(), 400, "did you mean"),
    ] {
        let answer = server.get(&path).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert!(answer.body.contains(text), "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn the_list_shows_the_last_fifty_runs_of_each_definition() {
    let server = Server::start().await;
    reload(&server, "jobs: { site: { image: 'a:1' } }").await;
    for _ in 0..53 {
        assert_eq!(server.post("/api/jobs/site", "").await.status, 201);
    }
    let list = server.get("/definitions").await;
    all_say(&list, &["viewBox=\"0 0 600 60\"", "href=\"/jobs/53\"", "href=\"/jobs/4\""]);
    assert_eq!(list.body.matches("<rect").count(), 50, "{}", list.body);
}
