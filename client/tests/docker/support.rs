//! A runtime on a real engine for one test: its own installation, its own state directory, and a clean-up.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, Weak};
use std::time::Duration;

use longshore_client::attempt_dir::AttemptStore;
use longshore_client::logs::Logs;
use longshore_client::runtime::docker::{Config, Docker};
use longshore_client::runtime::{Events, Membership, Runtime, Survey};
use protocol::order::{OutputMark, StopCause};
use protocol::report::{ChunkData, OutputLengths, ReleaseCause, Stream};
use protocol::{ClusterId, ContainerSpec, Fence, JobId, Nonce, Revision, Token, WorkerId};
use tokio::sync::mpsc;
use worker::input::{Exit, Restored, RuntimeEvent};
use worker::step::{Launch, StopStep};

pub(crate) const IMAGE: &str = "longshore-test:local";

/// Enough time for a loaded machine; successful tests do not wait for it.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The Docker runtime of one worker, with everything that a test needs to drive and watch it.
pub(crate) struct DockerFixture {
    pub(crate) docker: Option<Arc<Docker>>,
    /// `true` while the start gate is closed: prepared attempts are reported and not run.
    pub(crate) gate_closed: Arc<AtomicBool>,
    pub(crate) logs: Logs,
    /// Events that the test has not looked at yet.
    pub(crate) events: mpsc::UnboundedReceiver<RuntimeEvent>,
    pub(crate) done: mpsc::UnboundedReceiver<Token>,
    pub(crate) membership: Membership,
    pub(crate) config: Config,
    pub(crate) state: Arc<tempfile::TempDir>,
    /// Events that the test has looked at, in their order.
    pub(crate) past_events: Vec<RuntimeEvent>,
}

/// The result of an attempt.
#[derive(Debug)]
pub(crate) enum Outcome {
    Ended(Exit, OutputLengths),
    Refused(ReleaseCause, String),
}

