//! Operations on output, events, workers, limits and notifications.

use serde_json::json;

use super::super::operation::{
    ID, Kind, Operation, Parameter, ParameterLocation, header, list, object, query, text,
};
use super::examples::worker;
use super::shared::{FILTERING, FILTERS, JSON_BODY, LINK, NO_BODY, ON_JOB, ON_WORKER, PAGE, PAGING};
use crate::http::api::notifications::TestRequest;
use crate::http::api::workers::WorkerPatch;
use crate::http::middleware::code::ProblemCode;
use crate::http::present::shapes;
use crate::http::request::intervention::InterventionBody;
use crate::http::request::reason::ReasonBody;

pub(super) fn output() -> Vec<Operation> {
    vec![
        Operation::get("/api/jobs/{id}/logs", "output", "get_output", "The output of a job")
            .takes(&[
                query("attempt", Kind::NumberOr(0, u32::MAX as u64, 1, "all"), "Only this attempt, or all, the first one first; absent: the latest one."),
                query("stream", Kind::Word(&["stdout", "stderr"]), "Only one of both streams."),
                query("tail", Kind::Number(0, 1_000_000, 100), "Only the last lines. Not together with offset or Range."),
                query("since", Kind::Instant, "Only output that was received at or after this instant; a date is its midnight in UTC. Not together with offset or Range."),
                query("offset", Kind::Number(0, i64::MAX.unsigned_abs(), 0), "From this byte on."),
                query("follow", Kind::Switch, "The answer goes on until the job has ended."),
                query("encoding", Kind::Word(&["base64"]), "For events: the data is encoded."),
                query("timestamps", Kind::Switch, "With the time at which the server received it. Not together with Range."),
                query("after", Kind::Text("1:0"), "For events: the id of the last event that was received."),
                header("Range", Kind::Text("bytes=0-99"), "A part of the output, in bytes."),
                header("Last-Event-ID", Kind::Text("1:0"), "For events: the id of the last event that was received."),
            ])
            .answers(200, "The output: text, or with its Accept a stream of events.", vec![
                text("text/plain", "x\n"), text("text/event-stream", "event: out\ndata: x\n\n"),
            ])
            .answers(206, "The part that Range asks for.", vec![text("text/plain", "x\n")])
            .with_headers(&[("content-range", "The part and the length of the output.")])
            .problems(&[&ON_JOB, &[ProblemCode::UnknownAttempt, ProblemCode::OutputRemoved, ProblemCode::RangeNotSatisfiable, ProblemCode::InvalidCursor]]),
        Operation::get("/api/logs/search", "output", "search_output", "Search in output")
            .takes(&[
                Parameter { location: ParameterLocation::QueryRequired, ..query("q", Kind::Text("disk full"), "The text, 1 to 1,000 bytes.") },
                query("regex", Kind::Switch, "The text is a regular expression."),
                query("ignore_case", Kind::Switch, "Capitals count as small letters."),
                query("job", ID, "Only in this job."),
                query("stream", Kind::Word(&["stdout", "stderr"]), "Only one of both streams."),
            ])
            .takes(&FILTERS)
            .takes(&PAGE)
            .answers(200, "The lines of a part of the output, and the cursor of the next part.", vec![object::<shapes::OutputSearch>(json!({
                "lines": [{ "job": 5, "name": "resize", "attempt": 1, "stream": "stderr", "offset": 0, "text": "disk full", "matches": [[0, 9]] }],
                "scanned_bytes": 10, "scanned_jobs": 1, "jobs_left_at_most": 0, "complete": true
            }))])
            .problems(&[&FILTERING, &[ProblemCode::Pruned]]),
        Operation::get("/api/events", "events", "stream_events", "What changes, as server-sent events")
            .takes(&[
                query("kind", Kind::Text("job.*"), "Kinds, separated by commas; `*` stands for any text."),
                query("name", Kind::Text("resize"), "Definitions, separated by commas; `*` stands for any text."),
                query("state", Kind::Text("failed,lost"), "States of jobs and workers, separated by commas."),
                query("worker", Kind::Text("rack-1"), "The number or name of a worker."),
                query("batch", ID, "The number of a batch."),
                query("member_of", ID, "The number of a job that runs on several workers: its own events, and those of its members."),
                query("usage", ID, "The number of a job: an event `usage` tells of new samples of its resources."),
                query("summary", Kind::Switch, "Instead of the events: an event `summary` with their number, at most one a second."),
                query("after", Kind::Text("3.120.4"), "The id of the last event that was received."),
                query("tail", Kind::Number(0, 1_000_000, 10), "Begins with the last N events."),
                query("follow", Kind::Switch, "0: the answer ends with the present."),
                header("Last-Event-ID", Kind::Text("3.120.4"), "The id of the last event that was received."),
            ])
            .answers(200, "A stream of events. The data of a `change` is a CommittedEvent.", vec![text(
                "text/event-stream",
                "id: 3.120.4\nevent: change\ndata: {\"id\":\"3.120.4\",\"at\":\"2026-11-20T13:09:01.180Z\",\"kind\":\"job.ended\"}\n\n",
            )])
            .problems(&[&[ProblemCode::InvalidState, ProblemCode::UnknownName, ProblemCode::EventsGone]]),
    ]
}

