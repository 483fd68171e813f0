//! Operations on jobs and batches.

use serde_json::json;

use super::super::operation::{ID, Kind, Operation, list, object, query, text};
use super::examples::{
    batch, batch_explanation, batch_summary, bulk_result, full_job, job, reason, replayed_batch,
    retried_batch, worker_ref,
};
use super::settings::{resume, with_reason};
use super::shared::{
    BULK, CLEAR, CURSOR, DRY_RUN, FILTERING, FILTERS, JSON_BODY, KEY, LINK, MEMBERS, NO_BODY, ON_JOB, PAGE,
    PAGING, REVISION, SUBMISSION, SUBMIT, WAIT,
};
use crate::http::api::bulk::selection::{AcknowledgedSelection, Selection};
use crate::http::middleware::code::ProblemCode;
use crate::http::present::shapes;
use crate::http::request::batch_patch::BatchPatch;
use crate::http::request::job_request::{JobChanges, JobPatch, Member, Submission};
use crate::http::request::reason::ReasonBody;

pub(super) fn jobs() -> Vec<Operation> {
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
                vec![object::<shapes::Batch>(replayed_batch()), object::<shapes::FullJob>(full_job())],
            ].into_iter().flatten().collect())
            .with_headers(&[
                ("idempotent-replay", "`true` for a repeated request."),
                ("unique-duplicate", "`true` if another job has the unique key."),
            ])
            .problems(&[&JSON_BODY, &SUBMISSION, &[ProblemCode::UnknownSchedule, ProblemCode::TooManyJobs, ProblemCode::EmptyBatch, ProblemCode::InvalidId]]),
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
                ProblemCode::InvalidTime, ProblemCode::InvalidDuration, ProblemCode::OutOfRange, ProblemCode::AlreadyFinished, ProblemCode::NotWaiting,
                ProblemCode::OutOfScope, ProblemCode::RefusedByStore,
            ]]),
        Operation::post("/api/jobs", "jobs", "submit_jobs", "Make many jobs at once")
            .takes(&[
                query("batch_name", Kind::Text("film 7"), "The name of the batch."),
                query("max_failures", Kind::Number(1, 100_000, 3), "After this many failed members, those that have not started are cancelled."),
                query("concurrency", Kind::Number(1, 100_000, 10), "Members that may be on workers at once."),
                query("batch_unique_key", Kind::Text("ci/main"), "The unique key of the batch: at most one batch that has not ended has it."),
                query("on_duplicate", Kind::Word(&["return", "reject", "replace"]), "The answer if another batch has the key: that batch, 409, or a new batch, for which the other one is cancelled."),
                query("require_worker", Kind::Switch, "No job is made if no connected worker can run them now."),
                KEY,
            ])
            .has_body(list::<Member>(json!({ "name": "resize", "args": ["--all"] })))
            .may_have_body(text("application/x-ndjson", "{\"name\":\"resize\"}\n{\"name\":\"resize\",\"args\":[\"--all\"]}\n"))
            .answers(201, "The jobs were made.", vec![object::<shapes::Batch>(batch())])
            .with_headers(&[("location", "The address of the batch.")])
            .answers(200, "An earlier request with this Idempotency-Key made them, or other jobs, or another batch, have their unique keys.", vec![object::<shapes::Batch>(replayed_batch())])
            .problems(&[&JSON_BODY, &SUBMISSION, &[ProblemCode::TooManyJobs, ProblemCode::EmptyBatch]]),
        Operation::get("/api/jobs", "jobs", "list_jobs", "List jobs, newest first")
            .takes(&FILTERS)
            .takes(&PAGE)
            .takes(&[
                query("results", Kind::Switch, "Each job has its parameters, its result, and as a member of a batch its position."),
                query("order", Kind::Word(&["newest", "oldest"]), "The newest job first, or the first member of `batch`."),
                query("latest", Kind::Switch, "In the place of each member of `batch` its last retry, if it has any; `state` and `outcome` select these."),
            ])
            .answers(200, "A page of jobs. With another Accept all jobs that fit.", {
                let mut forms = list::<shapes::ListedJob>(job()).or_text("text/csv", "id,name,state\r\n5,resize,succeeded\r\n");
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
        Operation::get("/api/jobs/{id}/usage", "jobs", "get_usage", "The CPU time and memory of an attempt over time")
            .takes(&[query("attempt", Kind::Number(1, 1_000_000, 2), "The number of the attempt; the last one without it.")])
            .answers(200, "The points that the server remembers; none if nothing was measured lately.", vec![object::<shapes::JobUsage>(json!({
                "attempt": 1,
                "points": [
                    { "at": "2026-01-31T02:00:01.000Z", "cpu_ms": 410, "memory_bytes": 14_680_064 },
                    { "at": "2026-01-31T02:00:03.000Z", "cpu_ms": 2_390, "memory_bytes": 31_457_280 }
                ]
            }))])
            .problems(&[&ON_JOB, &[ProblemCode::UnknownAttempt]]),
        Operation::post("/api/jobs/{id}/cancel", "jobs", "cancel_job", "End a job")
            .answers(200, "The job has ended.", vec![object::<shapes::FullJob>(full_job())])
            .answers(202, "Its container is being stopped.", vec![object::<shapes::FullJob>(full_job())])
            .problems(&[&ON_JOB, &NO_BODY, &[ProblemCode::AlreadyFinished, ProblemCode::OutOfScope, ProblemCode::RefusedByStore]]),
        Operation::post("/api/jobs/{id}/release", "jobs", "release_job", "Queue a quarantined job again, or give up an unreachable attempt")
            .answers(200, "The job as it is now.", vec![object::<shapes::FullJob>(full_job())])
            .problems(&[&ON_JOB, &NO_BODY, &[ProblemCode::AlreadyFinished, ProblemCode::NothingToRelease, ProblemCode::OutOfScope, ProblemCode::RefusedByStore]]),
        Operation::post("/api/jobs/{id}/acknowledge", "jobs", "acknowledge_job", "Say that the failure of a job is dealt with")
            .may_have_body(object::<ReasonBody>(json!({ "reason": "disk swap" })))
            .answers(200, "The job as it is now. The first acknowledgement stays.", vec![object::<shapes::FullJob>(full_job())])
            .problems(&[&ON_JOB, &JSON_BODY, &[ProblemCode::NotFailed, ProblemCode::InvalidReason, ProblemCode::TooLong, ProblemCode::OutOfScope, ProblemCode::Draining]]),
        Operation::delete("/api/jobs/{id}/acknowledge", "jobs", "unacknowledge_job", "Take the acknowledgement of a job back")
            .answers(200, "The job as it is now. Unless it was retried, it is unresolved again.", vec![object::<shapes::FullJob>(full_job())])
            .problems(&[&ON_JOB, &NO_BODY, &[ProblemCode::NotFailed, ProblemCode::OutOfScope, ProblemCode::Draining]]),
        Operation::post("/api/jobs/{id}/retry", "jobs", "retry_job", "Run an ended job again, as a new job")
            .takes(&SUBMIT)
            .takes(&[REVISION, MEMBERS, CLEAR])
            .may_have_body(object::<JobChanges>(json!({ "args": ["--all"] })))
            .answers(201, "The new job. With wait it is the job at its end, with follow its output.", [
                submitted(), vec![object::<shapes::FullJob>(full_job())],
            ].into_iter().flatten().collect())
            .with_headers(&[("location", "The address of the new job.")])
            .answers(200, "An earlier request with this Idempotency-Key made the job, or another job has its unique key.", [
                submitted(), vec![object::<shapes::FullJob>(full_job())],
            ].into_iter().flatten().collect())
            .problems(&[&ON_JOB, &JSON_BODY, &SUBMISSION, &[ProblemCode::NotFinished, ProblemCode::RevisionGone, ProblemCode::TooManyJobs]]),
        Operation::get("/api/jobs/{id}/pipeline", "jobs", "get_pipeline", "The jobs before and after a job")
            .answers(200, "The jobs that come after one another.", vec![object::<shapes::Pipeline>(json!({
                "jobs": [
                    { "id": 1, "name": "extract", "state": "succeeded" },
                    { "id": 2, "name": "load", "state": "running",
                        "after": [{ "job": 1, "name": "extract", "outcome": "succeeded", "state": "succeeded" }] }
                ]
            }))])
            .problems(&[&ON_JOB]),
        Operation::post("/api/jobs/{id}/pipeline/retry", "jobs", "retry_pipeline", "Run the jobs of a pipeline again that have not succeeded")
            .takes(&[REVISION, KEY])
            .answers(201, "The jobs were made.", vec![object::<shapes::Batch>(batch())])
            .with_headers(&[("location", "The address of the batch.")])
            .answers(200, "An earlier request with this Idempotency-Key made them, or other jobs have their unique keys.", vec![object::<shapes::Batch>(replayed_batch())])
            .problems(&[&ON_JOB, &NO_BODY, &SUBMISSION, &[ProblemCode::NotFinished, ProblemCode::RevisionGone, ProblemCode::TooManyJobs, ProblemCode::UnknownField, ProblemCode::UnsupportedMediaType]]),
    ]
}