impl DockerFixture {
    /// A fixture on the real engine, if tests may use it.
    pub(crate) fn new() -> Option<Self> {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Option<Self> {
        is_wanted().then(|| {
            prepare_image();
            Self::without_image(config)
        })
    }

    pub(crate) fn without_image(config: Config) -> Self {
        let state = Arc::new(tempfile::tempdir().expect("a directory"));
        let membership = Membership { cluster: ClusterId(rand::random()), worker: WorkerId(1) };
        Self::at(config, state, membership)
    }

    /// A runtime with the same state directory as another one.
    pub(crate) fn at(config: Config, state: Arc<tempfile::TempDir>, membership: Membership) -> Self {
        let (logs, done) = Logs::new();
        let (from_runtime, runtime_events): (Events, _) = mpsc::unbounded_channel();
        let store = AttemptStore::open(state.path()).expect("a store");
        let docker = Arc::new(Docker::new(config.clone(), store, logs.clone(), from_runtime));
        docker.set_membership(membership);
        let (to_test, events) = mpsc::unbounded_channel();
        let gate_closed = Arc::new(AtomicBool::new(false));
        tokio::spawn(allow(Arc::downgrade(&docker), Arc::clone(&gate_closed), runtime_events, to_test));
        let past_events = Vec::new();
        Self { docker: Some(docker), gate_closed, logs, events, done, membership, config, state, past_events }
    }

    /// Simulates a restart: only the state directory and the engine keep their content.
    pub(crate) async fn restart(&mut self) -> Survey {
        self.docker = None;
        let fresh = Self::at(self.config.clone(), Arc::clone(&self.state), self.membership);
        let cluster = self.membership;
        let mut old = std::mem::replace(self, fresh);
        // The old runtime must not clean up the containers.
        old.membership.cluster = ClusterId(!cluster.cluster.0);
        drop(old);
        self.docker().survey().await
    }

    pub(crate) fn docker(&self) -> &Docker {
        self.docker.as_deref().expect("it runs")
    }

    pub(crate) fn dir(&self, token: Token) -> PathBuf {
        self.state.path().join(format!("attempts/{}-{}", token.job, token.fence))
    }

    pub(crate) fn name(&self, token: Token) -> String {
        token.container_name(self.membership.cluster)
    }

    pub(crate) fn start(&self, job: u64, spec: ContainerSpec) -> Token {
        let launch = launch(job, spec);
        let token = launch.token;
        self.docker().start(launch);
        token
    }

    pub(crate) async fn run(&mut self, job: u64, spec: ContainerSpec) -> Outcome {
        let token = self.start(job, spec);
        self.outcome(token).await
    }

    /// The first event that fits, past or future.
    pub(crate) async fn event<T>(&mut self, mut fits: impl FnMut(&RuntimeEvent) -> Option<T>) -> T {
        if let Some(it) = self.past_events.iter().find_map(&mut fits) {
            return it;
        }
        let found = async {
            loop {
                let event = self.events.recv().await.expect("the runtime lives");
                let fit = fits(&event);
                self.past_events.push(event);
                if let Some(it) = fit {
                    return it;
                }
            }
        };
        match tokio::time::timeout(SOON, found).await {
            Ok(it) => it,
            Err(_) => panic!("nothing of the kind happened; what did: {:?}", self.past_events),
        }
    }

    pub(crate) async fn started(&mut self, token: Token) {
        self.event(|it| {
            matches!(it, RuntimeEvent::Started { token: whose, .. } if *whose == token).then_some(())
        })
        .await;
    }

    pub(crate) async fn outcome(&mut self, token: Token) -> Outcome {
        self.event(|event| match event {
            RuntimeEvent::Ended { token: whose, exit, output, .. } if *whose == token => {
                Some(Outcome::Ended(exit.clone(), *output))
            }
            RuntimeEvent::Refused { token: whose, cause, why } if *whose == token => {
                Some(Outcome::Refused(*cause, why.clone()))
            }
            _ => None,
        })
        .await
    }

    pub(crate) fn ask_to_stop(&self, token: Token, grace: Duration) {
        self.docker().stop(token, StopCause::Cancel, StopStep::Ask { grace }, longshore_client::clock::now());
    }

    /// Takes all output until it is complete. Returns both streams, and whether some bytes were replayed.
    pub(crate) async fn output(&mut self, token: Token) -> (Vec<u8>, Vec<u8>, bool) {
        let (outputs, replayed, gaps) = self.output_and_gaps(token).await;
        assert_eq!(gaps, [], "as (stream, offset, bytes)");
        let [stdout, stderr] = outputs;
        (stdout, stderr, replayed)
    }

    /// Like [`DockerFixture::output`]; each gap is a stream, an offset and a length, shown as underscores.
    pub(crate) async fn output_and_gaps(
        &mut self,
        token: Token,
    ) -> ([Vec<u8>; 2], bool, Vec<(Stream, u64, u64)>) {
        let mut got: HashMap<Token, [Vec<u8>; 2]> = HashMap::new();
        let (mut replayed, mut gaps) = (false, Vec::new());
        let all = async {
            loop {
                tokio::select! {
                    done = self.done.recv() => if done == Some(token) { return },
                    frame = self.logs.next() => for chunk in frame {
                        let stream = &mut got.entry(chunk.token).or_default()[chunk.stream as usize];
                        assert_eq!(stream.len() as u64, chunk.offset, "in order, without holes");
                        let mark = OutputMark { token: chunk.token, stream: chunk.stream, offset: chunk.end() };
                        match chunk.data {
                            ChunkData::Bytes(bytes) => stream.extend(bytes),
                            ChunkData::Replayed(bytes) => {
                                replayed = true;
                                stream.extend(bytes);
                            }
                            ChunkData::Gap(bytes) => {
                                gaps.push((chunk.stream, chunk.offset, bytes));
                                stream.resize(stream.len() + usize::try_from(bytes).expect("a size"), b'_');
                            }
                        }
                        self.logs.acknowledge(&[mark]);
                    }
                }
            }
        };
        tokio::time::timeout(SOON, all).await.expect("the output ends");
        (got.remove(&token).unwrap_or_default(), replayed, gaps)
    }

    /// Waits for a condition outside of the runtime.
    pub(crate) async fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let mut looks = tokio::time::interval(Duration::from_millis(50));
        let wait = async {
            while !condition() {
                looks.tick().await;
            }
        };
        assert!(tokio::time::timeout(SOON, wait).await.is_ok(), "never: {what}");
    }

    pub(crate) fn exists(&self, token: Token) -> bool {
        docker(["inspect", "--type", "container", "--", &self.name(token)]).status.success()
    }
}

/// Answers as the state machine does while the start gate is open; passes on everything else.
async fn allow(
    docker: Weak<Docker>,
    gate_closed: Arc<AtomicBool>,
    mut runtime_events: mpsc::UnboundedReceiver<RuntimeEvent>,
    to_test: Events,
) {
    while let Some(event) = runtime_events.recv().await {
        match event {
            RuntimeEvent::ImageMissing(token) => {
                docker.upgrade().inspect(|docker| docker.pull(token));
            }
            RuntimeEvent::Prepared(token) if !gate_closed.load(Ordering::Relaxed) => {
                docker.upgrade().inspect(|docker| docker.run(token));
            }
            // The test may be over.
            event => drop(to_test.send(event)),
        }
    }
}

impl Drop for DockerFixture {
    fn drop(&mut self) {
        let filter = format!("label=longshore.cluster={}", self.membership.cluster);
        // Without the program there is nothing to clean up.
        let left = Command::new("docker").args(["ps", "-aq", "--filter", &filter]).output();
        for id in String::from_utf8_lossy(&left.map(|it| it.stdout).unwrap_or_default()).lines() {
            docker(["rm", "-f", "-v", id]);
        }
    }
}

pub(crate) fn launch(job: u64, spec: ContainerSpec) -> Launch {
    Launch {
        token: Token { job: JobId(job), fence: Fence(job), nonce: Nonce(job + 1000) },
        revision: Revision(1),
        name: "test".into(),
        spec: spec.into(),
        overrides: None,
        time_left: None,
        secrets: Default::default(),
    }
}

