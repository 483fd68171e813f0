//! Parameters and problems that several operations have.

use super::super::operation::{ID, Kind, Parameter, header, query};
use super::examples::REVISION_EXAMPLE;
use crate::http::middleware::code::ProblemCode;

/// The parameters of a submission.
pub(super) const SUBMIT: [Parameter; 4] = [
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

pub(super) const KEY: Parameter = header(
    "Idempotency-Key",
    Kind::Text("4f1c"),
    "1 to 255 visible ASCII characters; makes the request safe to repeat.",
);
pub(super) const REVISION: Parameter = query(
    "revision",
    Kind::Word(&["current", "original"]),
    "The definition as it is now, or as it was when the job was made.",
);
pub(super) const MEMBERS: Parameter = query(
    "members",
    Kind::Word(&["all", "failed"]),
    "Of a job on several workers: all members are repeated, or those that did not succeed.",
);
pub(super) const CLEAR: Parameter = query(
    "clear",
    Kind::Text("args,params.size"),
    "Fields of the old job that the new one does not have, separated by commas: `args`, `environment`, `input`, `labels`, `params`, `priority`, `timeout` or `params.NAME`.",
);
pub(super) const DRY_RUN: Parameter = query("dry_run", Kind::Switch, "Nothing is done, only counted.");
pub(super) const CURSOR: Parameter =
    query("cursor", Kind::Text("AAAAAAAAAAT7C-UfxNzPfw"), "Where to go on: from the answer before.");
pub(super) const PAGE: [Parameter; 2] =
    [query("limit", Kind::Number(1, 500, 100), "The number of entries."), CURSOR];
pub(super) const WAIT: Kind = Kind::Duration("30s");
pub(super) const LINK: &[(&str, &str)] = &[("link", "The next page, if there is one: `<…>; rel=\"next\"`.")];

/// The filters that select jobs.
pub(super) const FILTERS: [Parameter; 21] = [
    query("state", Kind::Text("queued,running"), "States, separated by commas."),
    query("name", Kind::Text("resize"), "Definitions, separated by commas; `*` stands for any text."),
    query("worker", Kind::Text("rack-1"), "The number or name of the worker of the latest attempt."),
    query("label", Kind::Text("team=web"), "A label, as name=value."),
    query("batch", ID, "The number of the batch."),
    query(
        "index",
        Kind::Text("3,7-9"),
        "Of that batch, members with these indexes: numbers and ranges, separated by commas.",
    ),
    query(
        "schedule",
        Kind::Text("nightly"),
        "The id of the schedule that has made them, or the jobs that they retry.",
    ),
    query("submitted_by", Kind::Text("ci"), "The token, or `proxy:` and the user, that has made them."),
    query("member_of", ID, "The job that runs on several workers and of which they are members."),
    query("revision", Kind::Text(REVISION_EXAMPLE), "The revision of the definition."),
    query("outcome", Kind::Text("failed"), "Outcomes of the latest attempt, separated by commas."),
    query("exit_code", Kind::Integer, "The exit code of the latest attempt."),
    query("since", Kind::Instant, "Accepted at or after this instant. A date is its midnight in UTC."),
    query("until", Kind::Instant, "Accepted before this instant. A date, in UTC, is included."),
    query("accepted_since", Kind::Instant, "The same as since."),
    query("accepted_until", Kind::Instant, "The same as until."),
    query("ended_since", Kind::Instant, "Ended at or after this instant; a date as in since."),
    query("ended_until", Kind::Instant, "Ended before this instant; a date as in until."),
    query("text", Kind::Text("disk full"), "A text in the reason of the end."),
    query(
        "unresolved",
        Kind::Word(&["1"]),
        "Failures that nobody has dealt with: not retried, and not acknowledged.",
    ),
    query("backoff", Kind::Word(&["1"]), "Jobs that wait for their next attempt, after one that failed."),
];

/// Problems of a body in JSON.
pub(super) const JSON_BODY: [ProblemCode; 9] = [
    ProblemCode::InvalidJson,
    ProblemCode::DuplicateKey,
    ProblemCode::TooDeep,
    ProblemCode::UnsupportedMediaType,
    ProblemCode::UnknownField,
    ProblemCode::InvalidType,
    ProblemCode::MissingField,
    ProblemCode::BodyTooLarge,
    ProblemCode::RequestTimeout,
];

/// Problems of a request that has no body, or one that is not JSON.
pub(super) const NO_BODY: [ProblemCode; 2] = [ProblemCode::BodyTooLarge, ProblemCode::RequestTimeout];

/// Problems of a request that makes jobs.
pub(super) const SUBMISSION: [ProblemCode; 34] = [
    ProblemCode::UnknownJob,
    ProblemCode::DefinitionDisabled,
    ProblemCode::ForbiddenByPolicy,
    ProblemCode::OutOfScope,
    ProblemCode::InvalidDuration,
    ProblemCode::InvalidTime,
    ProblemCode::OutOfRange,
    ProblemCode::InvalidEnvName,
    ProblemCode::ReservedName,
    ProblemCode::EnvNewlineUnsupported,
    ProblemCode::NulByte,
    ProblemCode::TooLong,
    ProblemCode::InvalidLabel,
    ProblemCode::InvalidParam,
    ProblemCode::OverrideNotAllowed,
    ProblemCode::InvalidBatch,
    ProblemCode::InvalidDependency,
    ProblemCode::PredecessorEnded,
    ProblemCode::InvalidIdempotencyKey,
    ProblemCode::IdempotencyMismatch,
    ProblemCode::JobNotFound,
    ProblemCode::Pruned,
    ProblemCode::DuplicateBatch,
    ProblemCode::DuplicateJob,
    ProblemCode::UniqueBatch,
    ProblemCode::UnknownWorkerName,
    ProblemCode::TooManyNarrowings,
    ProblemCode::QueueFull,
    ProblemCode::TooManyQueued,
    ProblemCode::LimitFull,
    ProblemCode::NoWorker,
    ProblemCode::Draining,
    ProblemCode::StorageLow,
    ProblemCode::RefusedByStore,
];

pub(super) const ON_JOB: [ProblemCode; 3] =
    [ProblemCode::InvalidId, ProblemCode::JobNotFound, ProblemCode::Pruned];
pub(super) const ON_WORKER: [ProblemCode; 7] = [
    ProblemCode::InvalidId,
    ProblemCode::UnknownWorker,
    ProblemCode::WorkerAway,
    ProblemCode::WorkerConnected,
    ProblemCode::UnknownAttempt,
    ProblemCode::OutOfScope,
    ProblemCode::RefusedByStore,
];
pub(super) const PAGING: [ProblemCode; 2] = [ProblemCode::InvalidLimit, ProblemCode::InvalidCursor];
pub(super) const FILTERING: [ProblemCode; 6] = [
    ProblemCode::InvalidLimit,
    ProblemCode::InvalidCursor,
    ProblemCode::InvalidState,
    ProblemCode::UnknownName,
    ProblemCode::BatchNotFound,
    ProblemCode::JobNotFound,
];
pub(super) const BULK: [ProblemCode; 7] = [
    ProblemCode::TooLong,
    ProblemCode::InvalidIdempotencyKey,
    ProblemCode::Draining,
    ProblemCode::StorageLow,
    ProblemCode::RefusedByStore,
    ProblemCode::OutOfScope,
    ProblemCode::MissingField,
];
