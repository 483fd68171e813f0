//! Certificates that workers and commands show to a server that asks for them, made by `longshore cert`.

use std::os::unix::fs::PermissionsExt as _;

use testkit::{Cluster, Process, wait_until};

const JOBS: &str = "version: 1\njobs: { hello: { runtime: fake } }\n";

/// A cluster with certificates for the server and for the clients anna and bert in `tls`, and that of an unknown client in `other`.
fn cluster() -> Cluster {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), JOBS);
    make(&cluster, "tls", &["--host", "jobs.example", "--client", "anna,bert"]);
    make(&cluster, "other", &["--client", "eve"]);
    cluster
}

fn make(cluster: &Cluster, dir: &str, flags: &[&str]) {
    let (code, text) = cluster.run_cli(&[&["cert", "--dir", &path(cluster, dir)], flags].concat());
    assert_eq!(code, 0, "{text}");
}

fn path(cluster: &Cluster, name: &str) -> String {
    cluster.path(name).display().to_string()
}

fn server_flags(cluster: &Cluster, authority: &str) -> Vec<String> {
    let file = |name: &str| path(cluster, name);
    let flags = ["--tls-cert", "--tls-key", "--tls-client-ca"];
    let files = [file("tls/server.pem"), file("tls/server-key.pem"), file(authority)];
    flags.into_iter().zip(files).flat_map(|(flag, file)| [flag.to_owned(), file]).collect()
}

fn spawn_server(cluster: &Cluster, authority: &str, more: &[&str]) -> Process {
    let flags = server_flags(cluster, authority);
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
    cluster.spawn_server(&flags)
}

/// The flags of a client with the certificate of this name; none without a name.
fn client_flags(cluster: &Cluster, of: Option<&str>) -> Vec<String> {
    let mut flags = vec!["--server".to_owned(), format!("https://{}", cluster.address())];
    flags.extend(["--ca-file".to_owned(), path(cluster, "tls/ca.pem")]);
    if let Some(name) = of {
        flags.extend(["--tls-client-cert".to_owned(), path(cluster, &format!("{name}.pem"))]);
        flags.extend(["--tls-client-key".to_owned(), path(cluster, &format!("{name}-key.pem"))]);
    }
    flags
}

/// Runs `longshore health` with the certificate of this name.
fn health(cluster: &Cluster, of: Option<&str>) -> (i32, String) {
    let flags = client_flags(cluster, of);
    cluster.run_cli(&["health"].into_iter().chain(flags.iter().map(String::as_str)).collect::<Vec<_>>())
}

fn spawn_worker(cluster: &Cluster, name: &str, certificate: &str) -> Process {
    let flags = client_flags(cluster, Some(certificate));
    let flags: Vec<&str> = flags[2..].iter().map(String::as_str).collect();
    let flags = [&["--no-docker", "--allow-fake"], &flags[..]].concat();
    cluster.worker_spec(name, &format!("https://{}", cluster.address()), &flags).start()
}

#[tokio::test]
async fn only_clients_with_a_certificate_of_the_site_reach_the_server() {
    let cluster = cluster();
    let _server = spawn_server(&cluster, "tls/ca.pem", &[]);
    wait_until("the server is ready", async || health(&cluster, Some("tls/client-anna")).0 == 0).await;
    let _worker = spawn_worker(&cluster, "only", "tls/client-bert");
    let flags = client_flags(&cluster, Some("tls/client-anna"));
    let words = ["run", "hello", "--wait"].into_iter().chain(flags.iter().map(String::as_str));
    let (code, text) = cluster.run_cli(&words.collect::<Vec<_>>());
    assert_eq!(code, 0, "{text}");

    for (of, expected) in [
        (None, "wants a certificate of this client: name one with --tls-client-cert"),
        (Some("other/client-eve"), "does not trust the certificate of --tls-client-cert"),
        // The certificate of the server is not one for clients.
        (Some("tls/server"), "does not trust the certificate of --tls-client-cert"),
    ] {
        let (code, text) = health(&cluster, of);
        assert!(code == 6 && text.contains(expected), "{of:?} {code}: {text}");
    }
    let worker = spawn_worker(&cluster, "eve", "other/client-eve");
    wait_until("the worker says why", async || {
        worker.log().contains("does not trust the certificate of --tls-client-cert")
    })
    .await;
}

