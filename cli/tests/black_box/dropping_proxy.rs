//! A proxy between the program and a server.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A proxy of HTTP that loses the answer to the first request of a kind, again after [`DroppingProxy::lose_the_next`]: the server has
/// done it, and the client does not learn of it.
pub(crate) struct DroppingProxy {
    pub(crate) address: String,
    state: Arc<Mutex<ProxyState>>,
}

#[derive(Default)]
struct ProxyState {
    requests: Vec<String>,
    /// Request lines whose answer was lost since the last call of `lose_the_next`.
    seen: Vec<String>,
    lost: usize,
}

impl DroppingProxy {
    pub(crate) fn start(server: &str, loses: fn(&str) -> bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::<Mutex<ProxyState>>::default();
        let (server, shared) = (server.to_owned(), Arc::clone(&state));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (server, shared) = (server.clone(), Arc::clone(&shared));
                std::thread::spawn(move || forward(client, &server, loses, &shared));
            }
        });
        Self { address, state }
    }

    pub(crate) fn lose_the_next(&self) {
        self.state.lock().unwrap().seen.clear();
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }

    pub(crate) fn lost(&self) -> usize {
        self.state.lock().unwrap().lost
    }
}

/// Forwards one request and its answer, or loses the answer.
fn forward(mut client: TcpStream, server: &str, loses: fn(&str) -> bool, state: &Mutex<ProxyState>) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    let (head, length) = loop {
        if let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&request[..end]).into_owned();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length = end + 4 + length.map_or(0, |length| length.parse::<usize>().unwrap());
            break (head, length);
        }
        match client.read(&mut buffer) {
            Ok(count) if count > 0 => request.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    };
    while request.len() < length {
        match client.read(&mut buffer) {
            Ok(count) if count > 0 => request.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    let line = head.lines().next().unwrap_or_default().to_owned();
    let Ok(mut upstream) = TcpStream::connect(server) else { return };
    let (first, rest) = request.split_at(line.len());
    let sent = [first, b"\r\nconnection: close", rest].concat();
    let mut answer = Vec::new();
    if upstream.write_all(&sent).is_err() || upstream.read_to_end(&mut answer).is_err() {
        return;
    }
    let is_lost = {
        let mut state = state.lock().unwrap();
        let is_lost = loses(&line) && !state.seen.contains(&line);
        state.lost += usize::from(is_lost);
        if is_lost {
            state.seen.push(line.clone());
        }
        state.requests.push(line);
        is_lost
    };
    if !is_lost {
        let _ = client.write_all(&answer);
    }
    let _ = client.shutdown(Shutdown::Both);
}
