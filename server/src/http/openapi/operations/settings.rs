//! Operations on definitions, schedules, tokens and the server itself.

use serde_json::json;

use super::super::operation::{
    Kind, Operation, Parameter, ParameterLocation, any_object, header, list, object, query, text,
};
use super::examples::{REVISION_EXAMPLE, backfill, definition};
use super::shared::{DRY_RUN, JSON_BODY, LINK, NO_BODY, PAGE, PAGING, SUBMISSION};
use crate::http::api::tokens::TokenRequest;
use crate::http::middleware::code::ProblemCode;
use crate::http::present::shapes;
use crate::http::request::intervention::InterventionBody;
use crate::http::request::reason::ReasonBody;

pub(super) fn definitions() -> Vec<Operation> {
    vec![
        Operation::get("/api/definitions", "definitions", "list_definitions", "List the definitions")
            .takes(&[
                query("tag", Kind::Text("nightly"), "Only those with this tag."),
                query("last_ended", Kind::Switch, "Each with the job that ended last."),
            ])
            .answers(200, "The definitions, by name.", vec![list::<shapes::Definition>(definition())])
            .with_headers(&[("longshore-definitions-revision", "The revision of all definitions.")]),
        Operation::get("/api/definitions/{name}", "definitions", "get_definition", "Look at a definition with its schedules")
            .answers(200, "The definition.", vec![object::<shapes::Definition>(definition())])
            .problems(&[&[ProblemCode::UnknownJob]]),
        Operation::post("/api/definitions/plan", "definitions", "plan_reload", "What a reload of this jobs file, or of these, would change")
            .has_body(text("application/yaml", "version: 1\njobs:\n  resize:\n    image: alpine\n    command: [echo, x]\n"))
            .has_body(object::<shapes::JobsFiles>(json!({
                "files": [{ "name": "team-a.yaml", "text": "jobs:\n  resize: { image: alpine, command: [echo, x] }\n" }]
            })))
            .answers(200, "The differences. Nothing was changed.", vec![object::<shapes::Plan>(json!({
                "current_revision": REVISION_EXAMPLE, "revision": REVISION_EXAMPLE, "added": [{ "name": "resize", "queued": 0 }],
                "removed": [], "changed": [], "unchanged": 3, "warnings": []
            }))])
            .problems(&[
                &NO_BODY,
                &[ProblemCode::UnknownField, ProblemCode::InvalidType, ProblemCode::MissingField, ProblemCode::DuplicateKey],
                &[ProblemCode::InvalidJobsFile, ProblemCode::InvalidPolicy],
            ]),
        Operation::put("/api/definitions", "definitions", "deploy_definitions", "Replace jobs.yaml by this text, and load it")
            .takes(&[
                query("expect", Kind::Text(REVISION_EXAMPLE), "The revision that the definitions must have."),
                query("max_removed", Kind::Number(0, 1_000_000, 3), "The number of present definitions that it may remove."),
                query("dry_run", Kind::Switch, "Nothing is changed, only checked."),
                query("reason", Kind::Text("merge request 41"), "Why, for people: 1 to 300 characters in one line. The history has it."),
            ])
            .has_body(text("application/yaml", "version: 1\njobs:\n  resize:\n    image: alpine\n    command: [echo, x]\n"))
            .answers(200, "What has changed.", vec![object::<shapes::Deployed>(json!({
                "current_revision": REVISION_EXAMPLE, "revision": REVISION_EXAMPLE, "added": [{ "name": "resize", "queued": 0 }],
                "removed": [], "changed": [], "unchanged": 3, "warnings": [], "dry_run": false,
                "previous_file": "jobs.yaml.previous"
            }))])
            .problems(&[
                &NO_BODY,
                &[ProblemCode::InvalidJobsFile, ProblemCode::InvalidPolicy, ProblemCode::RevisionMismatch, ProblemCode::FileChanged, ProblemCode::FileNotWritable, ProblemCode::TooManyRemoved],
                &[ProblemCode::DeployNotAllowed, ProblemCode::OutOfScope, ProblemCode::Draining, ProblemCode::InvalidReason, ProblemCode::TooLong],
            ]),
        Operation::post("/api/definitions/reload", "definitions", "reload_definitions", "Read jobs.yaml again")
            .takes(&[
                query("expect", Kind::Text(REVISION_EXAMPLE), "The revision that the definitions must have."),
                query("expect_new", Kind::Text(REVISION_EXAMPLE), "The revision that those of the file must have."),
            ])
            .may_have_body(object::<ReasonBody>(json!({ "reason": "merge request 41" })))
            .answers(200, "What has changed.", vec![object::<shapes::Reloaded>(json!({
                "definitions": 4, "revision": REVISION_EXAMPLE, "added": ["resize"], "changed": [], "removed": [], "warnings": []
            }))])
            .problems(&[
                &JSON_BODY,
                &[ProblemCode::InvalidJobsFile, ProblemCode::InvalidPolicy, ProblemCode::RevisionMismatch, ProblemCode::OutOfScope, ProblemCode::Draining],
                &[ProblemCode::InvalidReason, ProblemCode::TooLong],
            ]),
        Operation::get("/api/definitions/changes", "definitions", "list_definition_changes", "The loads that have changed definitions, newest first")
            .takes(&[
                query("name", Kind::Text("resize"), "Only those of these definitions, separated by commas; `*` stands for any text."),
                query("by", Kind::Text("ci"), "The name of the token, or of the user."),
                query("since", Kind::Instant, "At or after this instant. A date is its midnight in UTC."),
            ])
            .takes(&PAGE)
            .answers(200, "A page of the history.", vec![list::<shapes::DefinitionChange>(json!({
                "id": 7, "at": "2026-11-20T13:09:01.177Z", "cause": "deploy", "by": "ci", "reason": "merge request 41",
                "before": REVISION_EXAMPLE, "after": REVISION_EXAMPLE, "added": ["resize"], "changed": [], "removed": []
            }))])
            .with_headers(LINK)
            .problems(&[&PAGING]),
    ]
}