#[tokio::test]
async fn a_certificate_proves_no_role_and_may_be_optional() {
    let cluster = cluster();
    let _server =
        spawn_server(&cluster, "tls/ca.pem", &["--tls-client-auth", "optional", "--require-tokens"]);
    wait_until("the server is ready", async || health(&cluster, None).0 == 0).await;
    assert_eq!(health(&cluster, Some("tls/client-anna")).0, 0);
    let (code, text) = health(&cluster, Some("other/client-eve"));
    assert!(code == 6 && text.contains("does not trust"), "a wrong one is not ignored: {code}: {text}");
    let flags = client_flags(&cluster, Some("tls/client-anna"));
    let words = ["ls"].into_iter().chain(flags.iter().map(String::as_str));
    let (code, text) = cluster.run_cli(&words.collect::<Vec<_>>());
    assert!(code != 0 && text.contains("needs a valid token"), "{code}: {text}");
}

#[tokio::test]
async fn another_authority_is_used_without_a_restart_by_both_sides() {
    let cluster = cluster();
    std::fs::copy(cluster.path("tls/ca.pem"), cluster.path("clients.pem")).unwrap();
    for file in ["client-anna.pem", "client-anna-key.pem"] {
        std::fs::copy(cluster.path(&format!("tls/{file}")), cluster.path(file)).unwrap();
    }
    let server = spawn_server(&cluster, "clients.pem", &[]);
    wait_until("the server is ready", async || health(&cluster, Some("client-anna")).0 == 0).await;
    let worker = spawn_worker(&cluster, "only", "client-anna");
    wait_until("the worker is there", async || worker.log().contains("joined")).await;

    std::fs::write(cluster.path("clients.pem"), "no certificate").unwrap();
    wait_until("it was refused", async || server.log().contains("the old ones stay in use")).await;
    assert_eq!(health(&cluster, Some("client-anna")).0, 0);

    make(&cluster, "other", &["--client", "anna"]);
    std::fs::copy(cluster.path("other/ca.pem"), cluster.path("clients.pem")).unwrap();
    wait_until("the old certificate is refused", async || health(&cluster, Some("client-anna")).0 == 6).await;
    // The key first: the pair is not used before both fit.
    for file in ["client-anna-key.pem", "client-anna.pem"] {
        std::fs::rename(cluster.path(&format!("other/{file}")), cluster.path(file)).unwrap();
    }
    assert_eq!(health(&cluster, Some("client-anna")).0, 0);
    drop(server);
    let _server = spawn_server(&cluster, "clients.pem", &[]);
    wait_until("the worker uses its new certificate", async || {
        worker.log().contains("new TLS certificate in use")
    })
    .await;
}

#[test]
fn unusable_settings_end_the_start_with_one_line() {
    let cluster = cluster();
    let file = |name: &str| path(&cluster, name);
    let refusal = |flags: &[&str]| {
        let (code, text) = cluster.server_spec(flags).run();
        assert_eq!(code, 2, "{text}");
        text
    };
    let tls = ["--tls-cert", &file("tls/server.pem"), "--tls-key", &file("tls/server-key.pem")];
    let text = refusal(&["--tls-client-ca", &file("tls/ca.pem")]);
    assert!(text.contains("--tls-client-ca (LONGSHORE_TLS_CLIENT_CA) is given and --tls-cert"), "{text}");
    let text = refusal(&[&tls[..], &["--tls-client-ca", &file("jobs.yaml")]].concat());
    assert!(text.contains("--tls-client-ca: ") && text.contains("no certificate in PEM"), "{text}");
    let text = refusal(&[&tls[..], &["--tls-client-auth", "optional"]].concat());
    assert!(text.contains("it needs --tls-client-ca"), "{text}");
    let text = refusal(
        &[&tls[..], &["--tls-client-ca", &file("tls/ca.pem"), "--tls-client-auth", "maybe"]].concat(),
    );
    assert!(text.contains("neither required nor optional"), "{text}");

    let mut flags = client_flags(&cluster, Some("tls/client-anna"));
    flags.truncate(6);
    let words = ["health"].into_iter().chain(flags.iter().map(String::as_str)).collect::<Vec<_>>();
    let (code, text) = cluster.run_cli(&words);
    assert!(code == 2 && text.contains("--tls-client-key is not"), "{code}: {text}");
    let key = cluster.path("tls/client-anna-key.pem");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, text) = health(&cluster, Some("tls/client-anna"));
    assert!(code == 2 && text.contains("everyone can read"), "{code}: {text}");
    let (code, text) = cluster.run_cli(&["cert", "--client", "../anna", "--dir", &file("tls")]);
    assert!(code == 2 && text.contains("is no name for a file"), "{code}: {text}");
}
