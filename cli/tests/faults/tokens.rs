//! API token and worker token: a client with the wrong one learns which one it is.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use testkit::ProcessSpec;

use crate::support::{Cluster, wait_until};

const API: &str = "LONGSHORE_API_TOKEN_FILE";
const WORKER: &str = "LONGSHORE_WORKER_TOKEN_FILE";

#[tokio::test(flavor = "multi_thread")]
async fn wrong_kind_of_token_is_named_in_the_error() {
    let cluster = Cluster::new("version: 1\njobs: { quick: { runtime: fake } }\n");
    for name in ["api", "worker"] {
        use std::io::Write as _;
        let mut file = std::fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(cluster.path(name))
            .unwrap();
        write!(file, "{name}-s3cret-s3cret-s3cret-s3cret").unwrap();
    }
    let names =
        |variable: &str, file: &str| (variable.to_owned(), cluster.path(file).to_str().unwrap().to_owned());
    let with = |spec: ProcessSpec, environment: &[(String, String)]| ProcessSpec {
        environment: environment.to_vec(),
        ..spec
    };
    let both = [names(API, "api"), names(WORKER, "worker")];
    let mut server = with(cluster.server_spec(&[]), &both).start();
    cluster.api().wait_until_ready().await;
    let verb = |environment: &[(String, String)]| {
        let arguments = ["workers", "--server", &cluster.address()].map(str::to_owned);
        let spec = ProcessSpec::new(
            Path::new(env!("CARGO_BIN_EXE_longshore")),
            arguments.to_vec(),
            cluster.path("verb.log"),
        );
        with(spec, environment).run()
    };
    let worker = |environment: &[(String, String)]| {
        with(cluster.worker_spec("only", &cluster.address(), &["--no-docker", "--allow-fake"]), environment)
            .start()
    };

    let (code, said) = verb(&[names(API, "worker")]);
    assert_eq!(code, 3);
    assert!(
        said.contains("the token has the role worker; this request needs the role viewer [forbidden]"),
        "{said}"
    );
    let (code, said) = verb(&[names(WORKER, "api")]);
    assert_eq!((code, said.contains(API)), (3, true), "the other variable is none of its business: {said}");
    let lost = worker(&[names(WORKER, "api")]);
    wait_until("the worker says what is wrong", async || {
        lost.log().contains("most likely this is the token for the API") && lost.log().contains(WORKER)
    })
    .await;
    drop(lost);

    // A compose file often gives both variables to every service.
    let mut worker = worker(&both);
    wait_until("the worker is there", async || verb(&both).1.contains(" ready ")).await;
    assert!(!(server.log() + &worker.log()).contains("s3cret"));
    worker.terminate().await;
    server.terminate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_warns_of_a_token_from_the_variable_that_commands_read() {
    let cluster = Cluster::new("version: 1\njobs: { quick: { runtime: fake } }\n");
    let file = cluster.path("api");
    let options = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&file);
    std::io::Write::write_all(&mut options.unwrap(), b"api-s3cret-s3cret-s3cret-s3cret").unwrap();
    let file = file.to_str().unwrap().to_owned();
    let warning = "if it was set for them, unset it for the server";
    for (flags, environment, warns) in [
        (vec!["--api-token-file", &*file], vec![], false),
        (vec![], vec![(API.to_owned(), file.clone())], true),
    ] {
        let spec = ProcessSpec { environment, ..cluster.server_spec(&flags) };
        let mut server = spec.start();
        cluster.api().wait_until_ready().await;
        assert_eq!(server.log().contains(warning), warns, "{}", server.log());
        server.terminate().await;
    }
}
