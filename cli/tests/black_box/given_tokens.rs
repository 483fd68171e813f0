//! Tokens in files of the server that are tokens of its store.

use testkit::Cluster;

#[tokio::test]
async fn a_token_of_the_store_gets_no_further_rights_as_that_of_the_server() {
    let (cluster, mut server, admin) = Cluster::start_with_tokens(
        env!("CARGO_BIN_EXE_longshore"),
        "jobs: { hello: { runtime: fake } }\n",
        &[],
    )
    .await;
    let operator = cluster.make_token(&admin, "oncall", &["--role", "operator"]);
    server.terminate().await;
    for flag in ["--api-token-file", "--worker-token-file"] {
        let mut refused = cluster.spawn_server(&["--require-tokens", flag, &operator]);
        assert!(!refused.wait_for_exit().await.success());
        let log = refused.log();
        for part in [&format!("{flag} ("), "access token \"oncall\"", "has the role operator"] {
            assert!(log.contains(part), "{part}: {log}");
        }
    }
    // That of an administrator is what it was: it can be revoked.
    let mut server = cluster.start_server(&["--require-tokens", "--api-token-file", &admin]).await;
    let (_, who) = cluster.run_as(&admin, &["whoami"]);
    assert!(who.contains("first-admin"), "{who}");
    assert_eq!(cluster.run_as(&admin, &["token", "revoke", "first-admin", "--yes"]).0, 0);
    assert_ne!(cluster.run_as(&admin, &["token", "ls"]).0, 0);
    server.terminate().await;
    let mut refused = cluster.spawn_server(&["--require-tokens", "--api-token-file", &admin]);
    assert!(!refused.wait_for_exit().await.success());
    assert!(refused.log().contains("which was revoked"), "{}", refused.log());
}