/// A resume of something, and what it has in common with a pause.
pub(super) fn resume(
    path: &'static str,
    tag: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Operation {
    Operation::post(path, tag, id, summary)
            .takes(&[header("Prefer", Kind::Text("return=representation"), "With `return=representation` the answer is 200 with a body.")])
            .answers(204, "It is done.", Vec::new())
            .with_headers(&[PAUSE_UNCHANGED])
            .answers(200, "It is done, for a request with `Prefer: return=representation`.", vec![object::<shapes::PauseResult>(json!({
                "changed": true,
                "pause": { "of": "server", "since": "2026-11-20T13:09:01.177Z", "until": "2026-11-20T15:09:01.177Z", "by": "anna", "reason": "the disk is full" },
                "former": { "of": "server", "since": "2026-11-20T13:09:01.177Z", "by": "bert" }
            }))])
            .with_headers(&[PAUSE_UNCHANGED])
            .problems(&[&[ProblemCode::OutOfScope, ProblemCode::RefusedByStore]])
}

/// Adds the body of a pause.
pub(super) fn with_reason(operation: Operation) -> Operation {
    operation
        .may_have_body(object::<InterventionBody>(json!({ "reason": "the disk is full", "for": "2h" })))
        .problems(&[
            &JSON_BODY,
            &[
                ProblemCode::InvalidReason,
                ProblemCode::TooLong,
                ProblemCode::InvalidDuration,
                ProblemCode::InvalidTime,
            ],
        ])
}

pub(super) fn schedules() -> Vec<Operation> {
    let base = |path, id, summary, parameters: &[Parameter]| {
        resume(path, "definitions", id, summary).takes(parameters).problems(&[&[
            ProblemCode::UnknownSchedule,
            ProblemCode::UnknownGroup,
            ProblemCode::UnknownJob,
        ]])
    };
    let pause = |path, id, summary, parameters: &[Parameter]| {
        base(path, id, summary, parameters).problems(&[&NO_BODY])
    };
    let with_body =
        |path, id, summary, parameters: &[Parameter]| with_reason(base(path, id, summary, parameters));
    let one = [query("schedule", Kind::Text("night"), "Only the schedule with this id.")];
    let group =
        [query("group", Kind::Text("db-main"), "Only the definitions whose `concurrency` names this group.")];
    vec![
        Operation::get("/api/schedules", "definitions", "list_schedules", "List the schedules with their next slots")
            .takes(&[
                query("name", Kind::Text("resize"), "Only those of this definition."),
                query("next", Kind::Number(1, 100, 5), "The number of slots."),
                query("from", Kind::Instant, "The slots at or after this instant, also earlier ones. A date is its midnight in the zone of the schedule. Absent: those that have not fired."),
            ])
            .answers(200, "The schedules.", vec![list::<shapes::Schedule>(json!({
                "name": "nightly", "id": "night", "rule": "cron 0 2 * * *", "description": "every day at 02:00",
                "timezone": "Europe/Berlin", "state": "active", "next": ["2026-11-21T01:00:00.000Z"]
            }))])
            .problems(&[&[ProblemCode::InvalidLimit, ProblemCode::UnknownJob]]),
        Operation::get("/api/definitions/{name}/statistics", "definitions", "definition_statistics", "How the latest jobs of a definition ended, and how long they took")
            .takes(&[
                query("jobs", Kind::Number(1, 1_000, 1_000), "The most jobs to count, from the newest on: 1 to 1,000."),
                query("since", Kind::Instant, "Only jobs that ended at or after this instant. A date is its midnight in UTC."),
            ])
            .answers(200, "The statistics.", vec![object::<shapes::Statistics>(json!({
                "name": "resize", "jobs": 4, "complete": true, "states": { "succeeded": 3, "failed": 1 }, "success_rate": 0.75,
                "retries": 1, "retried_jobs": 1, "run": { "p50_ms": 1200, "p90_ms": 3100, "p99_ms": 3100, "max_ms": 3100 }
            }))])
            .problems(&[&[ProblemCode::UnknownJob]]),
        Operation::get("/api/definitions/{name}/fires", "definitions", "list_fires", "What became of the slots of schedules, newest first")
            .takes(&PAGE)
            .takes(&[
                query("schedule", Kind::Text("night"), "Only rows of the schedule with this id."),
                query("since", Kind::Instant, "Only rows with a slot at or after this instant. A date is its midnight in UTC."),
                query("until", Kind::Instant, "Only rows with a slot before this instant. A date, in UTC, is included."),
                query("failed", Kind::Switch, "Only slots whose last job, a retry included, failed, expired or was lost, and was not acknowledged. A page may have fewer rows than `limit`, or none, and a next page."),
            ])
            .answers(200, "A page of the ledger.", vec![list::<shapes::Fire>(json!({
                "schedule": "night", "from": "2026-11-20T01:00:00.000Z", "to": "2026-11-20T01:00:00.000Z", "count": 1,
                "verdict": "fired", "job": 5, "state": "failed", "outcome": "failed", "exit_code": 3,
                "retry": { "id": 8, "state": "succeeded", "outcome": "succeeded", "exit_code": 0 }, "timezone": "Europe/Berlin", "decided_at": "2026-11-20T01:00:00.120Z", "lateness_ms": 120
            }))])
            .with_headers(LINK)
            .problems(&[&PAGING, &[ProblemCode::UnknownJob, ProblemCode::UnknownSchedule]]),
        Operation::post("/api/definitions/{name}/backfill", "definitions", "backfill", "Make the jobs of past slots that have none")
            .takes(&[
                Parameter { location: ParameterLocation::QueryRequired, ..query("from", Kind::Instant, "The beginning of the range; a date is its midnight in the zone of the schedule.") },
                query("to", Kind::Instant, "The end of the range; a date is included; absent: now."),
                query("schedule", Kind::Text("night"), "The id of the schedule, if there are several."),
                query("interval", Kind::Duration("5m"), "The time between the starts of two jobs, at most 24h."),
                query("covered", Kind::Switch, "Also the slots that a job of an earlier rule covers."),
                DRY_RUN,
            ])
            .answers(200, "There was nothing to make, or it was a dry run.", vec![object::<shapes::Backfill>(backfill("open"))])
            .answers(201, "The jobs were made.", vec![object::<shapes::Backfill>(backfill("backfilled"))])
            .problems(&[&NO_BODY, &SUBMISSION, &[ProblemCode::MissingField, ProblemCode::UnknownSchedule, ProblemCode::TooManyJobs]]),
        with_body("/api/definitions/{name}/pause", "pause_definition", "Pause the jobs and schedules of a definition", &one),
        pause("/api/definitions/{name}/resume", "resume_definition", "Resume the jobs and schedules of a definition", &one),
        Operation::get("/api/pauses", "definitions", "list_pauses", "List what is paused").answers(
            200,
            "The pauses, the widest first.",
            vec![list::<shapes::Pause>(json!({
                "of": "group", "name": "db-main", "since": "2026-11-20T13:09:01.177Z", "until": "2026-11-20T15:09:01.177Z", "by": "anna", "reason": "the disk is full"
            }))],
        ),
        with_body("/api/pause", "pause", "Pause everything, or a group", &group),
        pause("/api/resume", "resume", "Resume everything, or a group", &group),
        with_body("/api/schedules/pause", "pause_all", "Pause all schedules", &[]),
        pause("/api/schedules/resume", "resume_all", "Resume all schedules", &[]),
    ]
}

const PAUSE_UNCHANGED: (&str, &str) =
    ("pause-unchanged", "`true` if it was so already, with this end and reason.");

pub(super) fn access() -> Vec<Operation> {
    let token = json!({
        "name": "ci", "role": "submitter", "definitions": ["nightly-*"], "state": "valid", "created_at": "2026-11-20T13:09:01.177Z"
    });
    let mut new = token.clone();
    new["token"] = "longshore_3_".into();
    vec![
        Operation::get("/api/whoami", "access", "get_caller", "The sender of the request, and what it may do")
            .answers(200, "The token, its role and its end.", vec![object::<shapes::Caller>(json!({
                "token": "ci", "login": "token", "role": "submitter", "definitions": ["nightly-*"],
                "expires_at": "2026-11-27T13:09:01.177Z",
                "warning": { "code": "token_expires", "text": "the token expires in 6d 23h; an administrator can make another one" }
            }))]),
        Operation::get("/api/tokens", "access", "list_tokens", "List the tokens")
            .answers(200, "The tokens, without their texts.", vec![list::<shapes::Token>(token.clone())]),
        Operation::post("/api/tokens", "access", "create_token", "Make a token")
            .has_body(object::<TokenRequest>(json!({ "name": "ci", "role": "submitter", "definitions": ["nightly-*"], "expires": "90d" })))
            .answers(201, "The token. Its text is shown only here.", vec![object::<shapes::NewToken>(new)])
            .problems(&[&JSON_BODY, &[ProblemCode::OutOfRange, ProblemCode::InvalidDuration, ProblemCode::InvalidLabel, ProblemCode::TokenNameTaken, ProblemCode::Draining]]),
        Operation::post("/api/tokens/{name}/revoke", "access", "revoke_token", "Revoke a token")
            .path(Kind::Text("ci"), "The name of the token.")
            .takes(&[query("workers", Kind::Switch, "Also the workers that joined by it.")])
            .answers(200, "The token as it is now.", vec![object::<shapes::Token>(token)])
            .problems(&[&NO_BODY, &[ProblemCode::UnknownToken, ProblemCode::Draining, ProblemCode::RefusedByStore]]),
        Operation::get("/api/audit", "access", "list_audit", "Requests that were to change something, newest first")
            .takes(&[
                query("by", Kind::Text("ci"), "The name of the token."),
                query("path", Kind::Text("/api/workers"), "A text in the path."),
                query("about", Kind::Text("token ci"), "A text in the object or the detail."),
                query("since", Kind::Instant, "Answered at or after this instant. A date is its midnight in UTC."),
                query("refused", Kind::Switch, "Only refused requests."),
            ])
            .takes(&PAGE)
            .answers(200, "A page of the audit log.", vec![list::<shapes::AuditEntry>(json!({
                "id": 7, "from": "2026-11-20T13:09:01.177Z", "to": "2026-11-20T13:09:01.177Z", "count": 1, "token": "ci",
                "role": "submitter", "address": "192.0.2.17", "method": "POST", "target": "/api/workers/3/drain",
                "object": "worker 3 (anna)", "status": 403, "problem": "forbidden", "request_id": "7aa6e6d9-14"
            }))])
            .with_headers(LINK)
            .problems(&[&PAGING]),
    ]
}

pub(super) fn server() -> Vec<Operation> {
    vec![
        Operation::get("/healthz", "server", "is_alive", "Is the process alive?").answers(
            200,
            "It answers.",
            vec![text("text/plain", "ok\n")],
        ),
        Operation::get("/readyz", "server", "is_ready", "Does the server take requests?")
            .answers(200, "It does. Further lines are warnings.", vec![text("text/plain", "ready\n")])
            .problems(&[&[ProblemCode::Draining]]),
        Operation::get("/version", "server", "get_version", "The version of the server").answers(
            200,
            "The version.",
            vec![object::<shapes::Version>(json!({
                "name": "longshore", "version": "0.1.0", "protocol_lowest": 1, "protocol_highest": 1,
                "wire_format": 3, "time": "2026-03-01T09:30:00.000Z"
            }))],
        ),
        Operation::get("/metrics", "server", "get_metrics", "Metrics for Prometheus").answers(
            200,
            "The metrics. In OpenMetrics if `Accept` asks for it.",
            vec![
                text("text/plain", "# TYPE longshore_jobs_live gauge\nlongshore_jobs_live 3\n"),
                text(
                    "application/openmetrics-text",
                    "# TYPE longshore_jobs_live gauge\nlongshore_jobs_live 3\n# EOF\n",
                ),
            ],
        ),
        Operation::get("/problems/{code}", "server", "get_problem_page", "The page of a problem").answers(
            200,
            "The page, as Markdown.",
            vec![text("text/markdown", "# unknown_job\n")],
        ),
        Operation::get("/openapi.json", "server", "get_openapi", "This description").answers(
            200,
            "The description in OpenAPI 3.1.",
            vec![any_object(json!({ "openapi": "3.1.0" }))],
        ),
    ]
}
