//! `GET /api/jobs`: pages, filters, and the refusal of wrong ones.

use scheduler::job::State;

use crate::support::Server;

#[tokio::test]
async fn the_list_is_walked_by_its_links_without_gap_or_repeat() {
    let server = Server::start().await;
    let body = format!("[{}]", vec![r#"{"name":"resize"}"#; 25].join(","));
    server.post("/api/jobs", &body).await;
    let mut seen = Vec::new();
    let mut path = "/api/jobs?name=resize&limit=10".to_owned();
    loop {
        let page = server.get(&path).await;
        assert_eq!(page.status, 200, "{page:?}");
        seen.extend(page.json().as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()));
        let link = page.header("link").to_owned();
        if link.is_empty() {
            break;
        }
        assert!(link.ends_with("; rel=\"next\"") && link.contains("name=resize"), "{link}");
        path = link[1..link.find('>').unwrap()].to_owned();
    }
    assert_eq!(seen, (1..=25).rev().collect::<Vec<u64>>());
}

#[tokio::test]
async fn the_list_is_filtered() {
    let server = Server::start().await;
    server.post("/api/jobs/resize", r#"{"labels":{"team":"web"}}"#).await;
    server.post("/api/jobs/backup", "").await;
    server.stand.world().start(2);
    let ids = async |query: &str| {
        let answer = server.get(&format!("/api/jobs?{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json().as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ids("").await, [2, 1]);
    assert_eq!(ids("state=running").await, [2]);
    assert_eq!(ids("state=queued,running").await, [2, 1]);
    assert_eq!(ids("name=resize").await, [1]);
    assert_eq!(ids("label=team=web").await, [1]);
    assert_eq!(ids("name=resize,backup").await, [2, 1]);
    assert_eq!(ids("name=re*,b*p").await, [2, 1]);
    assert_eq!(ids("name=*size").await, [1]);
    assert_eq!(ids("name=x*").await, Vec::<u64>::new());
    assert_eq!(ids("name=*").await, [2, 1]);
    assert_eq!(ids("name=x*,*&state=running").await, [2]);
    assert_eq!(ids("worker=w1&since=2026-01-01T00:00:00Z").await, [2]);
    assert_eq!(ids("worker=1").await, [2]);
    assert_eq!(ids("worker=w2").await, Vec::<u64>::new(), "one that has left");
}

#[tokio::test]
async fn the_list_is_filtered_by_the_end_of_jobs() {
    let server = Server::start().await;
    for _ in 0..3 {
        server.post("/api/jobs/resize", "").await;
    }
    for (job, state, code) in [(1, State::Failed, 3), (2, State::Succeeded, 0)] {
        server.stand.world().start(job);
        server.stand.world().end(job, state, code);
    }
    let ids = async |query: &str| {
        let answer = server.get(&format!("/api/jobs?{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json().as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ids("exit_code=3").await, [1]);
    assert_eq!(ids("outcome=failed,oom_killed").await, [1]);
    assert_eq!(ids("outcome=succeeded").await, [2]);
    assert_eq!(ids("ended_since=1970-01-01T00:00:09Z").await, [2, 1]);
    assert_eq!(ids("ended_until=1970-01-01T00:00:09Z").await, Vec::<u64>::new());
    let revision = server.get("/api/jobs/1").await.json()["revision"].as_str().unwrap().to_owned();
    assert_eq!(ids(&format!("revision={revision}")).await, [3, 2, 1]);
    assert_eq!(ids("revision=00000000000000000000000000000000").await, Vec::<u64>::new());
    assert_eq!(ids("accepted_since=2000-01-01T00:00:00Z&exit_code=0").await, [2]);
}

#[tokio::test]
async fn an_unknown_name_is_refused_with_similar_ones() {
    let server = Server::start().await;
    let problem = server.get("/api/jobs?name=resise").await.is_problem(422, "unknown_name");
    assert_eq!((&problem["near"][0], &problem["field"]), (&"resize".into(), &"?name".into()));
    server.get("/api/jobs?name=resize,nothing").await.is_problem(422, "unknown_name");
}

#[tokio::test]
async fn wrong_parameters_are_refused_with_hints() {
    let server = Server::start().await;
    for (query, code) in [
        ("limit=-1", "invalid_limit"),
        ("limit=0", "invalid_limit"),
        ("limit=1000000000", "invalid_limit"),
        ("cursor=AAAA", "invalid_cursor"),
        ("state=banana", "invalid_state"),
        ("since=yesterday", "invalid_query"),
        ("worker=nobody", "invalid_query"),
        ("label=x", "invalid_query"),
        ("outcome=sad", "invalid_query"),
        ("exit_code=x", "invalid_query"),
        ("revision=12", "invalid_query"),
        ("ended_since=tomorrow", "invalid_query"),
        ("limti=5", "invalid_query"),
        ("name=a&name=b", "invalid_query"),
    ] {
        server.get(&format!("/api/jobs?{query}")).await.is_problem(400, code);
    }
    let unknown = server.get("/api/jobs?worker=nobody").await.json();
    assert_eq!(unknown["detail"], "no worker was ever called \"nobody\"");
    let states = server.get("/api/jobs?state=banana").await.json()["hint"].clone();
    assert!(states.as_str().unwrap().contains("succeeded"));
}
