//! Workers as table rows, and all fields of one worker.

use jiff::Timestamp;
use server::http::present::shapes::{Exclusion, Intervention, Runtime, Worker, WorkerRef, WorkerResources};

use super::{optional, pairs, since};
use crate::screen;

/// Texts about a worker.
pub(crate) trait WorkerView {
    /// The columns of [`WorkerView::row`].
    const HEADING: [&str; 9];

    /// A row of the table of workers.
    fn row(&self, now: Timestamp) -> Vec<String>;

    /// The columns of [`WorkerView::wide_row`].
    fn wide_heading() -> Vec<&'static str>;

    /// A row with more columns than [`WorkerView::row`].
    fn wide_row(&self, now: Timestamp) -> Vec<String>;

    /// The fields that fit a line, by name; a field without a value is empty. Attempts that nobody assigned and a cloned
    /// worker identity are warnings.
    fn fields(&self) -> Vec<(&'static str, String)>;

    /// The effect of the command in `cordon`: `cordoned`, `draining` or `drained`.
    fn cordon_text(&self) -> &str;

    /// The state, with the deadline of a drain, a cordon, or the job that it is set aside for.
    fn state_text(&self) -> String;
}

impl WorkerView for Worker {
    const HEADING: [&str; 9] =
        [">ID", "NAME", "STATE", ">BUSY", ">QUEUED", ">SINCE", "RUNTIMES", "LABELS", "VERSION"];

    fn row(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.state_text(),
            busy_text(self),
            used_of(self.queued, self.backlog),
            since(self.since, now),
            self.runtimes.iter().map(runtime_name).collect::<Vec<_>>().join(" "),
            pairs(&self.labels),
            self.version.clone(),
        ]
    }

    fn wide_heading() -> Vec<&'static str> {
        [&Self::HEADING[..], &["ADDRESS", "LOAD", "DISK FREE", "ENGINE", "RESERVED"]].concat()
    }

    fn wide_row(&self, now: Timestamp) -> Vec<String> {
        let more = [
            self.address.clone(),
            self.load_milli.map(load_average).unwrap_or_default(),
            self.disk_free_bytes.map(screen::size).unwrap_or_default(),
            optional(self.engine_id.as_ref()),
            self.resources.as_ref().map(reserved_text).unwrap_or_default(),
        ];
        self.row(now).into_iter().chain(more).collect()
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            ("worker", self.id.to_string()),
            ("name", self.name.clone()),
            ("state", self.state_text()),
            ("cordon", self.cordon.as_ref().map(Intervention::words).unwrap_or_default()),
            ("since", self.since.to_string()),
            ("joined", optional(self.joined_at.as_ref())),
            ("suspect", self.suspect.as_ref().map(|it| it.cause.clone()).unwrap_or_default()),
            ("thresholds", self.suspect.as_ref().map(|it| it.rule.clone()).unwrap_or_default()),
            ("busy", busy_text(self)),
            ("queued", used_of(self.queued, self.backlog)),
        ];
        fields.extend(self.runtimes.iter().map(|runtime| ("runtime", runtime_text(runtime))));
        fields.extend(self.exclusions.iter().map(|exclusion| ("excluded", exclusion_text(exclusion))));
        fields.extend([
            ("engine", optional(self.engine_id.as_ref())),
            ("load", self.load_milli.map(load_average).unwrap_or_default()),
            ("disk free", self.disk_free_bytes.map(screen::size).unwrap_or_default()),
            ("reserved", self.resources.as_ref().map(reserved_text).unwrap_or_default()),
            ("set aside", self.set_aside_for.map(|job| format!("for job {job}")).unwrap_or_default()),
            ("labels", pairs(&self.labels)),
            ("granted", pairs(&self.labels_granted)),
            ("set", pairs(&self.labels_set)),
            ("revoked", optional(self.revoked_at.as_ref())),
            ("version", self.version.clone()),
            ("address", self.address.clone()),
        ]);
        fields
    }

    fn cordon_text(&self) -> &str {
        match &*self.state {
            state @ ("draining" | "drained") => state,
            // Its connection is lost during a drain, and the state says only that.
            "disconnected" | "unreachable" if self.drain_deadline.is_some() => "draining",
            _ => "cordoned",
        }
    }

    fn state_text(&self) -> String {
        match &self.drain_deadline {
            // A draining worker is always cordoned.
            Some(at) if self.state == "draining" => format!("draining until {at}"),
            _ if self.cordoned => {
                let end = self.cordon.as_ref().and_then(|cordon| cordon.until);
                let until = end.map(|end| format!(" until {end}")).unwrap_or_default();
                format!("{} (cordoned{until})", self.state)
            }
            _ => match self.set_aside_for {
                Some(job) => format!("{} (set aside for {job})", self.state),
                None => self.state.to_string(),
            },
        }
    }
}

