//! Sends the spans of ended jobs. The feed of events hands over numbers of jobs through a bounded queue; here their history is read, made into
//! spans and posted, in a task of its own. A collector that is away is asked again while the queue fills; then jobs are dropped and counted.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use protocol::{ClusterId, JobId};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::collector::CollectorClient;
use super::history::{Histories, HistoryReader};
use super::ids::Tracer;
use super::settings::{self, Settings, Unusable};
use super::trouble::Trouble;
use crate::events::EventFeed;
use crate::metrics::Metrics;
use crate::store::Archive;

/// The traces of a server, before it runs.
#[derive(Debug)]
pub struct Traces {
    tracer: Arc<Tracer>,
    exporter: SpanExporter,
    client: CollectorClient,
    jobs_waiting_max: usize,
    gather: Duration,
}

impl Traces {
    /// Reads the variables of this process. `None` if they do not ask for traces, or cannot be followed; then the log says why.
    #[must_use]
    pub fn of_process(cluster: ClusterId) -> Option<Self> {
        let made = settings::read(super::variable)
            .and_then(|settings| settings.map(|settings| Self::new(cluster, settings)).transpose());
        made.unwrap_or_else(|Unusable(why)| {
            tracing::warn!("{why}; no spans are exported");
            None
        })
    }

    fn new(cluster: ClusterId, settings: Settings) -> Result<Self, Unusable> {
        for warning in &settings.warnings {
            tracing::warn!("{warning}");
        }
        let cannot = |error: &dyn std::fmt::Display| Unusable(format!("cannot set up the exporter: {error}"));
        let client = CollectorClient::new(settings.timeout).map_err(|error| cannot(&error))?;
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client.clone())
            .with_retry_policy(RetryPolicy::disabled())
            .build()
            .map_err(|error| cannot(&error))?;
        exporter.set_resource(&resource());
        let Settings { shown_endpoint: endpoint, sampling, jobs_waiting_max, gather, .. } = settings;
        tracing::info!(
            endpoint,
            parent_based = sampling.is_parent_based,
            ratio = sampling.ratio,
            "exporting the traces of jobs"
        );
        let tracer = Arc::new(Tracer::new(cluster, sampling));
        Ok(Self { tracer, exporter, client, jobs_waiting_max, gather })
    }

    /// Names spans of attempts while these are handed to workers.
    #[must_use]
    pub fn tracer(&self) -> Arc<Tracer> {
        self.tracer.clone()
    }

    /// Starts the export of the jobs that end in this feed. Must be called on a tokio runtime.
    #[must_use]
    pub fn export(
        self,
        feed: EventFeed,
        archive: Arc<dyn Archive>,
        metrics: Arc<Metrics>,
        public_url: Option<String>,
    ) -> (EventFeed, TraceExport) {
        let (sender, ends) = mpsc::channel(self.jobs_waiting_max);
        let sending = Sending {
            ends,
            reader: Arc::new(HistoryReader { tracer: self.tracer, archive, public_url }),
            exporter: self.exporter,
            client: self.client,
            gather: self.gather,
            metrics: metrics.clone(),
            trouble: Trouble::default(),
        };
        (feed.with_ends(sender), TraceExport { task: tokio::spawn(sending.run()), metrics })
    }
}

/// The attributes of this process. The variables of the standard take precedence over these.
fn resource() -> Resource {
    let known = [
        KeyValue::new("service.name", "longshore"),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
    ];
    let given = Resource::builder().build();
    let is_named = given
        .iter()
        .any(|(key, value)| key.as_str() == "service.name" && !value.as_str().starts_with("unknown_service"));
    let given = given.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let given = given.filter(|pair| is_named || pair.key.as_str() != "service.name");
    Resource::builder_empty().with_attributes(known.into_iter().chain(given)).build()
}

/// The export under way.
#[derive(Debug)]
pub struct TraceExport {
    task: JoinHandle<()>,
    metrics: Arc<Metrics>,
}

