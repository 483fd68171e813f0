//! Examples of JSON.

use serde_json::{Value, json};

pub(super) const REVISION_EXAMPLE: &str = "8230dfc31a74e134241c862845388210";

pub(super) fn reason() -> Value {
    json!({ "code": "no_worker", "text": "no worker is connected" })
}

pub(super) fn worker_ref() -> Value {
    json!({ "id": 1, "name": "rack-1" })
}

pub(super) fn job() -> Value {
    json!({
        "id": 1, "name": "resize", "revision": REVISION_EXAMPLE, "state": "queued", "queuing": true, "running": false, "success": false,
        "pending_reason": reason(), "priority": 0, "created_at": "2026-11-20T13:08:43.055Z", "due_at": "2026-11-20T13:08:43.055Z",
        "attempt_count": 0
    })
}

pub(super) fn full_job() -> Value {
    json!({
        "id": 1, "name": "resize", "revision": REVISION_EXAMPLE, "state": "succeeded", "queuing": false, "running": false, "success": true,
        "priority": 0, "created_at": "2026-11-20T13:08:43.055Z", "due_at": "2026-11-20T13:08:43.055Z", "attempt_count": 1,
        "worker": worker_ref(), "outcome": "succeeded", "exit_code": 0, "args": ["--quiet"], "environment": [],
        "attempts": [{ "number": 1, "fence": 1, "worker": worker_ref(), "assigned_at": "2026-11-20T13:08:43.060Z", "outcome": "succeeded",
            "usage": { "cpu_ms": 1730, "memory_peak_bytes": 50_331_648 } }],
        "timeline": [{ "at": "2026-11-20T13:08:43.055Z", "event": "accepted" }], "late_reports": []
    })
}

pub(super) fn batch() -> Value {
    json!({ "batch": 4, "count": 2, "first": 4, "last": 5, "created_at": "2026-11-20T13:09:01.177Z" })
}

pub(super) fn replayed_batch() -> Value {
    json!({ "batch": 4, "count": 2, "first": 4, "last": 5, "replayed": true })
}

pub(super) fn retried_batch() -> Value {
    json!({
        "batch": 1006, "count": 3, "first": 1006, "last": 1008, "created_at": "2026-11-20T14:09:01.177Z",
        "retry_of": 6, "dry_run": false, "matched": 3, "refused": 0
    })
}

pub(super) fn batch_explanation() -> Value {
    let mut batch = batch_summary();
    batch["limit"] =
        json!({ "kind": "batch", "name": "4", "limit": 2, "in_use": 2, "waiting": 3, "holders": [4, 5] });
    batch["waiting"] = json!([{
        "reason": { "code": "limit", "text": "the limit batch 4 has no permit left: 2 of 2 are held, by 4, 5; it is the next one of its kind" },
        "count": 3, "example": 6
    }]);
    batch["counted"] = 3.into();
    batch
}

pub(super) fn batch_summary() -> Value {
    json!({
        "id": 6, "name": "film 7", "definition": "render", "state": "running", "created_at": "2026-11-20T13:09:01.177Z",
        "count": 1000, "counts": { "scheduled": 0, "queued": 741, "assigned": 4, "running": 4, "quarantined": 0, "succeeded": 250, "failed": 1,
            "cancelled": 0, "expired": 0, "lost": 0 },
        "progress": 0.251, "removed": 0
    })
}

pub(super) fn bulk_result() -> Value {
    json!({ "dry_run": false, "matched": 3, "done": 2, "stopping": 1, "refused": 0 })
}

pub(super) fn worker() -> Value {
    json!({
        "id": 1, "name": "rack-1", "working": false, "connected": true, "state": "ready", "slots": 4, "busy": 0,
        "since": "2026-11-20T13:08:43.055Z", "runtimes": [{ "name": "docker", "available": true }]
    })
}

pub(super) fn definition() -> Value {
    json!({
        "name": "resize", "revision": REVISION_EXAMPLE, "enabled": true, "runtime": "docker", "image": "alpine", "command": ["echo", "x"],
        "retry": { "max": 0, "when": ["failed"], "on": "any", "backoff_kind": "exponential", "backoff_initial_ms": 1000,
            "backoff_max_ms": 60000, "backoff_factor_milli": 2000, "backoff_jitter_milli": 1000 },
        "on_lost_timeout_ms": null, "queue_timeout_ms": null, "quarantine_timeout_ms": null
    })
}

pub(super) fn backfill(result: &str) -> Value {
    json!({
        "name": "nightly", "schedule": "night", "dry_run": result == "open", "count": 1,
        "slots": [{ "slot": "2026-11-20T01:00:00.000Z", "result": result }]
    })
}
