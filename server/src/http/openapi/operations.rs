//! Every operation of the API: parameters, bodies, answers and problems. This table is beside the routes, and a test compares both.
//!
//! Examples are read as the types that the handlers write. The fields of the types are described where the types are.

use serde_json::{Value, json};

use super::operation::{
    ID, Kind, Operation, Parameter, Place, any_object, header, list, object, query, text,
};
use crate::http::api::bulk::Selection;
use crate::http::api::notifications::TestRequest;
use crate::http::api::tokens::TokenRequest;
use crate::http::api::workers::WorkerPatch;
use crate::http::middleware::code::Code;
use crate::http::present::shapes;
use crate::http::request::job_request::{JobChanges, JobPatch, Member, Submission};

/// The groups of operations, in the order in which they are shown.
pub(super) const TAGS: [(&str, &str); 10] = [
    ("jobs", "Make jobs, look at them, and change or end them."),
    ("batches", "Jobs that were made together."),
    ("output", "What jobs have written."),
    ("events", "What has changed, as a stream."),
    ("workers", "The machines that run jobs."),
    ("definitions", "The content of jobs.yaml, and its schedules."),
    ("limits", "Limits on jobs at once."),
    ("notifications", "Messages about jobs."),
    ("access", "Tokens and the audit log."),
    ("server", "The server itself."),
];