pub(super) fn workers() -> Vec<Operation> {
    let verb = |path, id, summary, parameters: &[Parameter]| {
        Operation::post(path, "workers", id, summary)
            .takes(parameters)
            .answers(200, "The worker as it is now.", vec![object::<shapes::Worker>(worker())])
            .problems(&[&ON_WORKER, &NO_BODY])
    };
    let with_reason = |path, id, summary, parameters: &[Parameter]| {
        Operation::post(path, "workers", id, summary)
            .takes(parameters)
            .may_have_body(object::<ReasonBody>(json!({ "reason": "disk swap" })))
            .answers(200, "The worker as it is now.", vec![object::<shapes::Worker>(worker())])
            .problems(&[&ON_WORKER, &JSON_BODY, &[ProblemCode::InvalidReason, ProblemCode::TooLong]])
    };
    vec![
        Operation::get("/api/workers", "workers", "list_workers", "List the workers")
            .takes(&[query("all", Kind::Switch, "Also those that are gone.")])
            .answers(200, "The workers.", vec![list::<shapes::Worker>(worker())]),
        Operation::get("/api/workers/{id}", "workers", "get_worker", "Look at a worker")
            .answers(200, "The worker.", vec![object::<shapes::Worker>(worker())])
            .problems(&[&[ProblemCode::InvalidId, ProblemCode::UnknownWorker]]),
        Operation::patch("/api/workers/{id}", "workers", "change_worker", "Set labels or slots of a worker")
            .has_body(object::<WorkerPatch>(json!({ "slots": 8, "labels": { "zone": "b", "old": null } })))
            .answers(200, "The worker as it is now.", vec![object::<shapes::Worker>(worker())])
            .problems(&[
                &ON_WORKER,
                &JSON_BODY,
                &[ProblemCode::OutOfRange, ProblemCode::InvalidLabel, ProblemCode::TooLong],
            ]),
        Operation::post(
            "/api/workers/{id}/cordon",
            "workers",
            "cordon_worker",
            "Give a worker no further jobs",
        )
        .may_have_body(object::<InterventionBody>(json!({ "reason": "disk swap", "for": "2h" })))
        .answers(200, "The worker as it is now.", vec![object::<shapes::Worker>(worker())])
        .problems(&[
            &ON_WORKER,
            &JSON_BODY,
            &[
                ProblemCode::InvalidReason,
                ProblemCode::TooLong,
                ProblemCode::InvalidDuration,
                ProblemCode::InvalidTime,
            ],
        ]),
        verb("/api/workers/{id}/uncordon", "uncordon_worker", "Give a worker jobs again", &[]),
        with_reason(
            "/api/workers/{id}/drain",
            "drain_worker",
            "Let a worker finish what it has and leave",
            &[query("deadline", Kind::Duration("1h"), "Then running jobs are stopped; at most 30d.")],
        ),
        verb("/api/workers/{id}/revoke", "revoke_worker", "Refuse the secret of a worker for good", &[]),
        verb(
            "/api/workers/{id}/reset",
            "reset_worker",
            "Forget the failures for which a worker is suspect or excluded",
            &[],
        ),
        verb(
            "/api/workers/{id}/stop-unmanaged",
            "stop_unmanaged",
            "Stop attempts that this database never assigned",
            &[
                query("job", ID, "The job of the attempt; absent: all attempts."),
                query("fence", ID, "The fence of the attempt."),
            ],
        ),
        Operation::post(
            "/api/workers/{id}/forget",
            "workers",
            "forget_worker",
            "Remove a worker that is gone",
        )
        .answers(204, "It is forgotten.", Vec::new())
        .problems(&[&ON_WORKER, &NO_BODY]),
        Operation::get("/api/workers/connect", "workers", "connect_worker", "The WebSocket of a worker")
            .answers(101, "The connection speaks the protocol of workers.", Vec::new())
            .problems(&[&[
                ProblemCode::SubprotocolRequired,
                ProblemCode::UpgradeRequired,
                ProblemCode::WorkerRevoked,
                ProblemCode::Draining,
            ]]),
    ]
}

