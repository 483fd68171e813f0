//! A collector of OpenTelemetry: it takes posts of OTLP over HTTP, answers as it is told, and keeps the spans.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use data_encoding::HEXLOWER;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1 as otlp;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The reaction of the collector to a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Takes it.
    Ok,
    /// Takes it, and says that it has left out a span.
    Partial,
    /// Answers with this status line.
    Status(&'static str),
    /// Never answers.
    Hang,
}

/// A span, readable.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) state: String,
    pub(crate) name: String,
    /// Milliseconds since 1970.
    pub(crate) times: (u64, u64),
    pub(crate) attributes: BTreeMap<String, String>,
    /// Names of events with their times.
    pub(crate) events: Vec<(String, u64)>,
    /// Relation, job, trace and span of each link.
    pub(crate) links: Vec<(String, String, String, String)>,
    /// The message of an error.
    pub(crate) error: Option<String>,
}

#[derive(Debug)]
struct Inbox {
    answer: Answer,
    posts: usize,
    spans: Vec<Span>,
    resource: BTreeMap<String, String>,
    head: String,
    bytes: Vec<u8>,
}

/// A collector on a port. It ends with its test.
#[derive(Clone, Debug)]
pub(crate) struct Collector {
    pub(crate) port: u16,
    inbox: Arc<Mutex<Inbox>>,
}

impl Collector {
    pub(crate) async fn start(answer: Answer) -> Self {
        Self::serve(TcpListener::bind("127.0.0.1:0").await.unwrap(), answer)
    }

    /// Serves on a port that was chosen before.
    pub(crate) fn serve(listener: TcpListener, answer: Answer) -> Self {
        let inbox = Inbox {
            answer,
            posts: 0,
            spans: Vec::new(),
            resource: BTreeMap::new(),
            head: String::new(),
            bytes: Vec::new(),
        };
        let inbox = Arc::new(Mutex::new(inbox));
        let collector = Self { port: listener.local_addr().unwrap().port(), inbox: inbox.clone() };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, inbox.clone()));
            }
        });
        collector
    }

    /// The variable that makes a server export here.
    pub(crate) fn endpoint(&self) -> (String, String) {
        endpoint(self.port)
    }

    /// Answers so from now on.
    pub(crate) fn set_answer(&self, answer: Answer) {
        self.inbox.lock().unwrap().answer = answer;
    }

    /// The posts that came, whatever was answered.
    pub(crate) fn posts(&self) -> usize {
        self.inbox.lock().unwrap().posts
    }

    /// Everything that was posted.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.inbox.lock().unwrap().bytes.clone()
    }

    /// The head of the last request.
    pub(crate) fn head(&self) -> String {
        self.inbox.lock().unwrap().head.clone()
    }

    /// The attributes of the exporting process.
    pub(crate) fn resource(&self) -> BTreeMap<String, String> {
        self.inbox.lock().unwrap().resource.clone()
    }

    /// The spans that were taken.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.inbox.lock().unwrap().spans.clone()
    }

    /// Waits for the span of a job, and returns it with those below it in the order in which they came.
    pub(crate) async fn wait_for_job(&self, job: u64) -> (Span, Vec<Span>) {
        let root = testkit::wait_for(&format!("the span of job {job}"), async || {
            self.spans().into_iter().find(|span| span.is_of_job(job))
        })
        .await;
        let children = self.spans().into_iter().filter(|span| span.parent == root.id).collect();
        (root, children)
    }
}

impl Span {
    /// True for the span of a job itself.
    pub(crate) fn is_of_job(&self, job: u64) -> bool {
        self.name.starts_with("job ") && self.attributes["longshore.job.id"] == job.to_string()
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }
}

pub(crate) fn endpoint(port: u16) -> (String, String) {
    ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), format!("http://127.0.0.1:{port}"))
}

/// Answers requests until the connection ends.
async fn serve(mut stream: TcpStream, inbox: Arc<Mutex<Inbox>>) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let head_end = loop {
            if let Some(at) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
                break at;
            }
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap().to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let end = head_end + 4 + length.parse::<usize>().unwrap();
        while bytes.len() < end {
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
        let body: Vec<u8> = bytes.drain(..end).skip(head_end + 4).collect();
        let answer = inbox.lock().unwrap().take(head, &body);
        let partial = ExportTracePartialSuccess { rejected_spans: 1, error_message: "too old".into() };
        let mut body = Vec::new();
        let status = match answer {
            Answer::Ok => "200 OK",
            Answer::Partial => {
                body = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
                "200 OK"
            }
            Answer::Status(status) => status,
            Answer::Hang => std::future::pending().await,
        };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(&[answer.as_bytes(), &body].concat()).await.ok()?;
    }
}

impl Inbox {
    fn take(&mut self, head: String, body: &[u8]) -> Answer {
        self.posts += 1;
        self.head = head;
        self.bytes.extend(body);
        if self.answer == Answer::Ok {
            let request = ExportTraceServiceRequest::decode(body).unwrap();
            for resource in request.resource_spans {
                self.resource = attributes(resource.resource.unwrap().attributes);
                let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
                self.spans.extend(spans.map(readable));
            }
        }
        self.answer
    }
}

fn readable(span: otlp::Span) -> Span {
    let millis = |nanos: u64| nanos / 1_000_000;
    let hex = |bytes: &[u8]| HEXLOWER.encode(bytes);
    let link = |link: otlp::span::Link| {
        let of = attributes(link.attributes);
        let named = |name: &str| of[name].clone();
        (named("longshore.relation"), named("longshore.job.id"), hex(&link.trace_id), hex(&link.span_id))
    };
    let is_error = |status: &otlp::Status| status.code() == otlp::status::StatusCode::Error;
    Span {
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        state: span.trace_state,
        name: span.name,
        times: (millis(span.start_time_unix_nano), millis(span.end_time_unix_nano)),
        attributes: attributes(span.attributes),
        events: span.events.into_iter().map(|event| (event.name, millis(event.time_unix_nano))).collect(),
        links: span.links.into_iter().map(link).collect(),
        error: span.status.filter(is_error).map(|status| status.message),
    }
}

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    pairs.into_iter().map(|pair| (pair.key, text(pair.value))).collect()
}
