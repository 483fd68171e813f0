//! Traces that a submission brings, and what programs and related jobs get of them.

use serde_json::{Value, json};

use crate::Stage;
use crate::collector::{Answer, Collector};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// Makes a job in this trace, and waits for its end.
async fn run_in(stage: &Stage, name: &str, parent: &str) -> u64 {
    let request = testkit::http::client().build().unwrap().post(stage.api.url(&format!("/api/jobs/{name}")));
    let request = request.header("traceparent", parent).header("tracestate", "vendor=7");
    let answer: Value =
        request.header("x-request-id", "order-77").send().await.unwrap().json().await.unwrap();
    let job = answer["id"].as_u64().unwrap();
    stage.ended(job).await;
    job
}

async fn output(stage: &Stage, job: u64) -> String {
    String::from_utf8(stage.api.get_bytes(&format!("/api/jobs/{job}/logs?stream=stdout")).await).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_given_trace_is_continued_down_to_the_program() {
    let collector = Collector::start(Answer::Ok).await;
    let stage = Stage::start(&[collector.endpoint()]).await;
    let job = run_in(&stage, "shows", &format!("00-{TRACE}-{SPAN}-01")).await;
    let (root, children) = collector.wait_for_job(job).await;
    assert_eq!((root.trace.as_str(), root.parent.as_str(), root.state.as_str()), (TRACE, SPAN, "vendor=7"));
    assert_eq!(root.attribute("longshore.request.id"), Some("order-77"));
    let attempt = children.iter().find(|span| span.name == "attempt").unwrap();
    let handed = format!("parent 00-{TRACE}-{}-01 state vendor=7", attempt.id);
    assert!(output(&stage, job).await.contains(&handed), "{handed}: {}", output(&stage, job).await);
    let shown = stage.api.get(&format!("/api/jobs/{job}")).await;
    assert_eq!(shown["traceparent"], format!("00-{TRACE}-{SPAN}-01"), "as the submission said");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_a_trace_hands_its_own_to_the_program() {
    let collector = Collector::start(Answer::Ok).await;
    let stage = Stage::start(&[collector.endpoint()]).await;
    let job = stage.run("shows", None).await;
    let (root, children) = collector.wait_for_job(job).await;
    let attempt = children.iter().find(|span| span.name == "attempt").unwrap();
    let handed = format!("parent 00-{}-{}-01", root.trace, attempt.id);
    assert!(output(&stage, job).await.contains(&handed), "{handed}: {}", output(&stage, job).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsampled_parent_gives_no_span() {
    let collector = Collector::start(Answer::Ok).await;
    let stage = Stage::start(&[collector.endpoint()]).await;
    let unsampled = run_in(&stage, "shows", &format!("00-{TRACE}-{SPAN}-00")).await;
    // It ended later, so its spans are sent later.
    let sampled = stage.run("shows", None).await;
    collector.wait_for_job(sampled).await;
    assert!(collector.spans().iter().all(|span| span.trace != TRACE), "{:?}", collector.spans());
    let handed = format!("parent 00-{TRACE}-{SPAN}-00");
    assert!(output(&stage, unsampled).await.contains(&handed), "the program gets what the submission said");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_belong_together_are_linked() {
    let collector = Collector::start(Answer::Ok).await;
    let stage = Stage::start(&[collector.endpoint()]).await;
    let failed = stage.run("fails", None).await;
    let (cause, _) = collector.wait_for_job(failed).await;
    let shown = stage.api.get(&format!("/api/jobs/{failed}")).await;
    let told = shown["hooks"][0]["job"].as_u64().unwrap();
    let retry = stage.api.post(&format!("/api/jobs/{failed}/retry"), Some(&json!({}))).await;
    for (job, relation) in [(told, "hook_of"), (retry["id"].as_u64().unwrap(), "retry_of")] {
        let (root, _) = collector.wait_for_job(job).await;
        let link = (relation.to_owned(), failed.to_string(), cause.trace.clone(), cause.id.clone());
        assert_eq!(root.links, [link], "{root:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_job_on_several_workers_are_below_it_in_a_given_trace() {
    let collector = Collector::start(Answer::Ok).await;
    let stage = Stage::start(&[collector.endpoint()]).await;
    let job = run_in(&stage, "everywhere", &format!("00-{TRACE}-{SPAN}-01")).await;
    let (root, children) = collector.wait_for_job(job).await;
    let [member] = children.as_slice() else { panic!("{children:?}") };
    assert_eq!((root.parent.as_str(), member.trace.as_str()), (SPAN, TRACE));
    assert_eq!((member.name.as_str(), &member.links), ("job everywhere", &Vec::new()));
    let alone = stage.run("everywhere", None).await;
    let (root, _) = collector.wait_for_job(alone).await;
    let (member, attempts) = collector.wait_for_job(alone + 1).await;
    assert_eq!(member.links[0], ("member_of".into(), alone.to_string(), root.trace, root.id));
    assert_eq!(attempts.len(), 2, "{attempts:?}");
}
