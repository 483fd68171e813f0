//! Whole requests against the router, with a real engine behind it: no answer is a mistake of ours, and every refusal is a problem
//! document. A request is a line `METHOD path`, header lines, an empty line, and a body.

#![allow(unreachable_pub, reason = "tests of the workspace compile it as a module of their own")]

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use crate::server::auth::Access;
use crate::server::auth::records::AccessRecords;
use crate::server::catalogue::{Catalogue, Definitions};
use crate::server::config::jobs_file;
use crate::server::engine::Engine;
use crate::server::http::{BODY_BYTES_MAX, Services, router};
use crate::server::logs::{self, Logs};
use crate::server::notifications::addresses::AllowedNetworks;
use crate::server::notifications::client::WebClient;
use crate::server::notifications::delivery::Delivery;
use crate::server::reload::Reloader;
use crate::server::storage::Storage;
use crate::server::store::directory::DataDirectory;
use crate::server::store::sqlite;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use protocol::order::Intervals;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

/// Sends the request that these bytes spell, if they spell one, and checks the answer.
pub fn walk(bytes: &[u8]) {
    let Some(request) = request(bytes) else { return };
    WORLD.with_borrow_mut(|world| {
        let world = match world {
            Some(world) if world.requests < REQUESTS_MAX => world,
            world => world.insert(World::new()),
        };
        world.requests += 1;
        world.runtime.block_on(check(world.router.clone(), request));
    });
}

/// A server that has been asked a number of times.
struct World {
    requests: u32,
    router: axum::Router,
    runtime: Runtime,
    _directory: tempfile::TempDir,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

impl World {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let directory = tempfile::tempdir().expect("a directory");
        let router = runtime.block_on(serve(directory.path()));
        Self { requests: 0, router, runtime, _directory: directory }
    }
}

async fn serve(directory: &Path) -> axum::Router {
    let jobs_file = directory.join("jobs.yaml");
    let file = jobs_file::parse(JOBS, &jobs_file, &std::iter::empty().collect()).expect("definitions");
    let definitions = Definitions::new(file.definitions);
    let data = DataDirectory::take(&directory.join("data")).expect("a data directory");
    let (store, archive) = sqlite::open(&Arc::new(data)).expect("a store");
    let loaded =
        Engine::load(Box::new(store), &definitions, Intervals::default(), usize::MAX, directory.into());
    let (engine, handles) = loaded.expect("an engine");
    let archive = Arc::new(archive);
    let records = AccessRecords::load(archive.clone(), handles.record_writer.clone()).expect("tokens");
    tokio::spawn(engine.run(CancellationToken::new()));
    let catalogue = Arc::new(Catalogue::new(definitions));
    let reloader = Reloader::new(handles.handle.clone(), catalogue.clone(), jobs_file, Intervals::default());
    let logs = Logs::open(&directory.join("logs"), logs::Limits::default()).expect("logs");
    let notifications = Delivery {
        archive: archive.clone(),
        jobs: archive.clone(),
        logs: logs.clone(),
        catalogue: catalogue.clone(),
        writer: handles.record_writer.clone(),
        client: WebClient::new(AllowedNetworks::default()).expect("a client"),
        mail: None,
        public_url: None,
        metrics: handles.metrics.clone(),
        requests: Default::default(),
        receivers: Default::default(),
    };
    let app = Services {
        usage: Default::default(),
        engine: handles.handle,
        events: handles.events,
        metrics: handles.metrics,
        archive: archive.clone(),
        record_writer: handles.record_writer,
        machines: Arc::default(),
        missing_secrets: Arc::default(),
        catalogue,
        reloader: Arc::new(reloader),
        logs,
        access: Arc::new(Access::open("127.0.0.1:80".parse().expect("an address"))),
        records: Arc::new(records),
        notifications: Arc::new(notifications),
        base_path: String::new(),
        storage: Storage::of(directory),
        tls: None,
        body_bytes_max: BODY_BYTES_MAX,
        intervals: Intervals::default(),
        shutdown: CancellationToken::new(),
    };
    router(app, axum::Router::new())
}

fn request(bytes: &[u8]) -> Option<Request<Body>> {
    let (head, body) = match bytes.windows(2).position(|pair| pair == b"\n\n") {
        Some(end) => (&bytes[..end], &bytes[end + 2..]),
        None => (bytes, &[][..]),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let first = lines.next()?;
    let space = first.iter().position(|byte| *byte == b' ')?;
    // Waiting is right, and takes too long.
    if first.windows(6).any(|it| it == b"events")
        || first.windows(4).any(|it| it == b"wait")
        || first.windows(6).any(|it| it == b"follow")
    {
        return None;
    }
    let mut request = Request::builder().method(&first[..space]).uri(&first[space + 1..]);
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        request = request.header(&line[..colon], line[colon + 1..].trim_ascii());
    }
    let mut request = request.body(Body::from(body.to_vec())).ok()?;
    request.headers_mut().entry(header::HOST).or_insert(header::HeaderValue::from_static("localhost"));
    Some(request)
}

async fn check(router: axum::Router, request: Request<Body>) {
    let response: Response<Body> = router.oneshot(request).await.expect("an answer");
    let status = response.status();
    // That there is no worker is told so, if somebody wants one.
    let is_no_worker = status == StatusCode::SERVICE_UNAVAILABLE;
    assert!(is_no_worker || !status.is_server_error(), "{status}");
    let is_problem =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|it| it == "application/problem+json");
    let body = response.into_body().collect().await.expect("a whole answer").to_bytes();
    if is_no_worker || status.is_client_error() {
        assert!(is_problem, "{status} without a problem document");
        let problem: serde_json::Value = serde_json::from_slice(&body).expect("a document");
        assert!(problem["code"].is_string() && problem["status"] == status.as_u16(), "{problem}");
    }
}

const JOBS: &str = "[{name: resize, image: busybox}, {name: mail, image: busybox, enabled: false}]";

/// A world keeps what it accepted: after this number of requests it is made anew.
const REQUESTS_MAX: u32 = 1_000;