pub(crate) fn spec(command: &[&str]) -> ContainerSpec {
    ContainerSpec {
        image: IMAGE.into(),
        command: command.iter().map(|it| (*it).to_owned()).collect(),
        network: Some("none".into()),
        init: true,
        stop_grace: Duration::from_secs(10),
        ..ContainerSpec::default()
    }
}

pub(crate) fn shell(script: &str) -> ContainerSpec {
    spec(&["sh", "-c", script])
}

pub(crate) fn docker<const N: usize>(args: [&str; N]) -> Output {
    Command::new("docker").args(args).output().expect("the docker program")
}

/// Writes a stand-in for the program, in one step. Another process writes it: a file that this process holds open, even in a child that is
/// about to be started, cannot be executed (ETXTBSY).
pub(crate) fn stand_in(dir: &Path, script: &str) -> PathBuf {
    let write = "cat > docker.new && chmod 755 docker.new && mv docker.new docker";
    let mut writer = Command::new("sh")
        .args(["-c", write])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut stdin = writer.stdin.take().expect("a pipe");
    write!(stdin, "#!/bin/sh\n{script}\n").expect("written");
    drop(stdin);
    assert!(writer.wait().expect("it ends").success());
    dir.join("docker")
}

/// Writes a stand-in that notes each `run` in the file `calls` beside it, and knows no container.
pub(crate) fn recorder(dir: &Path) -> PathBuf {
    let script = format!(
        "case $1 in
            run) echo run >> {}/calls;;
            events) exec sleep 600;;
            inspect) echo \"Error: No such container: $7\" >&2; exit 1;;
        esac",
        dir.display()
    );
    stand_in(dir, &script)
}

/// Shows a successful container of this attempt and worker.
pub(crate) fn show_ended(fixture: &DockerFixture, dir: &Path, job: u64, worker: u64, code: i32) -> Token {
    show_ended_at(fixture, dir, (job, worker, code), "2026-01-01T00:00:01Z")
}

/// Like [`show_ended`], with this end; all of them started with the year 2026.
pub(crate) fn show_ended_at(
    fixture: &DockerFixture,
    dir: &Path,
    (job, worker, code): (u64, u64, i32),
    finished_at: &str,
) -> Token {
    let token = launch(job, spec(&[])).token;
    let name = fixture.name(token);
    let container = serde_json::json!({
        "Id": "abc", "Name": format!("/{name}"), "Created": "2026-01-01T00:00:00Z", "Image": "app",
        "Labels": {
            "longshore.cluster": fixture.membership.cluster.to_string(), "longshore.worker": worker.to_string(),
            "longshore.job": token.job.to_string(), "longshore.fence": token.fence.to_string(),
            "longshore.nonce": token.nonce.to_string(),
        },
        "State": {
            "Status": "exited", "ExitCode": code, "StartedAt": "2026-01-01T00:00:00Z", "FinishedAt": finished_at,
        },
    });
    std::fs::write(dir.join(name), format!("{container}\n")).expect("written");
    token
}

/// The result of a later survey for this attempt.
pub(crate) fn surveyed(event: &RuntimeEvent, token: Token) -> Option<Restored> {
    match event {
        RuntimeEvent::Surveyed { attempts, .. } => {
            attempts.iter().find(|it| it.launch.token == token).cloned()
        }
        _ => None,
    }
}

/// `true` if the tests may use a real engine. If not, one line says so.
fn is_wanted() -> bool {
    let wanted = std::env::var("LONGSHORE_TEST_DOCKER").is_ok_and(|it| it == "required");
    if !wanted {
        eprintln!("not run: it needs a Docker engine (LONGSHORE_TEST_DOCKER is not `required`)");
    }
    wanted
}

/// Makes the test image from the machine's static busybox, or else from the image of that name; nothing is pulled.
pub(crate) fn prepare_image() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let version = docker(["version", "--format", "{{.Server.Version}}"]);
        assert!(
            version.status.success(),
            "these tests need a Docker engine that answers: {}",
            String::from_utf8_lossy(&version.stderr)
        );
        if docker(["image", "inspect", IMAGE]).status.success() {
            return;
        }
        let script = r#"
            set -e
            if ! busybox=$(command -v busybox); then docker tag busybox "$0"; exit; fi
            root=$(mktemp -d); trap 'rm -rf "$root"' EXIT
            mkdir -p "$root/bin" "$root/etc" "$root/tmp" && chmod 1777 "$root/tmp"
            cp "$busybox" "$root/bin/busybox"
            for it in $("$busybox" --list); do [ "$it" = busybox ] || ln -s busybox "$root/bin/$it"; done
            printf 'root:x:0:0::/:/bin/sh\napp:x:7:7::/:/bin/sh\n' > "$root/etc/passwd"
            printf 'root:x:0:\napp:x:7:\n' > "$root/etc/group"
            tar -C "$root" -c . | docker import -c 'ENV PATH=/bin' -c 'CMD ["sh"]' - "$0" > /dev/null"#;
        let built = Command::new("sh").args(["-c", script, IMAGE]).output().expect("sh");
        assert!(
            built.status.success(),
            "the test image cannot be made: {}",
            String::from_utf8_lossy(&built.stderr)
        );
    });
}