pub(super) fn jobs_in_bulk() -> Vec<Operation> {
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
        Operation::post(
            "/api/jobs/acknowledge",
            "jobs",
            "acknowledge_jobs",
            "Say that the failures that fit filters, or that are named, are dealt with",
        )
        .takes(&FILTERS)
        .takes(&[CURSOR, DRY_RUN, KEY])
        .takes(&[query("undo", Kind::Switch, "Take the acknowledgements back instead.")])
        .may_have_body(object::<AcknowledgedSelection>(json!({ "ids": [12, 13], "reason": "disk swap" })))
        .answers(
            200,
            "The number of jobs, and what became of them.",
            vec![object::<shapes::BulkResult>(bulk_result())],
        )
        .problems(&[&FILTERING, &JSON_BODY, &BULK, &[ProblemCode::InvalidReason]]),
    ]
}

pub(super) fn batches() -> Vec<Operation> {
    vec![
        Operation::get("/api/batches", "batches", "list_batches", "List batches, newest first")
            .takes(&[
                query("name", Kind::Text("film*"), "The name of the batch; `*` stands for any text."),
                query("submitted_by", Kind::Text("ci"), "The name of the token or user that made it."),
                query("label", Kind::Text("team=film"), "A label that a member has."),
                query("unique_key", Kind::Text("ci/main"), "The unique key of the batch."),
                query("state", Kind::Text("waiting,running"), "States, separated by commas: `waiting`, `running`, `succeeded`, `failed` or `cancelled`."),
            ])
            .takes(&PAGE)
            .answers(200, "A page of batches.", vec![list::<shapes::BatchSummary>(batch_summary())])
            .with_headers(LINK)
            .problems(&[&PAGING, &[ProblemCode::InvalidState]]),
        Operation::get("/api/batches/{id}", "batches", "get_batch", "Look at a batch with its first failures")
            .takes(&[query("wait", WAIT, "The server answers when the last member has ended, or after this time, at most 10m.")])
            .answers(200, "The batch.", vec![object::<shapes::FullBatch>(batch_summary())])
            .problems(&[&[ProblemCode::BatchNotFound, ProblemCode::InvalidId]]),
        Operation::get("/api/batches/{id}/explain", "batches", "explain_batch", "Why the members of a batch wait")
            .answers(200, "The batch, its limit, and its first waiting members by reason.", vec![object::<shapes::BatchExplanation>(batch_explanation())])
            .problems(&[&[ProblemCode::BatchNotFound, ProblemCode::InvalidId]]),
        Operation::patch("/api/batches/{id}", "batches", "change_batch", "Change the limits of a batch that has not ended")
            .has_body(object::<BatchPatch>(json!({ "concurrency": 20, "max_failures": null })))
            .answers(200, "The batch as it is now.", vec![object::<shapes::FullBatch>(batch_summary())])
            .problems(&[
                &JSON_BODY,
                &[ProblemCode::BatchNotFound, ProblemCode::InvalidId, ProblemCode::AlreadyFinished, ProblemCode::OutOfScope, ProblemCode::OutOfRange, ProblemCode::MissingField, ProblemCode::RefusedByStore],
            ]),
        Operation::post("/api/batches/{id}/cancel", "batches", "cancel_batch", "End the members that have not ended")
            .takes(&[DRY_RUN, CURSOR])
            .answers(
                200,
                "The number of jobs, and what became of them.",
                vec![object::<shapes::BulkResult>(bulk_result())],
            )
            .problems(&[&NO_BODY, &BULK, &[ProblemCode::BatchNotFound, ProblemCode::InvalidId, ProblemCode::InvalidCursor]]),
        with_reason(resume("/api/batches/{id}/pause", "batches", "pause_batch", "Let the waiting members of a batch wait on"))
            .problems(&[&[ProblemCode::BatchNotFound, ProblemCode::InvalidId, ProblemCode::AlreadyFinished, ProblemCode::TooManyPaused]]),
        resume("/api/batches/{id}/resume", "batches", "resume_batch", "Let the members of a paused batch start")
            .problems(&[&NO_BODY, &[ProblemCode::BatchNotFound, ProblemCode::InvalidId, ProblemCode::AlreadyFinished]]),
        Operation::post("/api/batches/{id}/retry", "batches", "retry_batch", "Make a batch of the members that have not succeeded")
            .takes(&[
                query("batch_name", Kind::Text("film 7"), "The name of the new batch, instead of that of this one."),
                query("max_failures", Kind::Number(1, 100_000, 3), "Instead of that of this batch."),
                query("concurrency", Kind::Number(1, 100_000, 10), "Instead of that of this batch."),
                query("cancelled", Kind::Switch, "Also repeat the members that somebody cancelled, one by one or with the batch."),
            ])
            .takes(&[REVISION, DRY_RUN, KEY])
            .answers(201, "The new batch.", vec![object::<shapes::RetriedBatch>(retried_batch())])
            .with_headers(&[("location", "The address of the new batch.")])
            .answers(
                200,
                "No batch was made: there is none to make, it was only counted, or an earlier request with this key has made it.",
                vec![object::<shapes::RetriedBatch>(retried_batch())],
            )
            .problems(&[&NO_BODY, &SUBMISSION, &[ProblemCode::BatchNotFound, ProblemCode::InvalidId, ProblemCode::TooManyJobs]]),
    ]
}
