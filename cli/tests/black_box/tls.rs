//! TLS between server, workers and commands, with certificates of `longshore cert`.

use std::path::PathBuf;

use testkit::{Cluster, Process, wait_until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const JOBS: &str = "version: 1\njobs: { hello: { runtime: fake } }\n";

/// A cluster with a certificate for 127.0.0.1 in the directory `tls`.
fn cluster() -> Cluster {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    make_certificate(&cluster, "tls");
    cluster
}

fn make_certificate(cluster: &Cluster, dir: &str) {
    let (code, text) = cluster.run_cli(&["cert", "--host", "jobs.example", "--dir", &path(cluster, dir)]);
    assert_eq!(code, 0, "{text}");
}

fn path(cluster: &Cluster, name: &str) -> String {
    cluster.path(name).display().to_string()
}

fn url(cluster: &Cluster) -> String {
    format!("https://{}", cluster.address())
}

fn spawn_server(cluster: &Cluster) -> Process {
    let files = [path(cluster, "tls/server.pem"), path(cluster, "tls/server-key.pem")];
    cluster.spawn_server(&["--tls-cert", &files[0], "--tls-key", &files[1]])
}

/// Runs `longshore health` against a URL, with the authority of this directory.
fn health(cluster: &Cluster, url: &str, authority: &str) -> (i32, String) {
    cluster.run_cli(&["health", "--server", url, "--ca-file", &path(cluster, authority)])
}

/// Runs `longshore doctor` with the authority of this file.
fn doctor(cluster: &Cluster, authority: &str) -> String {
    let (ca, data) = (path(cluster, authority), path(cluster, "data"));
    cluster.run_cli(&["doctor", "--server", &url(cluster), "--ca-file", &ca, "--data", &data]).1
}

async fn start_server(cluster: &Cluster) -> Process {
    let server = spawn_server(cluster);
    wait_until("the server is ready", async || health(cluster, &url(cluster), "tls/ca.pem").0 == 0).await;
    server
}

#[tokio::test]
async fn workers_and_commands_reach_the_server_over_tls() {
    let cluster = cluster();
    let _server = start_server(&cluster).await;
    let ca = path(&cluster, "tls/ca.pem");
    let flags = ["--no-docker", "--allow-fake", "--ca-file", &ca];
    let _worker = cluster.worker_spec("only", &url(&cluster), &flags).start();
    let arguments = ["run", "hello", "--wait", "--server", &url(&cluster), "--ca-file", &ca];
    let (code, text) = cluster.run_cli(&arguments);
    assert_eq!(code, 0, "{text}");

    let mut plain = TcpStream::connect(cluster.address()).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.ends_with("use https or wss://"), "{answer}");
}

#[tokio::test]
async fn a_client_without_tls_gets_the_sentence_of_the_server() {
    let cluster = cluster();
    let _server = start_server(&cluster).await;
    let (address, settings) = (cluster.address(), path(&cluster, "joined.yaml"));
    for arguments in [
        &["ls", "--server", &address][..],
        &["logs", "-f", "1", "--server", &address],
        &["worker", "join", &address, "longshore_1_x", "--config", &settings],
    ] {
        let (code, text) = cluster.run_cli(arguments);
        assert!(code == 6 && text.contains("this port speaks TLS: use https or wss://"), "{code}: {text}");
    }
    let worker = cluster.start_worker("only", &["--no-docker", "--allow-fake"]);
    let told = "answered 400 Bad Request: this port speaks TLS: use https or wss://";
    wait_until("the worker says why", async || worker.log().contains(told)).await;
}

#[tokio::test]
async fn a_server_that_cannot_be_trusted_is_refused_with_the_cause() {
    let mut cluster = cluster();
    // An address of this machine that the certificate does not name.
    cluster.set_host("127.0.0.3".to_owned());
    let mut server = spawn_server(&cluster);
    wait_until("it listens", async || server.log().contains("listening on https://127.0.0.3")).await;
    let (code, text) = health(&cluster, &url(&cluster), "tls/ca.pem");
    assert!(code == 6 && text.contains("the server's certificate is for another name"), "{code}: {text}");
    let told = doctor(&cluster, "tls/ca.pem");
    for expected in ["is not for 127.0.0.3, only for jobs.example", "use one of its names as the address"] {
        assert!(told.contains(expected) && !told.contains("start it"), "{told}");
    }
    make_certificate(&cluster, "other");
    let (code, text) = health(&cluster, &url(&cluster), "other/ca.pem");
    assert!(code == 6 && text.contains("name the CA's file with --ca-file"), "{code}: {text}");
    let told = doctor(&cluster, "other/ca.pem");
    for expected in
        ["the issuer of the server's certificate is unknown here", "name the CA's file with --ca-file"]
    {
        assert!(told.contains(expected) && !told.contains("start it"), "{told}");
    }
    let (code, text) = cluster.run_cli(&[
        "upgrade-check",
        "--server",
        &url(&cluster),
        "--ca-file",
        &path(&cluster, "other/ca.pem"),
    ]);
    assert!(code == 1 && text.contains("name the CA's file") && !text.contains("start it"), "{code}: {text}");
    let ca = path(&cluster, "other/ca.pem");
    let flags = ["--no-docker", "--allow-fake", "--ca-file", &ca];
    let worker = cluster.worker_spec("only", &url(&cluster), &flags).start();
    wait_until("the worker says why", async || worker.log().contains("name the CA's file")).await;
    server.terminate().await;

    let _plain = cluster.start_server(&[]).await;
    let (code, text) = health(&cluster, &url(&cluster), "tls/ca.pem");
    assert!(code == 6 && text.contains("does not speak TLS on this port"), "{code}: {text}");
}

