//! A registry on loopback with one image behind basic authentication: the part of the OCI distribution API that a pull uses.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};

/// The registry. Its thread ends with the test process; its images are removed from the engine on drop.
pub(crate) struct Registry {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// The header `Authorization` that is accepted.
    authorization: Mutex<String>,
    /// Requests for the manifest wait while this is true.
    is_held: Mutex<bool>,
    released: Condvar,
    /// Methods and paths, and the status of each.
    requests: Mutex<Vec<(String, u16)>>,
    manifest: Vec<u8>,
    blobs: HashMap<String, Vec<u8>>,
}

impl Registry {
    /// Starts a registry with an image that the engine does not have, made from `busybox`.
    pub(crate) fn start(scratch: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (manifest, blobs) = image(scratch, &address.to_string());
        let shared = Arc::new(Shared {
            authorization: Mutex::default(),
            is_held: Mutex::default(),
            released: Condvar::new(),
            requests: Mutex::default(),
            manifest,
            blobs,
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        Self { address, shared }
    }

    /// Accepts this value of `Authorization` only.
    pub(crate) fn accept(&self, authorization: &str) {
        *self.shared.authorization.lock().unwrap() = format!("Basic {authorization}");
    }

    /// The host with the port.
    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    /// The name of its image.
    pub(crate) fn image(&self) -> String {
        format!("{}/team/app:1", self.address)
    }

    /// Keeps requests for the manifest waiting until the value is dropped.
    pub(crate) fn hold(&self) -> Hold {
        *self.shared.is_held.lock().unwrap() = true;
        Hold(Arc::clone(&self.shared))
    }

    /// Number of requests for the manifest with a valid login that came so far, also of those that wait.
    pub(crate) fn manifests(&self) -> usize {
        let requests = self.shared.requests.lock().unwrap();
        requests.iter().filter(|(line, status)| line.contains("/manifests/") && *status == 200).count()
    }

    /// Number of requests that were refused.
    pub(crate) fn refused(&self) -> usize {
        self.shared.requests.lock().unwrap().iter().filter(|(_, status)| *status == 401).count()
    }

    /// Makes the engine forget the image.
    pub(crate) fn forget_image(&self) {
        docker(&["rmi", "--force", &self.image()]);
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.forget_image();
    }
}

/// Keeps requests for the manifest waiting until it is dropped.
pub(crate) struct Hold(Arc<Shared>);

impl Drop for Hold {
    fn drop(&mut self) {
        *self.0.is_held.lock().unwrap() = false;
        self.0.released.notify_all();
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut writer = stream;
        while let Some((line, authorization)) = read_request(&mut reader) {
            let is_allowed = authorization == *self.authorization.lock().unwrap();
            let mut words = line.split(' ');
            let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let (status, kind, body) = match path {
                _ if !is_allowed => (401, "application/json", &b"{}"[..]),
                "/v2/" => (200, "application/json", &b"{}"[..]),
                _ if path.contains("/manifests/") => (200, MANIFEST, &self.manifest[..]),
                _ => match self.blobs.get(path.rsplit('/').next().unwrap_or_default()) {
                    Some(blob) => (200, "application/octet-stream", &blob[..]),
                    None => (404, "application/json", &b"{}"[..]),
                },
            };
            self.requests.lock().unwrap().push((line.clone(), status));
            if path.contains("/manifests/") && status == 200 {
                let held = self.is_held.lock().unwrap();
                drop(self.released.wait_while(held, |is_held| *is_held).unwrap());
            }
            let challenge = "WWW-Authenticate: Basic realm=\"test\"\r\n";
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{}\r\n",
                body.len(),
                if status == 401 { challenge } else { "" },
            );
            let sent = writer.write_all(head.as_bytes());
            let body = if method == "HEAD" { &[][..] } else { body };
            if sent.and_then(|()| writer.write_all(body)).is_err() {
                return;
            }
        }
    }
}

/// The request line and the value of `Authorization`.
fn read_request(reader: &mut impl BufRead) -> Option<(String, String)> {
    let (mut first, mut authorization) = (None, String::new());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Some((first?, authorization));
        }
        if let Some((name, value)) = line.split_once(": ")
            && name.eq_ignore_ascii_case("authorization")
        {
            authorization = value.to_owned();
        }
        first.get_or_insert_with(|| line.to_owned());
    }
}

/// The manifest of a new image, and its blobs by their digests.
fn image(scratch: &Path, label: &str) -> (Vec<u8>, HashMap<String, Vec<u8>>) {
    std::fs::create_dir_all(scratch).unwrap();
    let name = format!("longshore-test-registry:{}", label.replace(':', "-"));
    std::fs::write(scratch.join("Dockerfile"), format!("FROM busybox\nLABEL test={label}\n")).unwrap();
    docker(&["build", "--quiet", "--tag", &name, scratch.to_str().unwrap()]);
    let saved = scratch.join("image.tar");
    docker(&["save", "--output", saved.to_str().unwrap(), &name]);
    docker(&["rmi", &name]);
    let unpacked = Command::new("tar").arg("-xf").arg(&saved).arg("-C").arg(scratch).status().unwrap();
    assert!(unpacked.success());
    let list: Value = serde_json::from_slice(&std::fs::read(scratch.join("manifest.json")).unwrap()).unwrap();
    let mut blobs = HashMap::new();
    let mut blob = |file: &Value, kind: &str| {
        let path = scratch.join(file.as_str().unwrap());
        let (digest, bytes) = (digest(&path), std::fs::read(path).unwrap());
        let described = json!({ "mediaType": kind, "size": bytes.len(), "digest": digest });
        blobs.insert(digest, bytes);
        described
    };
    let config = blob(&list[0]["Config"], "application/vnd.docker.container.image.v1+json");
    let layers = list[0]["Layers"].as_array().unwrap().iter();
    let layers: Vec<Value> =
        layers.map(|file| blob(file, "application/vnd.docker.image.rootfs.diff.tar.gzip")).collect();
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers });
    (serde_json::to_vec(&manifest).unwrap(), blobs)
}

fn digest(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    format!("sha256:{}", text.split_whitespace().next().unwrap())
}

fn docker(arguments: &[&str]) {
    let status = Command::new("docker")
        .args(arguments)
        .env("DOCKER_BUILDKIT", "0")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.unwrap();
}

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
