//! A stub server: each request line has prepared responses; the last one is repeated.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

pub(crate) const JSON: &str = "application/json";

/// The JSON of a job, with further members.
pub(crate) fn job(id: u64, more: &str) -> String {
    format!(
        r#"{{"id":{id},"name":"resize","revision":"5c1e","created_at":"2026-03-01T09:30:00.000Z",{more}}}"#
    )
}

/// Requests in order: the line such as `POST /api/jobs/x`, the header lines, and the body.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedRequest {
    pub(crate) line: String,
    pub(crate) head: Vec<String>,
    pub(crate) body: String,
}

type Answers = Arc<Mutex<BTreeMap<String, VecDeque<Vec<u8>>>>>;

pub(crate) struct Stub {
    address: String,
    answers: Answers,
    asked: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl Stub {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stub = Self {
            address: format!("http://{}", listener.local_addr().unwrap()),
            answers: Answers::default(),
            asked: Arc::default(),
        };
        let (answers, asked) = (stub.answers.clone(), stub.asked.clone());
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (answers, asked) = (answers.clone(), asked.clone());
                std::thread::spawn(move || answer(connection, &answers, &asked));
            }
        });
        stub
    }

    /// Prepares a response to a line such as `GET /path?query`.
    pub(crate) fn on(&self, line: &str, status: &str, kind: &str, body: &str) -> &Self {
        let length = body.len();
        let text = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        self.on_raw(line, text.as_bytes())
    }

    /// Prepares a response byte for byte.
    pub(crate) fn on_raw(&self, line: &str, bytes: &[u8]) -> &Self {
        self.answers.lock().unwrap().entry(line.to_owned()).or_default().push_back(bytes.to_owned());
        self
    }

    /// The URL of the server.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.asked.lock().unwrap().clone()
    }

    /// The program with its verb, which uses this server.
    pub(crate) fn longshore(&self, arguments: &[&str]) -> Command {
        let mut command = longshore(arguments);
        command.env("LONGSHORE_SERVER", &self.address);
        command
    }
}

/// The program with its verb and an empty environment.
pub(crate) fn longshore(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    command.args(arguments).env_clear().env("LONGSHORE_SERVER", "http://127.0.0.1:1");
    command
}

/// Output and exit code of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CliOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn run(command: &mut Command) -> CliOutput {
    let Output { status, stdout, stderr } = command.output().unwrap();
    CliOutput {
        code: status.code().unwrap(),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

fn answer(mut connection: TcpStream, answers: &Answers, asked: &Mutex<Vec<RecordedRequest>>) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        head.push(line.trim_end().to_owned());
    }
    if head.is_empty() {
        return;
    }
    let line = head.remove(0).trim_end_matches(" HTTP/1.1").to_owned();
    let length =
        head.iter().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    asked.lock().unwrap().push(RecordedRequest {
        line: line.clone(),
        head,
        body: String::from_utf8(body).unwrap(),
    });
    let mut answers = answers.lock().unwrap();
    let bytes = match answers.get_mut(&line) {
        Some(prepared) if prepared.len() > 1 => prepared.pop_front().unwrap(),
        Some(prepared) => prepared[0].clone(),
        None => b"HTTP/1.1 418 I'm a teapot\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec(),
    };
    drop(answers);
    connection.write_all(&bytes).unwrap();
}