/// All operations, by their tags.
pub(super) fn all() -> Vec<Operation> {
    [
        jobs(),
        jobs_in_bulk(),
        batches(),
        output(),
        workers(),
        definitions(),
        schedules(),
        others(),
        access(),
        server(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn jobs() -> Vec<Operation> {
    let submitted =
        || object::<shapes::Job>(job()).or_text("text/plain", "x\nlongshore: job 3 failed, exit 3\n");
    vec![
        Operation::post("/api/jobs/{job}", "jobs", "submit_job", "Make a job, or with count or each a batch")
            .path(Kind::Text("resize"), "The name of the definition.")
            .takes(&SUBMIT)
            .takes(&[
                query("as_scheduled", Kind::Switch, "The job gets what a schedule of the definition gives to its jobs."),
                query("schedule", Kind::Text("night"), "With as_scheduled: the id of the schedule."),
            ])
            .may_have_body(object::<Submission>(json!({
                "params": { "size": 640 }, "args": ["--quiet"], "priority": 10, "timeout": "90s", "labels": { "team": "web" }
            })))
            .answers(201, "The job was made. With wait it is the job at its end, with follow its output, and with count or each the batch.", [
                submitted(),
                vec![object::<shapes::Batch>(batch()), object::<shapes::FullJob>(full_job())],
            ].into_iter().flatten().collect())
            .with_headers(&[("location", "The address of the job or batch.")])
            .answers(200, "An earlier request with this Idempotency-Key made the job, or another job has its unique key.", [
                submitted(),
                vec![object::<shapes::Batch>(batch()), object::<shapes::FullJob>(full_job())],
            ].into_iter().flatten().collect())
            .with_headers(&[
                ("idempotent-replay", "`true` for a repeated request."),
                ("unique-duplicate", "`true` if another job has the unique key."),
            ])
            .problems(&[&JSON_BODY, &SUBMISSION, &[Code::UnknownSchedule, Code::TooManyJobs, Code::EmptyBatch, Code::InvalidId]]),
        Operation::get("/api/jobs/{job}", "jobs", "get_job", "Look at a job with its attempts and timeline")
            .path(ID, "The number of the job.")
            .takes(&[query("wait", WAIT, "The server answers when the job has ended, or after this time, at most 10m.")])
            .answers(200, "The job.", vec![object::<shapes::FullJob>(full_job())])
            .problems(&[&ON_JOB]),
        Operation::patch("/api/jobs/{job}", "jobs", "change_job", "Change start or priority of a job that waits")
            .path(ID, "The number of the job.")
            .has_body(object::<JobPatch>(json!({ "priority": 10, "delay": "5m" })))
            .answers(200, "The job as it is now.", vec![object::<shapes::FullJob>(full_job())])
            .problems(&[&ON_JOB, &JSON_BODY, &[
                Code::InvalidTime, Code::InvalidDuration, Code::OutOfRange, Code::AlreadyFinished, Code::NotWaiting,
                Code::OutOfScope, Code::RefusedByStore,
            ]]),
        Operation::post("/api/jobs", "jobs", "submit_jobs", "Make many jobs at once")
            .takes(&[
                query("batch_name", Kind::Text("film 7"), "The name of the batch."),
                query("max_failures", Kind::Number(1, 100_000, 3), "After this many failed members, those that have not started are cancelled."),
                query("require_worker", Kind::Switch, "No job is made if no connected worker can run them now."),
                KEY,
            ])
            .has_body(list::<Member>(json!({ "name": "resize", "args": ["--all"] })))
            .may_have_body(text("application/x-ndjson", "{\"name\":\"resize\"}\n{\"name\":\"resize\",\"args\":[\"--all\"]}\n"))
            .answers(201, "The jobs were made.", vec![object::<shapes::Batch>(batch())])
            .with_headers(&[("location", "The address of the batch.")])
            .answers(200, "An earlier request with this Idempotency-Key made them, or other jobs have their unique keys.", vec![object::<shapes::Batch>(batch())])
            .problems(&[&JSON_BODY, &SUBMISSION, &[Code::TooManyJobs, Code::EmptyBatch]]),
        Operation::get("/api/jobs", "jobs", "list_jobs", "List jobs, newest first")
            .takes(&FILTERS)
            .takes(&PAGE)
            .answers(200, "A page of jobs. With another Accept all jobs that fit.", {
                let mut forms = list::<shapes::Job>(job()).or_text("text/csv", "id,name,state\r\n5,resize,succeeded\r\n");
                forms.push(text("application/x-ndjson", "{\"id\":5,\"name\":\"resize\"}\n"));
                forms
            })
            .with_headers(LINK)
            .problems(&[&FILTERING]),
        Operation::get("/api/jobs/{id}/explain", "jobs", "explain_job", "Why a job is not running, worker by worker")
            .answers(200, "The reason, and a verdict for each worker.", vec![object::<shapes::Explanation>(json!({
                "id": 1, "name": "resize", "state": "queued", "reason": reason(),
                "workers": [{ "worker": worker_ref(), "verdict": "unable", "text": "it is cordoned",
                    "obstacles": [{ "code": "cordoned", "text": "it is cordoned" }] }]
            }))])
            .problems(&[&ON_JOB]),
        Operation::post("/api/jobs/{id}/cancel", "jobs", "cancel_job", "End a job")
            .answers(200, "The job has ended.", vec![object::<shapes::FullJob>(full_job())])
            .answers(202, "Its container is being stopped.", vec![object::<shapes::FullJob>(full_job())])
            .problems(&[&ON_JOB, &NO_BODY, &[Code::AlreadyFinished, Code::OutOfScope, Code::RefusedByStore]]),
        Operation::post("/api/jobs/{id}/release", "jobs", "release_job", "Queue a quarantined job again, or give up an unreachable attempt")
            .answers(200, "The job as it is now.", vec![object::<shapes::FullJob>(full_job())])
            .problems(&[&ON_JOB, &NO_BODY, &[Code::AlreadyFinished, Code::NothingToRelease, Code::OutOfScope, Code::RefusedByStore]]),
        Operation::post("/api/jobs/{id}/retry", "jobs", "retry_job", "Run an ended job again, as a new job")
            .takes(&SUBMIT)
            .takes(&[REVISION])
            .may_have_body(object::<JobChanges>(json!({ "args": ["--all"] })))
            .answers(201, "The new job. With wait it is the job at its end, with follow its output.", [
                submitted(), vec![object::<shapes::FullJob>(full_job())],
            ].into_iter().flatten().collect())
            .with_headers(&[("location", "The address of the new job.")])
            .answers(200, "An earlier request with this Idempotency-Key made the job, or another job has its unique key.", [
                submitted(), vec![object::<shapes::FullJob>(full_job())],
            ].into_iter().flatten().collect())
            .problems(&[&ON_JOB, &JSON_BODY, &SUBMISSION, &[Code::NotFinished, Code::RevisionGone]]),
    ]
}

fn jobs_in_bulk() -> Vec<Operation> {
    let bulk = |path, id, summary| {
        Operation::post(path, "jobs", id, summary)
            .takes(&FILTERS)
            .takes(&[CURSOR, DRY_RUN, KEY])
            .may_have_body(object::<Selection>(json!({ "ids": [12, 13] })))
            .answers(
                200,
                "The number of jobs, and what became of them.",
                vec![object::<shapes::BulkResult>(bulk_result())],
            )
            .problems(&[&FILTERING, &JSON_BODY, &BULK])
    };
    // A definition may have the name of the operation: a request without filters and ids then makes a job of it.
    vec![
        bulk("/api/jobs/cancel", "cancel_jobs", "End the jobs that fit filters, or that are named"),
        bulk("/api/jobs/retry", "retry_jobs", "Run ended jobs again that fit filters, or that are named"),
        bulk(
            "/api/jobs/release",
            "release_jobs",
            "Release quarantined jobs that fit filters, or that are named",
        ),
    ]
}

fn batches() -> Vec<Operation> {
    let verb = |path, id, summary, parameters: &[Parameter]| {
        Operation::post(path, "batches", id, summary)
            .takes(&[DRY_RUN, CURSOR, KEY])
            .takes(parameters)
            .answers(
                200,
                "The number of jobs, and what became of them.",
                vec![object::<shapes::BulkResult>(bulk_result())],
            )
            .problems(&[&NO_BODY, &BULK, &[Code::BatchNotFound, Code::InvalidId, Code::InvalidCursor]])
    };
    vec![
        Operation::get("/api/batches", "batches", "list_batches", "List batches, newest first")
            .takes(&[
                query("name", Kind::Text("film 7"), "The name of the batch."),
                query("state", Kind::Text("waiting,running"), "States, separated by commas: `waiting`, `running`, `succeeded`, `failed` or `cancelled`."),
            ])
            .takes(&PAGE)
            .answers(200, "A page of batches.", vec![list::<shapes::BatchSummary>(batch_summary())])
            .with_headers(LINK)
            .problems(&[&PAGING, &[Code::InvalidState]]),
        Operation::get("/api/batches/{id}", "batches", "get_batch", "Look at a batch with its first failures")
            .takes(&[query("wait", WAIT, "The server answers when the last member has ended, or after this time, at most 10m.")])
            .answers(200, "The batch.", vec![object::<shapes::FullBatch>(batch_summary())])
            .problems(&[&[Code::BatchNotFound, Code::InvalidId]]),
        verb("/api/batches/{id}/cancel", "cancel_batch", "End the members that have not ended", &[]),
        verb("/api/batches/{id}/retry", "retry_batch", "Run the members again that failed, expired or were lost", &[REVISION]),
    ]
}

fn output() -> Vec<Operation> {
    vec![
        Operation::get("/api/jobs/{id}/logs", "output", "get_output", "The output of a job")
            .takes(&[
                query("attempt", Kind::Number(0, u32::MAX as u64, 1), "Only this attempt; absent: the latest one."),
                query("stream", Kind::Word(&["stdout", "stderr"]), "Only one of both streams."),
                query("tail", Kind::Number(0, 1_000_000, 100), "Only the last lines. Not together with offset or Range."),
                query("offset", Kind::Number(0, i64::MAX.unsigned_abs(), 0), "From this byte on."),
                query("follow", Kind::Switch, "The answer goes on until the job has ended."),
                query("encoding", Kind::Word(&["base64"]), "For events: the data is encoded."),
                header("Range", Kind::Text("bytes=0-99"), "A part of the output, in bytes."),
                header("Last-Event-ID", Kind::Text("1:0"), "For events: the id of the last event that was received."),
            ])
            .answers(200, "The output: text, or with its Accept a stream of events.", vec![
                text("text/plain", "x\n"), text("text/event-stream", "event: out\ndata: x\n\n"),
            ])
            .answers(206, "The part that Range asks for.", vec![text("text/plain", "x\n")])
            .with_headers(&[("content-range", "The part and the length of the output.")])
            .problems(&[&ON_JOB, &[Code::UnknownAttempt, Code::OutputRemoved, Code::RangeNotSatisfiable, Code::InvalidCursor]]),
        Operation::get("/api/logs/search", "output", "search_output", "Search in output")
            .takes(&[
                Parameter { place: Place::QueryRequired, ..query("q", Kind::Text("disk full"), "The text, 1 to 1,000 bytes.") },
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
            .problems(&[&FILTERING, &[Code::JobNotFound, Code::Pruned]]),
        Operation::get("/api/events", "events", "stream_events", "What changes, as server-sent events")
            .takes(&[
                query("kind", Kind::Text("job.*"), "Kinds, separated by commas; `*` stands for any text."),
                query("name", Kind::Text("resize"), "Definitions, separated by commas; `*` stands for any text."),
                query("state", Kind::Text("failed,lost"), "States of jobs and workers, separated by commas."),
                query("worker", Kind::Text("rack-1"), "The number or name of a worker."),
                query("batch", ID, "The number of a batch."),
                query("after", Kind::Text("3.120.4"), "The id of the last event that was received."),
                query("tail", Kind::Number(0, 1_000_000, 10), "Begins with so many of the last events."),
                query("follow", Kind::Switch, "0: the answer ends with the present."),
                header("Last-Event-ID", Kind::Text("3.120.4"), "The id of the last event that was received."),
            ])
            .answers(200, "A stream of events. The data of a `change` is a CommittedEvent.", vec![text(
                "text/event-stream",
                "id: 3.120.4\nevent: change\ndata: {\"id\":\"3.120.4\",\"at\":\"2026-11-20T13:09:01.180Z\",\"kind\":\"job.ended\"}\n\n",
            )])
            .problems(&[&[Code::InvalidState, Code::UnknownName, Code::EventsGone]]),
    ]
}

fn workers() -> Vec<Operation> {
    let verb = |path, id, summary, parameters: &[Parameter]| {
        Operation::post(path, "workers", id, summary)
            .takes(parameters)
            .answers(200, "The worker as it is now.", vec![object::<shapes::Worker>(worker())])
            .problems(&[&ON_WORKER, &NO_BODY])
    };
    vec![
        Operation::get("/api/workers", "workers", "list_workers", "List the workers")
            .takes(&[query("all", Kind::Switch, "Also those that are gone.")])
            .answers(200, "The workers.", vec![list::<shapes::Worker>(worker())]),
        Operation::get("/api/workers/{id}", "workers", "get_worker", "Look at a worker")
            .answers(200, "The worker.", vec![object::<shapes::Worker>(worker())])
            .problems(&[&[Code::InvalidId, Code::UnknownWorker]]),
        Operation::patch("/api/workers/{id}", "workers", "change_worker", "Set labels or slots of a worker")
            .has_body(object::<WorkerPatch>(json!({ "slots": 8, "labels": { "zone": "b", "old": null } })))
            .answers(200, "The worker as it is now.", vec![object::<shapes::Worker>(worker())])
            .problems(&[&ON_WORKER, &JSON_BODY, &[Code::OutOfRange, Code::InvalidLabel, Code::TooLong]]),
        verb("/api/workers/{id}/cordon", "cordon_worker", "Give a worker no further jobs", &[]),
        verb("/api/workers/{id}/uncordon", "uncordon_worker", "Give a worker jobs again", &[]),
        verb(
            "/api/workers/{id}/drain",
            "drain_worker",
            "Let a worker finish what it has and leave",
            &[query("deadline", Kind::Duration("1h"), "Then running jobs are stopped; at most 30d.")],
        ),
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
            .problems(&[&[Code::SubprotocolRequired, Code::UpgradeRequired, Code::Draining]]),
    ]
}

fn definitions() -> Vec<Operation> {
    vec![
        Operation::get("/api/definitions", "definitions", "list_definitions", "List the definitions")
            .takes(&[query("tag", Kind::Text("nightly"), "Only those with this tag.")])
            .answers(200, "The definitions, by name.", vec![list::<shapes::Definition>(definition())])
            .with_headers(&[("etag", "The revision of all definitions.")]),
        Operation::get("/api/definitions/{name}", "definitions", "get_definition", "Look at a definition with its schedules")
            .answers(200, "The definition.", vec![object::<shapes::Definition>(definition())])
            .problems(&[&[Code::UnknownJob]]),
        Operation::post("/api/definitions/plan", "definitions", "plan_reload", "What a reload of this jobs file would change")
            .has_body(text("application/yaml", "version: 1\njobs:\n  resize:\n    image: alpine\n    command: [echo, x]\n"))
            .answers(200, "The differences. Nothing was changed.", vec![object::<shapes::Plan>(json!({
                "current_revision": REVISION_EXAMPLE, "revision": REVISION_EXAMPLE, "added": [{ "name": "resize", "queued": 0 }],
                "removed": [], "changed": [], "unchanged": 3, "warnings": []
            }))])
            .problems(&[&NO_BODY, &[Code::InvalidJobsFile, Code::InvalidPolicy]]),
        Operation::post("/api/definitions/reload", "definitions", "reload_definitions", "Read jobs.yaml again")
            .takes(&[query("expect", Kind::Text(REVISION_EXAMPLE), "The revision that the definitions must have.")])
            .answers(200, "What has changed.", vec![object::<shapes::Reloaded>(json!({
                "definitions": 4, "revision": REVISION_EXAMPLE, "added": ["resize"], "changed": [], "removed": [], "warnings": []
            }))])
            .problems(&[&NO_BODY, &[Code::InvalidJobsFile, Code::InvalidPolicy, Code::RevisionMismatch, Code::Draining]]),
    ]
}

fn schedules() -> Vec<Operation> {
    let pause = |path, id, summary, parameters: &[Parameter]| {
        Operation::post(path, "definitions", id, summary)
            .takes(parameters)
            .answers(204, "It is done.", Vec::new())
            .problems(&[
                &NO_BODY,
                &[Code::UnknownSchedule, Code::UnknownJob, Code::OutOfScope, Code::RefusedByStore],
            ])
    };
    let one = [query("schedule", Kind::Text("night"), "Only the schedule with this id.")];
    vec![
        Operation::get("/api/schedules", "definitions", "list_schedules", "List the schedules with their next slots")
            .takes(&[
                query("name", Kind::Text("resize"), "Only those of this definition."),
                query("next", Kind::Number(1, 100, 5), "The number of slots."),
            ])
            .answers(200, "The schedules.", vec![list::<shapes::Schedule>(json!({
                "name": "nightly", "id": "night", "rule": "cron 0 2 * * *", "description": "every day at 02:00",
                "timezone": "Europe/Berlin", "state": "active", "next": ["2026-11-21T01:00:00.000Z"]
            }))])
            .problems(&[&[Code::InvalidLimit, Code::UnknownJob]]),
        Operation::get("/api/definitions/{name}/fires", "definitions", "list_fires", "What became of the slots of schedules, newest first")
            .takes(&PAGE)
            .answers(200, "A page of the ledger.", vec![list::<shapes::Fire>(json!({
                "schedule": "night", "from": "2026-11-20T01:00:00.000Z", "to": "2026-11-20T01:00:00.000Z", "count": 1,
                "verdict": "fired", "job": 5, "decided_at": "2026-11-20T01:00:00.120Z", "lateness_ms": 120
            }))])
            .with_headers(LINK)
            .problems(&[&PAGING, &[Code::UnknownJob]]),
        Operation::post("/api/definitions/{name}/backfill", "definitions", "backfill", "Make the jobs of past slots that have none")
            .takes(&[
                Parameter { place: Place::QueryRequired, ..query("from", Kind::Instant, "The beginning of the range.") },
                query("to", Kind::Instant, "The end of the range; absent: now."),
                query("schedule", Kind::Text("night"), "The id of the schedule, if there are several."),
                query("interval", Kind::Duration("5m"), "The time between the starts of two jobs, at most 24h."),
                DRY_RUN,
            ])
            .answers(200, "There was nothing to make, or it was a dry run.", vec![object::<shapes::Backfill>(backfill("open"))])
            .answers(201, "The jobs were made.", vec![object::<shapes::Backfill>(backfill("backfilled"))])
            .problems(&[&NO_BODY, &SUBMISSION, &[Code::MissingField, Code::UnknownSchedule, Code::TooManyJobs]]),
        pause("/api/definitions/{name}/pause", "pause_definition", "Pause the schedules of a definition", &one),
        pause("/api/definitions/{name}/resume", "resume_definition", "Resume the schedules of a definition", &one),
        pause("/api/schedules/pause", "pause_all", "Pause all schedules", &[]),
        pause("/api/schedules/resume", "resume_all", "Resume all schedules", &[]),
    ]
}

fn others() -> Vec<Operation> {
    let target = json!({ "kind": "slack", "host": "hooks.slack.example", "on": ["failed"], "period_ms": 300_000, "signed": false });
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
            .problems(&[&PAGING, &[Code::InvalidState]]),
        Operation::post("/api/notifications/test", "notifications", "test_notifications", "Send a message to each target of a definition")
            .has_body(object::<TestRequest>(json!({ "definition": "report" })))
            .answers(200, "The targets, with what was wrong.", vec![list::<shapes::TargetTest>(target)])
            .problems(&[&JSON_BODY, &[Code::UnknownName, Code::OutOfScope]]),
    ]
}

fn access() -> Vec<Operation> {
    let token = json!({
        "name": "ci", "role": "submitter", "definitions": ["nightly-*"], "state": "valid", "created_at": "2026-11-20T13:09:01.177Z"
    });
    let mut new = token.clone();
    new["token"] = "longshore_3_".into();
    vec![
        Operation::get("/api/tokens", "access", "list_tokens", "List the tokens")
            .answers(200, "The tokens, without their texts.", vec![list::<shapes::Token>(token.clone())]),
        Operation::post("/api/tokens", "access", "create_token", "Make a token")
            .has_body(object::<TokenRequest>(json!({ "name": "ci", "role": "submitter", "definitions": ["nightly-*"], "expires": "90d" })))
            .answers(201, "The token. Its text is shown only here.", vec![object::<shapes::NewToken>(new)])
            .problems(&[&JSON_BODY, &[Code::OutOfRange, Code::InvalidDuration, Code::TokenNameTaken, Code::Draining]]),
        Operation::post("/api/tokens/{name}/revoke", "access", "revoke_token", "Revoke a token")
            .path(Kind::Text("ci"), "The name of the token.")
            .answers(200, "The token as it is now.", vec![object::<shapes::Token>(token)])
            .problems(&[&NO_BODY, &[Code::UnknownToken, Code::Draining]]),
        Operation::get("/api/audit", "access", "list_audit", "Requests that were to change something, newest first")
            .takes(&[
                query("by", Kind::Text("ci"), "The name of the token."),
                query("path", Kind::Text("/api/workers"), "A text in the path."),
                query("since", Kind::Instant, "Answered at or after this instant."),
                query("refused", Kind::Switch, "Only refused requests."),
            ])
            .takes(&PAGE)
            .answers(200, "A page of the audit log.", vec![list::<shapes::AuditEntry>(json!({
                "id": 7, "from": "2026-11-20T13:09:01.177Z", "to": "2026-11-20T13:09:01.177Z", "count": 1, "token": "ci",
                "role": "submitter", "address": "192.0.2.17", "method": "POST", "target": "/api/workers/3/drain", "status": 403,
                "problem": "forbidden", "request_id": "7aa6e6d9-14"
            }))])
            .with_headers(LINK)
            .problems(&[&PAGING]),
    ]
}

fn server() -> Vec<Operation> {
    vec![
        Operation::get("/healthz", "server", "is_alive", "Is the process alive?").answers(
            200,
            "It answers.",
            vec![text("text/plain", "ok\n")],
        ),
        Operation::get("/readyz", "server", "is_ready", "Does the server take requests?")
            .answers(200, "It does. Further lines are warnings.", vec![text("text/plain", "ready\n")])
            .problems(&[&[Code::Draining]]),
        Operation::get("/version", "server", "get_version", "The version of the server").answers(
            200,
            "The version.",
            vec![object::<shapes::Version>(json!({
                "name": "longshore", "version": "0.1.0", "protocol_lowest": 1, "protocol_highest": 1
            }))],
        ),
        Operation::get("/metrics", "server", "get_metrics", "Metrics for Prometheus").answers(
            200,
            "The metrics.",
            vec![text("application/openmetrics-text", "longshore_jobs_total 3\n# EOF\n")],
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

/// The parameters of a submission.
const SUBMIT: [Parameter; 4] = [
    query(
        "wait",
        WAIT,
        "The server answers when the job has ended, or after this time, at most 10m. Not together with follow.",
    ),
    query(
        "follow",
        Kind::Switch,
        "The answer is the output of the job as it arrives, and then a line with the outcome.",
    ),
    query("require_worker", Kind::Switch, "No job is made if no connected worker can run it now."),
    KEY,
];

const KEY: Parameter = header(
    "Idempotency-Key",
    Kind::Text("4f1c"),
    "1 to 255 visible ASCII characters; makes the request safe to repeat.",
);
const REVISION: Parameter = query(
    "revision",
    Kind::Word(&["current", "original"]),
    "The definition as it is now, or as it was when the job was made.",
);
const DRY_RUN: Parameter = query("dry_run", Kind::Switch, "Nothing is done, only counted.");
const CURSOR: Parameter =
    query("cursor", Kind::Text("AAAAAAAAAAT7C-UfxNzPfw"), "Where to go on: from the answer before.");
const PAGE: [Parameter; 2] = [query("limit", Kind::Number(1, 500, 100), "The number of entries."), CURSOR];
const WAIT: Kind = Kind::Duration("30s");
const LINK: &[(&str, &str)] = &[("link", "The next page, if there is one: `<…>; rel=\"next\"`.")];

/// The filters that select jobs.
const FILTERS: [Parameter; 15] = [
    query("state", Kind::Text("queued,running"), "States, separated by commas."),
    query("name", Kind::Text("resize"), "Definitions, separated by commas; `*` stands for any text."),
    query("worker", Kind::Text("rack-1"), "The number or name of the worker of the latest attempt."),
    query("label", Kind::Text("team=web"), "A label, as name=value."),
    query("batch", ID, "The number of the batch."),
    query("revision", Kind::Text(REVISION_EXAMPLE), "The revision of the definition."),
    query("outcome", Kind::Text("failed"), "Outcomes of the latest attempt, separated by commas."),
    query("exit_code", Kind::Integer, "The exit code of the latest attempt."),
    query("since", Kind::Instant, "Accepted at or after this instant."),
    query("until", Kind::Instant, "Accepted before this instant."),
    query("accepted_since", Kind::Instant, "The same as since."),
    query("accepted_until", Kind::Instant, "The same as until."),
    query("ended_since", Kind::Instant, "Ended at or after this instant."),
    query("ended_until", Kind::Instant, "Ended before this instant."),
    query("text", Kind::Text("disk full"), "A text in the reason of the end."),
];

/// Problems of a body in JSON.
const JSON_BODY: [Code; 9] = [
    Code::InvalidJson,
    Code::DuplicateKey,
    Code::TooDeep,
    Code::UnsupportedMediaType,
    Code::UnknownField,
    Code::InvalidType,
    Code::MissingField,
    Code::BodyTooLarge,
    Code::RequestTimeout,
];

/// Problems of a request that has no body, or one that is not JSON.
const NO_BODY: [Code; 2] = [Code::BodyTooLarge, Code::RequestTimeout];

/// Problems of a request that makes jobs.
const SUBMISSION: [Code; 29] = [
    Code::UnknownJob,
    Code::DefinitionDisabled,
    Code::ForbiddenByPolicy,
    Code::OutOfScope,
    Code::InvalidDuration,
    Code::InvalidTime,
    Code::OutOfRange,
    Code::InvalidEnvName,
    Code::ReservedName,
    Code::EnvNewlineUnsupported,
    Code::NulByte,
    Code::TooLong,
    Code::InvalidLabel,
    Code::InvalidParam,
    Code::OverrideNotAllowed,
    Code::InvalidBatch,
    Code::InvalidIdempotencyKey,
    Code::IdempotencyMismatch,
    Code::JobNotFound,
    Code::Pruned,
    Code::DuplicateJob,
    Code::UniqueBatch,
    Code::QueueFull,
    Code::TooManyQueued,
    Code::LimitFull,
    Code::NoWorker,
    Code::Draining,
    Code::StorageLow,
    Code::RefusedByStore,
];

const ON_JOB: [Code; 3] = [Code::InvalidId, Code::JobNotFound, Code::Pruned];
const ON_WORKER: [Code; 6] = [
    Code::InvalidId,
    Code::UnknownWorker,
    Code::WorkerAway,
    Code::WorkerConnected,
    Code::UnknownAttempt,
    Code::RefusedByStore,
];
const PAGING: [Code; 2] = [Code::InvalidLimit, Code::InvalidCursor];
const FILTERING: [Code; 4] = [Code::InvalidLimit, Code::InvalidCursor, Code::InvalidState, Code::UnknownName];
const BULK: [Code; 7] = [
    Code::TooLong,
    Code::InvalidIdempotencyKey,
    Code::Draining,
    Code::StorageLow,
    Code::RefusedByStore,
    Code::OutOfScope,
    Code::MissingField,
];

const REVISION_EXAMPLE: &str = "8230dfc31a74e134241c862845388210";

fn reason() -> Value {
    json!({ "code": "no_worker", "text": "no worker is connected" })
}

fn worker_ref() -> Value {
    json!({ "id": 1, "name": "rack-1" })
}

fn job() -> Value {
    json!({
        "id": 1, "name": "resize", "revision": REVISION_EXAMPLE, "state": "queued", "queuing": true, "running": false, "success": false,
        "pending_reason": reason(), "priority": 0, "created_at": "2026-11-20T13:08:43.055Z", "due_at": "2026-11-20T13:08:43.055Z",
        "attempt_count": 0
    })
}

fn full_job() -> Value {
    json!({
        "id": 1, "name": "resize", "revision": REVISION_EXAMPLE, "state": "succeeded", "queuing": false, "running": false, "success": true,
        "priority": 0, "created_at": "2026-11-20T13:08:43.055Z", "due_at": "2026-11-20T13:08:43.055Z", "attempt_count": 1,
        "worker": worker_ref(), "outcome": "succeeded", "exit_code": 0, "args": ["--quiet"], "environment": [],
        "attempts": [{ "number": 1, "fence": 1, "worker": worker_ref(), "assigned_at": "2026-11-20T13:08:43.060Z", "outcome": "succeeded" }],
        "timeline": [{ "at": "2026-11-20T13:08:43.055Z", "event": "accepted" }], "late_reports": []
    })
}

fn batch() -> Value {
    json!({ "batch": 4, "count": 2, "first": 4, "last": 5, "created_at": "2026-11-20T13:09:01.177Z" })
}

fn batch_summary() -> Value {
    json!({
        "id": 6, "name": "film 7", "state": "running", "created_at": "2026-11-20T13:09:01.177Z", "count": 1000,
        "counts": { "scheduled": 0, "queued": 741, "assigned": 4, "running": 4, "quarantined": 0, "succeeded": 250, "failed": 1,
            "cancelled": 0, "expired": 0, "lost": 0 },
        "progress": 0.251, "removed": 0
    })
}

fn bulk_result() -> Value {
    json!({ "dry_run": false, "matched": 3, "done": 2, "stopping": 1, "refused": 0 })
}

fn worker() -> Value {
    json!({
        "id": 1, "name": "rack-1", "working": false, "connected": true, "state": "ready", "slots": 4, "busy": 0,
        "since": "2026-11-20T13:08:43.055Z", "runtimes": [{ "name": "docker", "available": true }]
    })
}

fn definition() -> Value {
    json!({
        "name": "resize", "revision": REVISION_EXAMPLE, "enabled": true, "runtime": "docker", "image": "alpine", "command": ["echo", "x"],
        "retry": { "max": 0, "when": ["failed"], "on": "any", "backoff_kind": "exponential", "backoff_initial_ms": 1000,
            "backoff_max_ms": 60000, "backoff_factor_milli": 2000, "backoff_jitter_milli": 1000 },
        "on_lost_timeout_ms": null, "queue_timeout_ms": null, "quarantine_timeout_ms": null
    })
}

fn backfill(result: &str) -> Value {
    json!({
        "name": "nightly", "schedule": "night", "dry_run": result == "open", "count": 1,
        "slots": [{ "slot": "2026-11-20T01:00:00.000Z", "result": result }]
    })
}
