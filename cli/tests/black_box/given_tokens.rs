//! Tokens in files of the server that are tokens of its store.

use testkit::Cluster;

const JOBS: &str = "jobs: { hello: { runtime: fake } }\n";

#[tokio::test]
async fn a_token_of_the_store_gets_no_further_rights_as_that_of_the_server() {
    let (cluster, mut server, admin) =
        Cluster::start_with_tokens(env!("CARGO_BIN_EXE_longshore"), JOBS, &[]).await;
    let operator = cluster.make_token(&admin, "oncall", &["--role", "operator"]);
    server.terminate().await;
    for flag in ["--api-token-file", "--worker-token-file"] {
        let mut server = cluster.start_server(&["--require-tokens", flag, &operator]).await;
        let log = server.log();
        for part in [flag, "oncall", "has the role operator", "gives it no further rights"] {
            assert!(log.contains(part), "{part}: {log}");
        }
        let (code, who) = cluster.run_as(&operator, &["whoami"]);
        assert!(code == 0 && who.contains("oncall") && who.contains("operator"), "{who}");
        assert_eq!(cluster.run_as(&operator, &["token", "ls"]).0, 3, "it is no administrator's");
        server.terminate().await;
    }
    // That of an administrator is what it was: it can be revoked, and a start with it makes another one.
    let mut server = cluster.start_server(&["--require-tokens", "--api-token-file", &admin]).await;
    let (_, who) = cluster.run_as(&admin, &["whoami"]);
    assert!(who.contains("first-admin"), "{who}");
    assert_eq!(cluster.run_as(&admin, &["token", "revoke", "first-admin", "--yes"]).0, 0);
    assert_ne!(cluster.run_as(&admin, &["token", "ls"]).0, 0);
    let revoked = cluster.path("revoked.token").display().to_string();
    std::fs::copy(&admin, &revoked).unwrap();
    server.terminate().await;
    let server = cluster.start_server(&["--require-tokens", "--api-token-file", &revoked]).await;
    assert!(server.log().contains("was revoked"), "{}", server.log());
    assert_ne!(cluster.run_as(&revoked, &["token", "ls"]).0, 0);
    assert_eq!(cluster.run_as(&cluster.admin_token(), &["token", "ls"]).0, 0, "there is a new administrator");
}
