//! The table of problem codes, each with its page.
//!
//! Programs rely on codes: a code is never renamed and never changes its status. Each has a page in `docs/problems/`, which is embedded
//! here and served at `/problems/<code>`.

use axum::http::StatusCode;

macro_rules! codes {
    ($($variant:ident $name:literal $status:literal $title:literal;)*) => {
        /// The kind of an error, for programs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ProblemCode {
            $(#[doc = $title] $variant,)*
        }

        impl ProblemCode {
            /// Every code, ordered by status.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The text in the field `code`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The title of the problem document.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// The page that explains the code, as Markdown.
            #[must_use]
            pub const fn page(self) -> &'static str {
                match self { $(Self::$variant => include_str!(concat!("../../../../docs/problems/", $name, ".md")),)* }
            }

            const fn number(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }
        }
    };
}

codes! {
    DuplicateKey "duplicate_key" 400 "a key appears twice in a JSON object";
    InvalidCursor "invalid_cursor" 400 "the cursor is not one that this list gave";
    InvalidId "invalid_id" 400 "an id is a whole number from 1";
    InvalidIdempotencyKey "invalid_idempotency_key" 400 "the Idempotency-Key cannot be used";
    InvalidJson "invalid_json" 400 "the body is not JSON";
    InvalidLimit "invalid_limit" 400 "the limit is out of range";
    InvalidPath "invalid_path" 400 "the path cannot be decoded";
    InvalidQuery "invalid_query" 400 "a query parameter is wrong";
    InvalidRequest "invalid_request" 400 "the request is not proper HTTP";
    InvalidState "invalid_state" 400 "there is no such state";
    SubprotocolRequired "subprotocol_required" 400 "the WebSocket subprotocol longshore.v1 is not offered";
    TokenInUrl "token_in_url" 400 "a token must not be part of an address";
    TooDeep "too_deep" 400 "the JSON is nested too deeply";
    InvalidToken "invalid_token" 401 "the token is missing or not valid";
    TokenExpired "token_expired" 401 "the token has expired";
    TokenRevoked "token_revoked" 401 "the token was revoked";
    WorkerRevoked "worker_revoked" 401 "the worker was revoked";
    CrossSite "cross_site" 403 "the request comes from a page of another site";
    DeployNotAllowed "deploy_not_allowed" 403 "the server takes no deploys";
    Forbidden "forbidden" 403 "the token does not allow this";
    ForbiddenByPolicy "forbidden_by_policy" 403 "the policy of the server does not allow this job";
    OutOfScope "out_of_scope" 403 "the token is not for jobs of this definition";
    BatchNotFound "batch_not_found" 404 "there is no batch with this id";
    JobNotFound "job_not_found" 404 "there is no job with this id";
    NotFound "not_found" 404 "there is nothing at this address";
    UnknownGroup "unknown_group" 404 "no definition names this group";
    UnknownAttempt "unknown_attempt" 404 "the job has no such attempt";
    UnknownJob "unknown_job" 404 "no definition has this name";
    UnknownNotification "unknown_notification" 404 "there is no notification with this id";
    UnknownToken "unknown_token" 404 "no valid token has this name";
    UnknownWorker "unknown_worker" 404 "there is no worker with this id";
    UnknownSchedule "unknown_schedule" 404 "there is no such schedule";
    MethodNotAllowed "method_not_allowed" 405 "this address does not take this method";
    NotAcceptable "not_acceptable" 406 "the answer exists in no form that the request accepts";
    RequestTimeout "request_timeout" 408 "the body did not arrive in time";
    AlreadyDelivered "already_delivered" 409 "the notification was delivered";
    AlreadyFinished "already_finished" 409 "the job has ended";
    TokenNameTaken "token_name_taken" 409 "there is a token of this name";
    DefinitionDisabled "definition_disabled" 409 "the definition is not enabled";
    DuplicateBatch "duplicate_batch" 409 "a batch that has not ended has the unique key";
    DuplicateJob "duplicate_job" 409 "another job has the unique key";
    FileChanged "file_changed" 409 "somebody has edited the jobs file of the server";
    FileNotWritable "file_not_writable" 409 "the server cannot replace its jobs file";
    TooManyPaused "too_many_paused" 409 "too many batches are paused";
    TooManyRemoved "too_many_removed" 409 "a deploy would remove more definitions than its caller allows";
    IdempotencyMismatch "idempotency_mismatch" 409 "the Idempotency-Key stands for another request";
    NotFailed "not_failed" 409 "the job has not failed";
    NotFinished "not_finished" 409 "the job has not ended";
    NotWaiting "not_waiting" 409 "the job does not wait any more";
    NothingToRelease "nothing_to_release" 409 "nobody has to release the job";
    PredecessorEnded "predecessor_ended" 409 "a job or a batch has ended otherwise than the job after it requires";
    RevisionGone "revision_gone" 409 "the definition of the job, as it was, is no longer kept";
    RevisionMismatch "revision_mismatch" 409 "the definitions are not those that the request expects";
    TargetRemoved "target_removed" 409 "the definition does not name the target of the notification any more";
    WorkerAway "worker_away" 409 "the worker is not connected";
    WorkerConnected "worker_connected" 409 "the worker is connected, or has attempts";
    EventsGone "events_gone" 410 "the events are no longer kept";
    OutputRemoved "output_removed" 410 "the output is no longer kept";
    Pruned "pruned" 410 "the job is no longer kept";
    BodyTooLarge "body_too_large" 413 "the body is too large";
    TooManyJobs "too_many_jobs" 413 "the request asks for too many jobs";
    UriTooLong "uri_too_long" 414 "the address is too long";
    UnsupportedMediaType "unsupported_media_type" 415 "the body is of a type that is not understood here";
    RangeNotSatisfiable "range_not_satisfiable" 416 "the output has no such part";
    HostNotAllowed "host_not_allowed" 421 "this server does not answer to this host name";
    EmptyBatch "empty_batch" 422 "the request asks for no job";
    EnvNewlineUnsupported "env_newline_unsupported" 422 "a variable's value cannot hold a line break";
    InvalidBatch "invalid_batch" 422 "a batch cannot be made this way";
    InvalidDependency "invalid_dependency" 422 "a job cannot come after another one, or after a batch, this way";
    InvalidDuration "invalid_duration" 422 "that is not a duration, or out of range";
    InvalidEnvName "invalid_env_name" 422 "that cannot be the name of a variable";
    InvalidJobsFile "invalid_jobs_file" 422 "the jobs file has faults";
    InvalidPolicy "invalid_policy" 422 "the policy of the server cannot be used";
    InvalidLabel "invalid_label" 422 "that cannot be a label";
    InvalidParam "invalid_param" 422 "a parameter is missing, unknown or not allowed";
    InvalidReason "invalid_reason" 422 "that cannot be a reason";
    InvalidTime "invalid_time" 422 "that is not an instant, or out of range";
    InvalidType "invalid_type" 422 "a value is of the wrong type";
    MissingField "missing_field" 422 "a field is missing";
    NulByte "nul_byte" 422 "a text holds a NUL";
    OverrideNotAllowed "override_not_allowed" 422 "the definition does not allow this field";
    OutOfRange "out_of_range" 422 "a number is out of range";
    ReservedName "reserved_name" 422 "the name is reserved";
    TooLong "too_long" 422 "a text or a list is too long";
    UniqueBatch "unique_batch" 422 "too many jobs at once, or a backfill, for a definition with unique keys";
    UnknownField "unknown_field" 422 "the body has an unknown field";
    UnknownWorkerName "unknown_worker_name" 422 "no worker has this name or id";
    UnknownName "unknown_name" 422 "there is no definition of that name";
    UpgradeRequired "upgrade_required" 426 "this address wants a WebSocket";
    LimitFull "limit_full" 429 "a limit on jobs at once has no permit left";
    QueueFull "queue_full" 429 "too many jobs wait or run";
    TooManyNarrowings "too_many_narrowings" 429 "jobs ask for too many different workers";
    TooManyQueued "too_many_queued" 429 "too many jobs wait";
    TooManyFailures "too_many_failures" 429 "too many requests with a wrong token";
    HeadersTooLarge "headers_too_large" 431 "the headers are too large";
    Internal "internal" 500 "the server made a mistake";
    RefusedByStore "refused_by_store" 500 "the server has failed over this request before";
    Busy "busy" 503 "the server has too much to do";
    Draining "draining" 503 "the server is shutting down";
    NoWorker "no_worker" 503 "no connected worker could run the job";
    StoreUnavailable "store_unavailable" 503 "the store cannot be read";
    StorageLow "storage_low" 507 "the server's disk is nearly full";
}