/// Writes a certificate for 127.0.0.1 that ended years ago, its key, and its authority to the directory `tls`.
fn make_expired_certificate(cluster: &Cluster) {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
    let mut authority = CertificateParams::new(Vec::new()).expect("a certificate");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().expect("a key");
    std::fs::write(
        cluster.path("tls/ca.pem"),
        authority.self_signed(&authority_key).expect("a certificate").pem(),
    )
    .expect("written");
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &Issuer::new(authority, authority_key)).expect("a certificate");
    std::fs::write(cluster.path("tls/server.pem"), certificate.pem()).expect("written");
    // The file keeps its mode.
    std::fs::write(cluster.path("tls/server-key.pem"), key.serialize_pem()).expect("written");
}

#[tokio::test]
async fn an_expired_certificate_is_named_and_not_a_server_that_is_down() {
    let cluster = cluster();
    make_expired_certificate(&cluster);
    let server = spawn_server(&cluster);
    wait_until("it listens", async || server.log().contains("listening on https://")).await;
    let expired = "the certificate of the server expired at 2021-01-01T00:00:00Z";
    let remedy = "the server's certificate has expired: renew it";
    let (code, text) = health(&cluster, &url(&cluster), "tls/ca.pem");
    assert!(code == 6 && text.contains(expired) && text.contains(remedy), "{code}: {text}");
    let told = doctor(&cluster, "tls/ca.pem");
    assert!(told.contains(expired) && told.contains(remedy) && !told.contains("start it"), "{told}");
}

#[tokio::test]
async fn a_renewed_certificate_is_used_and_a_broken_one_is_not() {
    let cluster = cluster();
    let server = start_server(&cluster).await;
    std::fs::write(cluster.path("tls/server.pem"), "no certificate").unwrap();
    wait_until("it was refused", async || server.log().contains("the old ones stay in use")).await;
    assert_eq!(health(&cluster, &url(&cluster), "tls/ca.pem").0, 0, "it is ready");
    let told = doctor(&cluster, "tls/ca.pem");
    for expected in
        ["TLS: the files were changed and refused at ", "--tls-cert contains no certificate in PEM"]
    {
        assert!(told.contains(expected), "{told}");
    }

    make_certificate(&cluster, "other");
    std::fs::copy(cluster.path("other/server.pem"), cluster.path("tls/server.pem")).unwrap();
    let told =
        async || doctor(&cluster, "tls/ca.pem").contains("--tls-cert and --tls-key cannot be used together");
    wait_until("a certificate of another key is refused", told).await;
    for file in ["server-key.pem", "server.pem"] {
        std::fs::rename(cluster.path(&format!("other/{file}")), cluster.path(&format!("tls/{file}")))
            .unwrap();
    }
    let trusts_new = async || health(&cluster, &url(&cluster), "other/ca.pem").0 == 0;
    wait_until("the new certificate is used", trusts_new).await;
    assert_eq!(health(&cluster, &url(&cluster), "tls/ca.pem").0, 6);
    let told = doctor(&cluster, "other/ca.pem");
    assert!(!told.contains("TLS:"), "{told}");
}

#[tokio::test]
async fn unusable_certificates_end_the_start_with_one_line() {
    let cluster = cluster();
    make_certificate(&cluster, "other");
    let path = |name: &str| path(&cluster, name);
    let refusal = |flags: &[&str]| {
        let (code, text) = cluster.server_spec(flags).run();
        assert_eq!(code, 2, "{text}");
        text
    };
    let text = refusal(&["--tls-cert", &path("tls/server.pem")]);
    assert!(text.contains("TLS needs a certificate and its key"), "{text}");
    let text = refusal(&["--tls-cert", &path("tls/server.pem"), "--tls-key", &path("other/server-key.pem")]);
    assert!(text.contains("--tls-cert and --tls-key cannot be used together"), "{text}");
    let text = refusal(&["--tls-cert", &path("jobs.yaml"), "--tls-key", &path("tls/server-key.pem")]);
    assert!(text.contains("jobs.yaml contains no certificate in PEM"), "{text}");
    let text = refusal(&["--tls-cert", &path("tls/server.pem"), "--tls-key", &path("missing.pem")]);
    assert!(text.contains("--tls-key: cannot read") && text.contains("missing.pem"), "{text}");
    let text = refusal(&["--tls-cert", &path("tls/server.pem"), "--tls-key", &path("tls/server.pem")]);
    assert!(text.contains("everyone can read"), "{text}");
}

