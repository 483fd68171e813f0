//! Two tokens, two variables: who comes with the other's token is told so, in words that help.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use chaos::stage::Launch;

use crate::support::{Stage, holds};

const API: &str = "LONGSHORE_API_TOKEN_FILE";
const WORKER: &str = "LONGSHORE_WORKER_TOKEN_FILE";

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_with_the_others_token_is_told_which_one_it_is() {
    let stage = Stage::new("version: 1\njobs: { quick: { runtime: fake } }\n");
    for name in ["api", "worker"] {
        use std::io::Write as _;
        let mut file =
            std::fs::File::options().write(true).create_new(true).mode(0o600).open(stage.path(name)).unwrap();
        write!(file, "{name}-s3cret-s3cret-s3cret-s3cret").unwrap();
    }
    let names =
        |variable: &str, file: &str| (variable.to_owned(), stage.path(file).to_str().unwrap().to_owned());
    let with = |launch: Launch, environment: &[(String, String)]| Launch {
        environment: environment.to_vec(),
        ..launch
    };
    let both = [names(API, "api"), names(WORKER, "worker")];
    let mut server = with(stage.server_launch(&[]), &both).start();
    stage.api().ready().await;
    let verb = |environment: &[(String, String)]| {
        let arguments = ["workers", "--server", &stage.address()].map(str::to_owned);
        let launch = Launch::new(
            Path::new(env!("CARGO_BIN_EXE_longshore")),
            arguments.to_vec(),
            stage.path("verb.log"),
        );
        with(launch, environment).finish()
    };
    let worker = |environment: &[(String, String)]| {
        with(stage.worker_launch("only", &stage.address(), &["--no-docker", "--allow-fake"]), environment)
            .start()
    };

    let (code, said) = verb(&[names(API, "worker")]);
    assert_eq!(code, 3);
    assert!(
        said.contains("this is the worker token; what is asked for needs the API token [forbidden]"),
        "{said}"
    );
    let (code, said) = verb(&[names(WORKER, "api")]);
    assert_eq!((code, said.contains(API)), (3, true), "the other variable is none of its business: {said}");
    let lost = worker(&[names(WORKER, "api")]);
    holds("the worker says what is wrong", async || {
        lost.said().contains("most likely this is the token for the API") && lost.said().contains(WORKER)
    })
    .await;
    drop(lost);

    // What a composition gives to everybody: both.
    let mut worker = worker(&both);
    holds("the worker is there", async || verb(&both).1.contains(" ready ")).await;
    assert!(!(server.said() + &worker.said()).contains("s3cret"));
    worker.leave().await;
    server.leave().await;
}