impl ProblemCode {
    /// The HTTP status of the code.
    #[must_use]
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.number()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Finds a code by its text.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_a_page_and_every_page_a_code() {
        let pages: BTreeSet<String> =
            std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/problems"))
                .unwrap()
                .map(|page| page.unwrap().file_name().into_string().unwrap())
                .collect();
        let codes: BTreeSet<String> =
            ProblemCode::ALL.iter().map(|code| format!("{}.md", code.name())).collect();
        assert_eq!(pages, codes);
    }

    #[test]
    fn every_page_has_code_status_cause_and_remedy_within_twenty_lines() {
        for code in ProblemCode::ALL {
            let page = code.page();
            let title = format!("# {}\n", code.name());
            assert!(page.starts_with(&title), "{}", code.name());
            assert!(page.contains(&format!("Status {}", code.number())), "{}", code.name());
            assert!(page.contains("## Cause") && page.contains("## Remedy"), "{}", code.name());
            assert!(page.lines().count() <= 20, "{}", code.name());
        }
    }

    #[test]
    fn the_interface_in_prose_lists_every_code() {
        let prose = include_str!("../../../../docs/http-api.md");
        for code in ProblemCode::ALL {
            let row =
                format!("| {} | [`{2}`](problems/{2}.md) | {1} |", code.number(), code.title(), code.name());
            assert!(prose.contains(&row), "{row}");
        }
    }

    #[test]
    fn codes_are_unique_and_can_be_found_again() {
        for code in ProblemCode::ALL {
            assert_eq!(ProblemCode::find(code.name()), Some(*code));
            assert_eq!(code.status().as_u16(), code.number());
        }
    }
}