/// Reserved and offered amounts of each resource that the worker offers: `cpus 1.5/4 memory 512 MiB/8 GiB gpus 0/2 license 1/2`.
fn reserved_text(resources: &WorkerResources) -> String {
    let WorkerResources { offered, reserved } = resources;
    let cores = |milli: u64| {
        let text = format!("{}.{:03}", milli / 1_000, milli % 1_000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let mut parts = Vec::new();
    if let Some(all) = offered.cpus_milli {
        parts.push(format!("cpus {}/{}", cores(reserved.cpus_milli.unwrap_or(0)), cores(all)));
    }
    if let Some(all) = offered.memory_bytes {
        let used = screen::size(reserved.memory_bytes.unwrap_or(0));
        parts.push(format!("memory {used}/{}", screen::size(all)));
    }
    if !offered.gpus.is_empty() {
        parts.push(format!("gpus {}/{}", reserved.gpus.len(), offered.gpus.len()));
    }
    for (name, all) in &offered.custom {
        parts.push(format!("{name} {}/{all}", reserved.custom.get(name).copied().unwrap_or(0)));
    }
    parts.join(" ")
}

/// Texts about a reference to a worker.
pub(crate) trait WorkerRefView {
    /// The name, or the id of a worker without a name.
    fn label(&self) -> String;
}

impl WorkerRefView for WorkerRef {
    fn label(&self) -> String {
        if self.name.is_empty() { self.id.to_string() } else { self.name.clone() }
    }
}

fn busy_text(worker: &Worker) -> String {
    match worker.slots {
        // The server was restarted, and the worker has not come back since.
        0 => format!("{}/?", worker.busy),
        slots => used_of(worker.busy, slots),
    }
}

fn used_of(used: u32, all: u32) -> String {
    format!("{used}/{all}")
}

/// The load average with two digits, as `uptime` prints it.
fn load_average(milli: u32) -> String {
    format!("{:.2}", f64::from(milli) / 1000.0)
}

fn runtime_name(runtime: &Runtime) -> String {
    if runtime.available { runtime.name.to_string() } else { format!("{} (unavailable)", runtime.name) }
}

/// The jobs that the worker is not offered, until when and why: `definition resize until 2026-01-02T03:04:05.000Z: 3 starts failed`.
fn exclusion_text(exclusion: &Exclusion) -> String {
    let jobs = match (exclusion.of.as_ref(), &exclusion.name, &exclusion.revision) {
        ("anything", ..) => "all jobs".to_owned(),
        ("runtime", Some(name), _) => format!("runtime {name}"),
        (_, Some(name), _) => format!("definition {name}"),
        (_, None, Some(revision)) => format!("revision {revision}"),
        (of, None, None) => of.to_owned(),
    };
    let until = exclusion.until.as_ref().map(|until| format!(" until {until}")).unwrap_or_default();
    format!("{jobs}{until}: {}", exclusion.reason)
}

/// The runtime, with the reason if it is unavailable.
fn runtime_text(runtime: &Runtime) -> String {
    match &runtime.reason {
        Some(reason) if !runtime.available => format!("{}: {reason}", runtime_name(runtime)),
        _ => runtime_name(runtime),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;

    use super::*;

    fn fields(more: &serde_json::Value) -> Vec<(&'static str, String)> {
        let mut json = serde_json::json!({"id": 2, "name": "anna", "state": "ready", "slots": 4, "busy": 1,
            "backlog": 4, "since": "2026-01-02T03:04:05.000Z"});
        json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let fields = Worker::deserialize(&json).unwrap().fields();
        fields.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    #[test]
    fn fields_contain_the_load_and_disk_that_are_known() {
        let known = fields(
            &serde_json::json!({"engine_id": "7TTF:QJ4G", "load_milli": 12_730, "disk_free_bytes": 0}),
        );
        for field in [("engine", "7TTF:QJ4G"), ("load", "12.73"), ("disk free", "0 B"), ("busy", "1/4")] {
            assert!(known.contains(&(field.0, field.1.to_owned())), "{field:?} in {known:?}");
        }
        let unknown = fields(&serde_json::json!({}));
        assert!(
            !unknown.iter().any(|(name, _)| ["engine", "load", "disk free"].contains(name)),
            "{unknown:?}"
        );
    }

    #[test]
    fn a_worker_is_drained_only_after_its_drain() {
        let deadline = serde_json::json!({ "drain_deadline": "2026-01-02T03:14:05.000Z" });
        for (state, more, text) in [
            ("ready", &serde_json::json!({}), "cordoned"),
            ("draining", &serde_json::json!({}), "draining"),
            ("unreachable", &deadline, "draining"),
            ("unreachable", &serde_json::json!({}), "cordoned"),
            ("drained", &serde_json::json!({}), "drained"),
        ] {
            let mut worker = serde_json::json!({"id": 2, "name": "anna", "state": state, "slots": 4, "busy": 1,
                "since": "2026-01-02T03:04:05.000Z"});
            worker.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!(Worker::deserialize(&worker).unwrap().cordon_text(), text, "{worker}");
        }
    }

    #[test]
    fn each_runtime_has_a_line_with_the_reason_if_it_is_unavailable() {
        let fields = fields(&serde_json::json!({"runtimes": [
            {"name": "docker", "available": false, "reason": "no answer within 5 s"},
            {"name": "fake", "available": true},
        ]}));
        let runtimes = fields.iter().filter(|(name, _)| *name == "runtime").map(|(_, text)| text.as_str());
        assert_eq!(runtimes.collect::<Vec<_>>(), ["docker (unavailable): no answer within 5 s", "fake"]);
    }

    #[test]
    fn what_keeps_jobs_away_has_a_line_each() {
        let fields = fields(&serde_json::json!({"labels_set": {"rack": "7"}, "exclusions": [
            {"of": "revision", "name": "resize", "revision": "0f", "reason": "its host failed",
                "until": "2026-01-02T03:05:05.000Z"},
            {"of": "revision", "revision": "0e", "reason": "its policy refuses them"},
            {"of": "runtime", "name": "docker", "reason": "no answer"},
            {"of": "anything", "reason": "it lacks memory"},
        ]}));
        assert!(fields.contains(&("set", "rack=7".to_owned())), "{fields:?}");
        let excluded = fields.iter().filter(|(name, _)| *name == "excluded").map(|(_, text)| text.as_str());
        assert_eq!(
            excluded.collect::<Vec<_>>(),
            [
                "definition resize until 2026-01-02T03:05:05.000Z: its host failed",
                "revision 0e: its policy refuses them",
                "runtime docker: no answer",
                "all jobs: it lacks memory",
            ]
        );
    }
}
