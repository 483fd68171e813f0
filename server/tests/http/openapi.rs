//! The description of the API over HTTP: where it is served, and what the server answers to what it describes.

use longshore_server::listener::Limits;
use serde_json::Value;

use crate::support::Server;

#[tokio::test]
async fn the_description_is_served_and_is_the_file() {
    let server = Server::start().await;
    let served = server.get("/openapi.json").await;
    assert_eq!((served.status, served.header("content-type")), (200, "application/json"));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(served.json(), file);
}

#[tokio::test]
async fn under_a_base_path_the_description_names_it() {
    let server = Server::with(|access| access, "/jobs", Limits::default()).await;
    assert_eq!(server.get("/jobs/openapi.json").await.json()["servers"][0]["url"], "/jobs");
    let page = server.get("/jobs/api-docs").await;
    assert!(page.body.contains("href=\"/jobs/openapi.json\""), "{}", page.body);
}

#[tokio::test]
async fn the_description_needs_a_token_where_the_version_does() {
    let server = Server::with(|access| access.api_token("people"), "", Limits::default()).await;
    for path in ["/openapi.json", "/version"] {
        server.get(path).await.is_problem(401, "invalid_token");
        let token = [("authorization", "Bearer people")];
        assert_eq!(server.ask("GET", path, &token, "").await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn each_described_operation_is_there_and_answers_as_described() {
    let server = Server::start().await;
    let document = server.get("/openapi.json").await.json();
    let mut asked = 0;
    // Workers connect elsewhere in these tests.
    let paths =
        document["paths"].as_object().unwrap().iter().filter(|(path, _)| *path != "/api/workers/connect");
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let place = |name: &'static str| parameters.iter().filter(move |it| it["in"] == name);
            let mut address = path.clone();
            for parameter in place("path") {
                let name = parameter["name"].as_str().unwrap();
                address = address.replace(&format!("{{{name}}}"), parameter["example"].as_str().unwrap());
            }
            // The stream of events has no end by itself.
            let follows = place("query").any(|it| it["name"] == "follow") && method == "get";
            if follows {
                address.push_str("?follow=0");
            }
            let body = &operation["requestBody"]["content"];
            let (media_type, body) = match body.as_object().and_then(|forms| forms.iter().next()) {
                None => ("", String::new()),
                Some((kind, form)) => match &form["example"] {
                    Value::String(text) => (kind.as_str(), text.clone()),
                    json => (kind.as_str(), json.to_string()),
                },
            };
            let header = [("content-type", media_type)];
            let headers = if media_type.is_empty() { &header[..0] } else { &header[..] };
            let answer = server.ask(&method.to_uppercase(), &address, headers, &body).await;
            let response = &operation["responses"][answer.status.to_string()];
            assert!(response.is_object(), "{method} {address} is answered by {answer:?}");
            if answer.status >= 400 {
                let code = answer.json()["code"].clone();
                assert!(
                    code != "not_found" && code != "method_not_allowed",
                    "{method} {address}: {answer:?}"
                );
            }
            asked += 1;
        }
    }
    assert!(asked > 45, "{asked} operations");
}
