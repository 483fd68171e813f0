//! The history of a round: requests of the clients, answers and faults, one line of JSON each, in the order of writing.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// An event of the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A client is about to send a request for jobs. Each of its jobs has the label `submission` with this unique value.
    Submit {
        /// The value of the label.
        label: String,
        /// Number of jobs in the request.
        count: u64,
        /// The idempotency key, if the request has one.
        key: Option<String>,
    },
    /// The server answered the request. A request may be repeated and answered more than once.
    Answered {
        /// The label of the request.
        label: String,
        /// HTTP status.
        status: u16,
        /// The id of the first job, if the request was accepted.
        job: Option<u64>,
    },
    /// The server answered a request to cancel a job.
    Cancelled {
        /// The id of the job.
        job: u64,
        /// HTTP status.
        status: u16,
    },
    /// A client read a job.
    Seen {
        /// The id of the job.
        job: u64,
        /// HTTP status: 404 if the job never existed, 410 if it was removed.
        status: u16,
        /// The state of the job; empty unless the status is 200.
        state: String,
        /// The fence of its latest attempt.
        fence: Option<u64>,
        /// The exit code of its latest attempt.
        exit_code: Option<i64>,
    },
    /// A fault was injected.
    Fault {
        /// The name of the fault.
        kind: String,
        /// A description for people.
        what: String,
    },
}

/// An event with its time.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Line {
    at_ms: u64,
    #[serde(flatten)]
    event: Event,
}

/// The file that all clients and faults append to.
#[derive(Debug)]
pub struct History {
    began: Instant,
    file: Mutex<File>,
}

impl History {
    /// Creates the file.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Self { began: Instant::now(), file: Mutex::new(File::create(path)?) })
    }

    /// Appends an event.
    ///
    /// # Panics
    /// The write fails: the round would prove nothing.
    pub fn append(&self, event: Event) {
        let at_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap();
        let mut line = serde_json::to_vec(&Line { at_ms, event }).unwrap();
        line.push(b'\n');
        self.file.lock().unwrap().write_all(&line).unwrap();
    }
}

/// Reads a whole history.
///
/// # Errors
/// The file is missing, or a line is not an event.
pub fn read(path: &Path) -> anyhow::Result<Vec<Event>> {
    let text = std::fs::read_to_string(path)?;
    text.lines().map(|line| Ok(serde_json::from_str::<Line>(line)?.event)).collect()
}
