//! The description of the API in OpenAPI 3.1: served at `/openapi.json`, shown at `/api-docs`, and kept in `docs/openapi.json`.
//!
//! `description` holds what was written; `operations` is the table of all operations, `operation` has the words in which it is written, and
//! `document` writes the description.

pub(crate) mod description;
mod document;
mod operation;
mod operations;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use crate::http::state::AppState;
use description::Description;

/// `GET /openapi.json`
pub(crate) async fn serve(State(state): State<Arc<AppState>>) -> Response {
    ([(header::CONTENT_TYPE, JSON)], description(&state).text.clone()).into_response()
}

/// The description of this server's API, written when somebody first asks for it.
pub(crate) fn description(state: &AppState) -> &Description {
    state.openapi.get_or_init(|| Description::new(document::write(&state.services.base_path)))
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde_json::Value;

    use super::*;
    use crate::http::middleware::code::ProblemCode;

    fn describe(base: &str) -> Value {
        document::write(base)
    }

    /// Paths and methods of the router, from its source.
    fn routes() -> Vec<(String, String)> {
        let source = include_str!("../mod.rs");
        let mut routes = Vec::new();
        for part in source.split(".route(\"").skip(1) {
            let (path, rest) = part.split_once('"').unwrap();
            let methods = rest.lines().next().unwrap();
            for method in ["get", "post", "put", "patch", "delete"] {
                if methods.contains(&format!("{method}(")) {
                    routes.push((method.to_owned(), path.to_owned()));
                }
            }
        }
        // Brought by the listener of workers.
        routes.push(("get".to_owned(), "/api/workers/connect".to_owned()));
        routes
    }

    /// A described path belongs to a route if their parts are equal. Names of parameters do not matter, and verbs are described one by one.
    fn belongs(described: &str, route: &str) -> bool {
        let (described, route): (Vec<_>, Vec<_>) =
            (described.split('/').collect(), route.split('/').collect());
        let is_equal =
            |(described, route): (&&str, &&str)| match (described.starts_with('{'), route.starts_with('{')) {
                (true, true) => true,
                (false, true) => *route == "{verb}",
                (_, false) => described == route,
            };
        described.len() == route.len() && described.iter().zip(&route).all(is_equal)
    }

    fn described() -> Vec<(String, String, Value)> {
        let document = describe("");
        let paths = document["paths"].as_object().unwrap();
        paths
            .iter()
            .flat_map(|(path, methods)| {
                let methods = methods.as_object().unwrap().iter();
                methods.map(|(method, operation)| (method.clone(), path.clone(), operation.clone()))
            })
            .collect()
    }

    #[test]
    fn every_route_is_described_and_nothing_else() {
        let (routes, described) = (routes(), described());
        assert!(routes.len() > 40, "the routes are read from the source: {routes:?}");
        // A name that could be an id or a definition: the general path describes it.
        let is_general = |method: &str, path: &str| {
            method == "get"
                && [
                    "/api/jobs/cancel",
                    "/api/jobs/retry",
                    "/api/jobs/release",
                    "/api/jobs/acknowledge",
                    "/api/definitions/reload",
                    "/api/definitions/plan",
                ]
                .contains(&path)
        };
        for (method, path) in routes.iter().filter(|(method, path)| !is_general(method, path)) {
            let is_known = described.iter().any(|it| it.0 == *method && belongs(&it.1, path));
            assert!(is_known, "{method} {path} is not described");
        }
        for (method, path, _) in &described {
            let is_known = routes.iter().any(|it| it.0 == *method && belongs(path, &it.1));
            assert!(is_known, "{method} {path} has no route");
        }
    }

    #[test]
    fn every_problem_is_described_with_its_status() {
        let document = describe("");
        let mut found = BTreeSet::new();
        for (_, _, operation) in described() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                let common = &document["components"]["responses"][status];
                let response = if response["$ref"].is_string() { common } else { response };
                let problem = &response["content"]["application/problem+json"]["schema"]["allOf"][1]["properties"]
                    ["code"]["enum"];
                for code in problem.as_array().into_iter().flatten() {
                    found.insert((status.parse::<u16>().unwrap(), code.as_str().unwrap().to_owned()));
                }
            }
        }
        let all: BTreeSet<_> =
            ProblemCode::ALL.iter().map(|it| (it.status().as_u16(), it.name().to_owned())).collect();
        assert_eq!(found, all);
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/problems");
        let pages = std::fs::read_dir(pages).unwrap().map(|entry| entry.unwrap().path());
        let pages: BTreeSet<_> =
            pages.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        assert_eq!(pages, all.into_iter().map(|(_, name)| name).collect());
    }

    #[test]
    fn every_operation_has_a_summary_a_name_of_its_own_and_an_example() {
        let mut names = BTreeSet::new();
        for (method, path, operation) in described() {
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{method} {path}");
            assert!(
                operation["x-codeSamples"][0]["source"].as_str().unwrap().starts_with("curl "),
                "{method} {path}"
            );
            assert!(names.insert(operation["operationId"].to_string()), "{method} {path}");
            let path_parameters = path.matches('{').count();
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            assert_eq!(parameters.iter().filter(|it| it["in"] == "path").count(), path_parameters, "{path}");
        }
    }

    #[test]
    fn every_example_is_of_its_type() {
        for operation in operations::all() {
            let answers = operation.answers.iter().flat_map(|answer| &answer.content);
            for content in operation.body.iter().chain(answers) {
                if let Err(why) = (content.check)(content.example.clone()) {
                    panic!("{} {}: {why}: {}", operation.method, operation.path, content.example);
                }
            }
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_field_is_explained() {
        let document = describe("");
        let text = document.to_string();
        for part in text.split("\"#/").skip(1) {
            let pointer = format!("/{}", part.split('"').next().unwrap());
            assert!(document.pointer(&pointer).is_some(), "{pointer}");
        }
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            for (field, property) in schema["properties"].as_object().into_iter().flatten() {
                let is_plain = name == "BatchCounts";
                assert!(is_plain || property["description"].is_string(), "{name}.{field}: {property}");
            }
        }
    }

    #[test]
    fn absent_values_of_answers_are_not_null() {
        let job = &describe("")["components"]["schemas"]["Job"]["properties"];
        assert_eq!(job["exit_code"]["type"], "integer");
        assert_eq!(job["worker"]["$ref"], "#/components/schemas/WorkerRef");
    }

    #[test]
    fn the_description_has_the_prefix_of_paths() {
        assert_eq!(describe("/longshore")["servers"][0]["url"], "/longshore");
        assert_eq!(describe("")["servers"][0]["url"], "/");
    }

    /// `LONGSHORE_BLESS=1` writes the file instead.
    #[test]
    fn the_file_is_what_the_code_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
        let text = format!("{:#}\n", describe(""));
        if std::env::var_os("LONGSHORE_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == text,
            "docs/openapi.json is not what the code says: run `cargo xtask bless`, and read the difference"
        );
    }
}
