//! A reverse proxy in front of the server that answers 502 while the server is away, as nginx does.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Proxy {
    address: SocketAddr,
    refused: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Starts a proxy to the server at this address, on the current runtime.
    pub(crate) async fn start(server: String) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let refused = Arc::default();
        let log = Arc::clone(&refused);
        tokio::spawn(async move {
            while let Ok((browser, _)) = listener.accept().await {
                tokio::spawn(serve(browser, server.clone(), Arc::clone(&log)));
            }
        });
        Self { address, refused }
    }

    /// The address of the server for browsers.
    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Number of requests with this text in their first line that were answered with 502.
    pub(crate) fn refused(&self, text: &str) -> usize {
        self.refused.lock().unwrap().iter().filter(|line| line.contains(text)).count()
    }
}

async fn serve(mut browser: TcpStream, server: String, refused: Arc<Mutex<Vec<String>>>) {
    if let Ok(mut server) = TcpStream::connect(server).await {
        let _ = copy_bidirectional(&mut browser, &mut server).await;
        return;
    }
    let mut browser = BufReader::new(browser);
    let (mut request, mut line) = (String::new(), String::new());
    while browser.read_line(&mut line).await.is_ok_and(|read| read > 2) {
        if request.is_empty() {
            request.clone_from(&line);
        }
        line.clear();
    }
    if request.is_empty() {
        return;
    }
    refused.lock().unwrap().push(request);
    let _ = browser.get_mut().write_all(ANSWER.as_bytes()).await;
}

const ANSWER: &str = "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 24\r\nconnection: close\r\n\r\n\
    <h1>502 Bad Gateway</h1>";
