//! What clients did and what they were told, one line of JSON each, in the order in which it was written down.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A client is about to ask for jobs. Each of them carries `label`, which no other request has.
    Submit {
        /// On each of its jobs.
        label: String,
        /// How many jobs it asks for.
        count: u64,
        /// What makes a repetition of it the same request.
        key: Option<String>,
    },
    /// It was answered; a request may be repeated, and answered more than once.
    Answered {
        /// Of the request.
        label: String,
        /// The status of the answer.
        status: u16,
        /// The first of its jobs, if the answer was a promise.
        job: Option<u64>,
    },
    /// A client has asked for the end of a job.
    Cancelled {
        /// Which.
        job: u64,
        /// The status of the answer.
        status: u16,
    },
    /// A client looked at a job.
    Seen {
        /// Which.
        job: u64,
        /// The status of the answer: 404 if there was no such job, 410 if there was one.
        status: u16,
        /// Its state.
        state: String,
        /// The fence of its latest attempt.
        fence: Option<u64>,
        /// Of its latest attempt.
        exit_code: Option<i64>,
    },
    /// Something was done to the machinery. For people who read this.
    Fault {
        /// The fault's name.
        kind: String,
        /// In words.
        what: String,
    },
}

/// A line with its time.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Line {
    at_ms: u64,
    #[serde(flatten)]
    event: Event,
}

/// Where everybody writes.
#[derive(Debug)]
pub struct History {
    began: Instant,
    file: Mutex<File>,
}

impl History {
    /// Begins a new one.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn begin(path: &Path) -> std::io::Result<Self> {
        Ok(Self { began: Instant::now(), file: Mutex::new(File::create(path)?) })
    }

    /// Writes an event down.
    ///
    /// # Panics
    /// The disk does not take it: what follows would prove nothing.
    pub fn note(&self, event: Event) {
        let at_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap();
        let mut line = serde_json::to_vec(&Line { at_ms, event }).unwrap();
        line.push(b'\n');
        self.file.lock().unwrap().write_all(&line).unwrap();
    }
}

/// Reads a whole history.
///
/// # Errors
/// There is none, or a line is no event.
pub fn read(path: &Path) -> anyhow::Result<Vec<Event>> {
    let text = std::fs::read_to_string(path)?;
    text.lines().map(|line| Ok(serde_json::from_str::<Line>(line)?.event)).collect()
}