impl TraceExport {
    /// Waits until everything is sent, for a limited time. Call it when the feed has ended.
    pub async fn finish(mut self) {
        // A panic was logged when it happened.
        if timeout(FLUSH_MAX, &mut self.task).await.is_err() {
            self.task.abort();
            let exported = self.metrics.traces("exported");
            tracing::warn!(
                exported,
                "the collector has not taken all spans within {} s; the rest is dropped",
                FLUSH_MAX.as_secs()
            );
        }
    }
}

/// The task that sends.
#[derive(Debug)]
struct Sending {
    ends: mpsc::Receiver<JobId>,
    reader: Arc<HistoryReader>,
    exporter: SpanExporter,
    client: CollectorClient,
    gather: Duration,
    metrics: Arc<Metrics>,
    trouble: Trouble,
}

impl Sending {
    async fn run(mut self) {
        let mut jobs = Vec::with_capacity(JOBS_AT_ONCE);
        while self.ends.recv_many(&mut jobs, JOBS_AT_ONCE).await > 0 {
            let until = Instant::now() + self.gather;
            while jobs.len() < JOBS_AT_ONCE {
                let room = JOBS_AT_ONCE - jobs.len();
                match timeout_at(until, self.ends.recv_many(&mut jobs, room)).await {
                    Ok(more) if more > 0 => {}
                    _ => break,
                }
            }
            self.trouble.log_dropped_jobs(self.metrics.traces("dropped"));
            let reader = self.reader.clone();
            let ended = std::mem::take(&mut jobs);
            let count = ended.len();
            match spawn_blocking(move || reader.read(&ended)).await {
                Ok(Ok(histories)) => self.send(histories).await,
                Ok(Err(error)) => {
                    self.drop_jobs(count, &format!("the history of jobs cannot be read: {error}"))
                }
                // A panic was logged when it happened.
                Err(_) => self.drop_jobs(count, "the spans of jobs cannot be made"),
            }
        }
    }

    /// Posts spans in parts that a collector takes. The spans of one job stay together.
    async fn send(&mut self, histories: Histories) {
        if histories.removed > 0 {
            self.drop_jobs(histories.removed, "jobs were deleted before their spans were sent");
        }
        let (mut part, mut jobs) = (Vec::new(), 0);
        for spans in histories.spans {
            if !part.is_empty() && part.len() + spans.len() > SPANS_AT_ONCE {
                self.post(std::mem::take(&mut part), std::mem::take(&mut jobs)).await;
            }
            part.extend(spans);
            jobs += 1;
        }
        if !part.is_empty() {
            self.post(part, jobs).await;
        }
    }

    /// Posts until the collector takes the spans, or refuses them for good.
    async fn post(&mut self, spans: Vec<SpanData>, jobs: usize) {
        let mut pause = RETRY_FIRST;
        loop {
            let Err(error) = self.exporter.export(spans.clone()).await else {
                self.trouble.end();
                self.metrics.traces_counted("exported", jobs);
                if let Some(refused) = self.client.take_partial_rejection() {
                    self.trouble.log_dropped_spans(&refused, self.metrics.traces("dropped"));
                }
                return;
            };
            match self.client.take_failure() {
                Some(failure) if failure.can_retry => {
                    self.trouble.log_unreachable(&failure.why, self.metrics.traces("dropped"));
                    sleep(failure.retry_after.unwrap_or(pause)).await;
                    pause = (pause * 2).min(RETRY_MAX);
                }
                Some(failure) => {
                    return self.drop_jobs(jobs, &format!("the collector refuses spans: {}", failure.why));
                }
                None => return self.drop_jobs(jobs, &format!("spans cannot be sent: {error}")),
            }
        }
    }

    fn drop_jobs(&mut self, jobs: usize, why: &str) {
        self.metrics.traces_counted("dropped", jobs);
        self.trouble.log_dropped_spans(why, self.metrics.traces("dropped"));
    }
}

/// Jobs whose history is read at once.
const JOBS_AT_ONCE: usize = 256;
/// Spans of one post, unless a single job has more: as many as the library sends.
const SPANS_AT_ONCE: usize = 512;
/// The pause before a post is tried again; it doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// The time for the last spans at a shutdown.
const FLUSH_MAX: Duration = Duration::from_secs(5);
