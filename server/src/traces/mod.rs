//! Traces: spans of ended jobs, exported to a collector of OpenTelemetry. Built with the cargo feature `otel`, and on if an endpoint is set in
//! the variables of the standard.
//!
//! A trace is made of a job's committed history when the job has ended, so nothing is kept for jobs that run, and a restart in between changes
//! nothing. `ids` names the spans (the ids follow from the job, so that a container can be handed its parent before the span exists),
//! `job_spans` makes them, `export` sends them, `collector` posts. Without the feature a server that is given an endpoint logs one line.

#[cfg(feature = "otel")]
mod collector;
#[cfg(feature = "otel")]
mod export;
#[cfg(feature = "otel")]
mod history;
#[cfg(feature = "otel")]
mod ids;
#[cfg(feature = "otel")]
mod job_spans;
#[cfg(not(feature = "otel"))]
mod not_built;
// Tested without the feature, too.
#[cfg(any(test, feature = "otel"))]
mod settings;
#[cfg(feature = "otel")]
mod trouble;

#[cfg(feature = "otel")]
pub use export::{TraceExport, Traces};
#[cfg(feature = "otel")]
pub use ids::Tracer;
#[cfg(not(feature = "otel"))]
pub use not_built::{TraceExport, Tracer, Traces};

/// The endpoint for traces: its variable, and the general one. A variable without a value counts as absent.
fn endpoint(variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    ENDPOINTS.into_iter().find_map(|name| Some((name, variable(name)?)))
}

/// A variable of this process; none if it is empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
