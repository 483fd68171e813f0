//! Requests to send notifications on a server that has none. `cli/tests/black_box/notify` has real ones.

use crate::support::Server;

#[tokio::test]
async fn a_message_that_does_not_exist_is_not_sent() {
    let server = Server::start().await;
    let path = "/api/notifications/7/send";
    server.ask("POST", path, &[], "").await.is_problem(404, "unknown_notification");
    server.ask("POST", path, &[], "{}").await.is_problem(413, "body_too_large");
    server.ask("POST", &format!("{path}?name=x"), &[], "").await.is_problem(400, "invalid_query");
    server.ask("POST", "/api/notifications/07/send", &[], "").await.is_problem(400, "invalid_id");
    server.get(path).await.is_problem(405, "method_not_allowed");
    let form = [("accept", "text/html"), ("content-type", "application/x-www-form-urlencoded")];
    let page = server.ask("POST", "/notifications/7/send", &form, "").await;
    assert!(page.status == 404 && page.body.contains("there is no notification 7"), "{page:?}");
}

#[tokio::test]
async fn a_request_to_send_all_takes_a_name_and_a_state_that_can_be_sent() {
    let server = Server::start().await;
    let path = "/api/notifications/send";
    let none = server.ask("POST", path, &[], "").await;
    let counts = r#"{"waiting":0,"failed":0,"without_target":0,"out_of_scope":0}"#;
    assert_eq!((none.status, none.body.trim()), (200, counts));
    assert_eq!(server.ask("POST", &format!("{path}?name=resize&state=failed"), &[], "").await.status, 200);
    for (query, problem) in
        [("state=delivered", "invalid_state"), ("state=sent", "invalid_state"), ("limit=5", "invalid_query")]
    {
        server.ask("POST", &format!("{path}?{query}"), &[], "").await.is_problem(400, problem);
    }
    server.ask("POST", path, &[], "{}").await.is_problem(413, "body_too_large");
    let form = ("content-type", "application/x-www-form-urlencoded");
    let page = server.ask("POST", "/notifications/send", &[form], "name=&state=waiting").await;
    assert!(page.status == 200 && page.body.contains("No message waits or was given up."), "{page:?}");
}
