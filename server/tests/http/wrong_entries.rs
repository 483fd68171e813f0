//! Lists of jobs with several wrong entries: all are named, and no job is made.

use crate::support::Server;

#[tokio::test]
async fn each_wrong_line_of_a_list_is_named() {
    let server = Server::start().await;
    let lines = "{\"name\":\"resize\"}\n{\"name\":\"resise\"}\n\n{\"name\":\"resize\",\"priority\":900}\n{\"args\":[]}\n{oops\n";
    let headers = [("content-type", "application/x-ndjson")];
    let problem = server.ask("POST", "/api/jobs", &headers, lines).await.is_problem(404, "unknown_job");
    let detail = "line 2: there is no definition \"resise\"; 3 more entries are wrong";
    assert_eq!((&problem["detail"], &problem["field"]), (&detail.into(), &"jobs[1].name".into()));
    let faults = problem["errors"].as_array().expect("a list");
    let shown = |index: usize| ["field", "code", "detail"].map(|key| faults[index][key].as_str().unwrap());
    assert_eq!(shown(0), ["jobs[1].name", "unknown_job", "line 2: there is no definition \"resise\""]);
    assert_eq!(shown(1)[..2], ["jobs[2].priority", "out_of_range"]);
    assert_eq!(
        shown(2),
        ["jobs[3].name", "missing_field", "line 5: an entry needs the name of a definition"]
    );
    assert_eq!(shown(3)[..2], ["jobs[4]", "invalid_json"]);
    assert!(shown(3)[2].starts_with("line 6: "), "{problem}");
    assert_eq!((faults.len(), server.stand.world().jobs.len()), (4, 0));
}

#[tokio::test]
async fn a_list_with_very_many_wrong_entries_names_the_first_and_counts_the_others() {
    let server = Server::start().await;
    let array = format!("[{}]", ["{\"name\":\"resise\"}"; 50].join(","));
    let problem = server.post("/api/jobs", &array).await.is_problem(404, "unknown_job");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.ends_with("; 49 more entries are wrong, and errors lists the first 20"), "{detail}");
    assert_eq!(problem["errors"].as_array().map(Vec::len), Some(20));
    let one = server.post("/api/jobs", "[{\"name\":\"resise\"}]").await.is_problem(404, "unknown_job");
    assert!(one.get("errors").is_none() && one["detail"] == "there is no definition \"resise\"", "{one}");
}

#[tokio::test]
async fn a_short_name_of_a_field_is_answered_with_the_field() {
    let server = Server::start().await;
    for (body, hint) in [
        (r#"{"key":"customer-1"}"#, "did you mean \"unique_key\"?"),
        (r#"{"env":{"A":"1"}}"#, "did you mean \"environment\"?"),
        (r#"{"at":"2026-11-20T02:00:00Z"}"#, "did you mean \"run_at\"?"),
        (r#"{"in":"5m"}"#, "did you mean \"delay\"?"),
    ] {
        let problem = server.post("/api/jobs/resize", body).await.is_problem(422, "unknown_field");
        assert_eq!(problem["hint"], hint);
    }
}