pub(super) fn others() -> Vec<Operation> {
    let target = json!({ "kind": "slack", "host": "hooks.slack.example", "on": ["failed"], "period_ms": 300_000, "signed": false, "output_lines": 30 });
    vec![
        Operation::get("/api/limits", "limits", "list_limits", "Limits that jobs need now")
            .takes(&[query("name", Kind::Text("resize"), "Only those of this definition or group.")])
            .answers(200, "The limits.", vec![list::<shapes::Limit>(json!({
                "kind": "definition", "name": "report", "key": "acme", "limit": 2, "in_use": 2, "waiting": 5, "holders": [7, 9]
            }))]),
        Operation::get("/api/notifications", "notifications", "list_notifications", "Messages about jobs, newest first")
            .takes(&[
                query("name", Kind::Text("report"), "Only those about this definition."),
                query("state", Kind::Word(&["waiting", "delivered", "failed"]), "Only those in this state."),
                query("failing", Kind::Switch, "The last try of each target that did not take its message. Not together with others."),
            ])
            .takes(&PAGE)
            .answers(200, "A page of messages.", vec![list::<shapes::Notification>(json!({
                "id": 7, "definition": "report", "kind": "slack", "host": "hooks.slack.example", "occasion": "failed", "count": 3,
                "first_at": "2026-11-20T01:00:00.120Z", "last_at": "2026-11-20T01:00:09.120Z", "state": "waiting", "tries": 2
            }))])
            .with_headers(LINK)
            .problems(&[&PAGING, &[ProblemCode::InvalidState]]),
        Operation::post("/api/notifications/test", "notifications", "test_notifications", "Send a message to each target of a definition")
            .has_body(object::<TestRequest>(json!({ "definition": "report" })))
            .answers(200, "The targets, with what was wrong.", vec![list::<shapes::TargetTest>(target)])
            .problems(&[&JSON_BODY, &[ProblemCode::UnknownJob, ProblemCode::OutOfScope]]),
        Operation::post("/api/notifications/{id}/send", "notifications", "send_notification", "Send a message now that waits or was given up")
            .answers(200, "The message as it is after the try.", vec![object::<shapes::Notification>(json!({
                "id": 7, "definition": "report", "kind": "slack", "host": "hooks.slack.example", "occasion": "failed", "count": 3,
                "first_at": "2026-11-20T01:00:00.120Z", "last_at": "2026-11-20T01:00:09.120Z", "state": "delivered", "tries": 3
            }))])
            .problems(&[
                &NO_BODY,
                &[ProblemCode::InvalidId, ProblemCode::UnknownNotification, ProblemCode::AlreadyDelivered, ProblemCode::TargetRemoved, ProblemCode::OutOfScope],
            ]),
        Operation::post("/api/notifications/send", "notifications", "send_notifications", "Send all messages that wait or were given up")
            .takes(&[
                query("name", Kind::Text("report"), "Only those about this definition."),
                query("state", Kind::Word(&["waiting", "failed"]), "Only those in this state; absent: both."),
            ])
            .answers(200, "The numbers of messages that are sent now.", vec![object::<shapes::SentNotifications>(json!({
                "waiting": 2, "failed": 1, "without_target": 0, "out_of_scope": 0
            }))])
            .problems(&[&NO_BODY, &[ProblemCode::InvalidState]]),
    ]
}
