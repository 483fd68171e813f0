//! Names the spans of a job. Every id follows from the cluster and the job, so that it is the same before and after a restart, and in the
//! server that assigns an attempt as in the export that sends its span later.

use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, ShouldSample as _};
use protocol::container::Overrides;
use protocol::wire::overrides_fit_with;
use protocol::{ClusterId, Fence, JobId, Nonce, Token};
use sha2::{Digest as _, Sha256};

use super::settings::Sampling;
use crate::http::request::trace_context::{TRACE_VARIABLE, trace_of, trace_state_of};

/// Decides which jobs have a trace, and names their spans.
#[derive(Debug)]
pub struct Tracer {
    cluster: ClusterId,
    sampler: Sampler,
}

/// The place of a job in its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobTrace {
    /// The trace of the submission; without one, a trace of the job's own.
    pub(super) trace: TraceId,
    /// The span that the submission named.
    pub(super) parent: Option<SpanId>,
    /// The spans of the job are exported.
    pub(super) is_sampled: bool,
    /// The entries of tracing systems (`tracestate`).
    pub(super) state: TraceState,
}

impl Tracer {
    pub(super) fn new(cluster: ClusterId, sampling: Sampling) -> Self {
        let root = Sampler::TraceIdRatioBased(sampling.ratio);
        let sampler = if sampling.is_parent_based { Sampler::ParentBased(Box::new(root)) } else { root };
        Self { cluster, sampler }
    }

    /// The trace of a job with these overrides. A trace that the submission brought is continued; the sampler decides about the rest.
    pub(super) fn trace(&self, job: JobId, environment: &[(String, String)]) -> JobTrace {
        let state = || trace_state_of(environment).and_then(|state| state.parse().ok()).unwrap_or_default();
        let given = trace_of(environment).and_then(|parent| span_context(parent, state()));
        let trace = given.as_ref().map_or_else(|| self.own_trace(job), SpanContext::trace_id);
        let context = given.as_ref().map(|parent| Context::new().with_remote_span_context(parent.clone()));
        let sampled =
            self.sampler.should_sample(context.as_ref(), trace, "job", &SpanKind::Consumer, &[], &[]);
        JobTrace {
            trace,
            parent: given.as_ref().map(SpanContext::span_id),
            is_sampled: sampled.decision == SamplingDecision::RecordAndSample,
            state: given.map(|parent| parent.trace_state().clone()).unwrap_or_default(),
        }
    }

    /// The span of a job.
    pub(super) fn job_span(&self, job: JobId) -> SpanId {
        SpanId::from_bytes(self.digest("job", &[job.0]))
    }

    /// The span of the wait before the attempt with this number.
    pub(super) fn wait_span(&self, job: JobId, attempt: u32) -> SpanId {
        SpanId::from_bytes(self.digest("wait", &[job.0, attempt.into()]))
    }

    /// The span of an attempt.
    pub(super) fn attempt_span(&self, fence: Fence, nonce: Nonce) -> SpanId {
        SpanId::from_bytes(self.digest("attempt", &[fence.0, nonce.0]))
    }

    /// Makes an attempt's span the parent of what its program traces. Overrides that are as long as allowed stay as they are.
    #[must_use]
    pub fn hand_over(&self, token: Token, overrides: Option<Overrides>) -> Option<Overrides> {
        let environment = overrides.as_ref().map_or(&[][..], |overrides| &overrides.environment);
        let JobTrace { trace, parent, is_sampled, .. } = self.trace(token.job, environment);
        // There is no span that could be the parent of others: they keep the one that the submission named.
        if parent.is_some() && !is_sampled {
            return overrides;
        }
        let span = self.attempt_span(token.fence, token.nonce);
        let value = format!("00-{trace}-{span}-{:02x}", u8::from(is_sampled));
        let mut body = overrides.unwrap_or_default();
        if let Some((_, known)) = body.environment.iter_mut().find(|(name, _)| name == TRACE_VARIABLE) {
            *known = value;
        } else if overrides_fit_with(&body, 1, TRACE_VARIABLE.len() + value.len()).is_ok() {
            body.environment.push((TRACE_VARIABLE.to_owned(), value));
        }
        Some(body)
    }

    fn own_trace(&self, job: JobId) -> TraceId {
        TraceId::from_bytes(self.digest("trace", &[job.0]))
    }

    /// The first bytes of a hash: as good as random to a sampler by ratio, and never all zero in practice.
    fn digest<const N: usize>(&self, kind: &str, numbers: &[u64]) -> [u8; N] {
        let mut hash = Sha256::new();
        hash.update(kind.as_bytes());
        hash.update(self.cluster.0.to_be_bytes());
        for number in numbers {
            hash.update(number.to_be_bytes());
        }
        let mut bytes = [0; N];
        for (byte, hashed) in bytes.iter_mut().zip(hash.finalize()) {
            *byte = hashed;
        }
        bytes
    }
}

/// A well-formed `traceparent` as the library has it.
fn span_context(parent: &str, state: TraceState) -> Option<SpanContext> {
    let mut parts = parent.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = u8::from_str_radix(parts.next()?, 16).ok()?;
    let sampled = TraceFlags::new(flags) & TraceFlags::SAMPLED;
    Some(SpanContext::new(trace, span, sampled, true, state))
}