#[test]
fn a_directory_keeps_its_authority_until_one_of_its_files_is_lost() {
    let cluster = cluster();
    let read = |name: &str| std::fs::read(cluster.path(name)).unwrap();
    let (authority, certificate) = (read("tls/ca.pem"), read("tls/server.pem"));
    make_certificate(&cluster, "tls");
    assert_eq!(read("tls/ca.pem"), authority);
    assert_ne!(read("tls/server.pem"), certificate);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(cluster.path("tls/server-key.pem")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);

    let lost: PathBuf = cluster.path("tls/ca-key.pem");
    std::fs::remove_file(lost).unwrap();
    let (code, text) = cluster.run_cli(&["cert", "--host", "a", "--dir", &path(&cluster, "tls")]);
    assert!(code == 1 && text.contains("ca-key.pem does not"), "{code}: {text}");
    let (code, text) = cluster.run_cli(&["cert", "--host", "https://a", "--dir", &path(&cluster, "new")]);
    assert!(code == 2 && text.contains("neither a host name nor an IP address"), "{code}: {text}");
    assert!(!cluster.path("new").exists(), "nothing was made");
}

#[test]
fn a_renewal_keeps_the_names_of_the_certificate_and_dropped_ones_are_told() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let (dir, ca_dir) = (path(&cluster, "tls"), path(&cluster, "ca"));
    let cert = |words: &[&str]| {
        let (code, text) = cluster.run_cli(&[&["cert", "--dir", &dir, "--ca-dir", &ca_dir], words].concat());
        (code, text)
    };
    let (code, text) = cert(&[]);
    assert!(code == 2 && text.contains("there is nothing to renew") && text.contains("--host"), "{text}");
    assert!(!cluster.path("tls").exists(), "nothing was made");
    assert_eq!(cert(&["--host", "server.example,10.0.0.5,fd00::5"]).0, 0);
    let before = std::fs::read(cluster.path("tls/server.pem")).unwrap();

    let (code, text) = cert(&[]);
    assert!(code == 0 && !text.contains("warning"), "{text}");
    assert_ne!(std::fs::read(cluster.path("tls/server.pem")).unwrap(), before);
    let (code, text) = cert(&["--host", "new.example"]);
    let told = "warning: the certificate does not name server.example, 10.0.0.5, fd00::5 any more";
    assert!(code == 0 && text.contains(told), "{text}");
    let command = format!(
        "longshore cert --host new.example --host server.example --host 10.0.0.5 --host fd00::5 --dir {dir} --ca-dir {ca_dir} --days 397"
    );
    assert!(text.contains(&command), "{text}");

    // The names of a client's certificate are its own, and the case of letters does not matter.
    let (code, text) = cert(&["--client", "anna"]);
    assert!(code == 0 && !text.contains("server.pem"), "{text}");
    assert!(!cert(&["--host", "New.Example"]).1.contains("warning"));
    std::fs::write(cluster.path("tls/server.pem"), "no certificate").unwrap();
    let (code, text) = cert(&[]);
    assert!(code == 2 && text.contains("server.pem is no certificate"), "{text}");

    // A new authority would sign what nobody trusts.
    let (code, text) = cluster.run_cli(&["cert", "--dir", &dir]);
    assert!(code == 2 && text.contains("tls/ca.pem does not exist"), "{text}");
}

#[test]
fn the_key_of_the_authority_can_be_kept_away_from_the_server() {
    let cluster = cluster();
    let path = |name: &str| path(&cluster, name);
    std::fs::create_dir(cluster.path("workers")).unwrap();
    let (dir, ca_dir, copies) = (path("apart"), path("ca"), [path("apart/ca.pem"), path("workers/ca.pem")]);
    let words = ["cert", "--host", "jobs.example", "--dir", &dir, "--ca-dir", &ca_dir];
    let words = [&words[..], &["--ca-copy", &copies[0], "--ca-copy", &copies[1]]].concat();
    for _ in ["made", "kept"] {
        let (code, text) = cluster.run_cli(&words);
        assert_eq!(code, 0, "{text}");
        let authority = std::fs::read(cluster.path("ca/ca.pem")).unwrap();
        assert!(copies.iter().all(|copy| std::fs::read(copy).unwrap() == authority));
        let mut names: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["ca.pem", "server-key.pem", "server.pem"]);
    }
}

#[tokio::test]
async fn a_certificate_that_expires_soon_is_told_everywhere_until_it_is_replaced() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    let dir = path(&cluster, "tls");
    let (code, text) = cluster.run_cli(&["cert", "--host", "jobs.example", "--days", "10", "--dir", &dir]);
    assert_eq!(code, 0, "{text}");
    let server = start_server(&cluster).await;
    wait_until("the log warns", async || server.log().contains("TLS: the certificate expires in ")).await;
    let told = doctor(&cluster, "tls/ca.pem");
    assert!(told.contains("TLS: the certificate expires in "), "{told}");

    make_certificate(&cluster, "tls");
    wait_until("the new one is in use", async || server.log().contains("new TLS certificate in use")).await;
    let told = doctor(&cluster, "tls/ca.pem");
    assert!(!told.contains("the certificate expires"), "{told}");
}
