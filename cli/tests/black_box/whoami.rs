//! Whose token it is, and who learns that it expires.

use serde_json::Value;
use testkit::{Cluster, Database, bearer, http};

const JOBS: &str = "version: 1\njobs: { hello: { runtime: fake } }\n";

#[tokio::test]
async fn whoami_tells_whose_token_it_is_and_when_it_expires() {
    let (cluster, mut server, admin) =
        Cluster::start_with_tokens(env!("CARGO_BIN_EXE_longshore"), JOBS, &[]).await;
    let flags = ["--role", "submitter", "--definitions", "hel*", "--expires", "90d"];
    let submitter = cluster.make_token(&admin, "ci", &flags);
    let short = cluster.make_token(&admin, "brief", &["--role", "viewer", "--expires", "10d"]);
    let fields = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let (code, text) = cluster.run_as(&submitter, &["whoami"]);
    let shown = fields(&text);
    assert_eq!(
        (code, &shown[..3]),
        (0, &["token ci", "role submitter", "definitions hel*"].map(str::to_owned)[..])
    );
    assert!(shown[3].starts_with("expires in 89d23h, at 20") && !text.contains("warning"), "{text}");
    let (code, text) = cluster.run_as(&short, &["whoami"]);
    assert!(code == 0 && text.contains("warning: the token expires in 9d 23h"), "{text}");
    let (code, text) = cluster.run_as(&admin, &["whoami", "-o", "json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &json["token"], &json["role"]), (0, &"first-admin".into(), &"admin".into()));
    let (code, text) = cluster.run_cli(&["whoami", "--server", &cluster.address()]);
    assert!(code == 3 && text.contains("needs a valid token"), "{code}: {text}");

    // Administrators learn of a token in use that expires soon; a token that was made for a short time is left out.
    server.terminate().await;
    let moved = "UPDATE tokens SET created_at = created_at - 80 * 86400000, expires_at = (unixepoch() + 5 * 86400) * 1000, \
                 last_used_at = unixepoch() * 1000 WHERE name = 'ci';
                 UPDATE tokens SET expires_at = (unixepoch() + 4 * 86400) * 1000 WHERE name = 'brief';";
    Database::execute(&cluster.path("data"), moved);
    let _server = cluster.start_server(&["--require-tokens"]).await;
    let client = http::client().build().unwrap();
    let ask = async |token: &str, path: &str| {
        let url = format!("http://{}{path}", cluster.address());
        let answer = client.get(url).header("authorization", bearer(token)).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.text().await.unwrap()
    };
    let page = ask(&admin, "/").await;
    let line = "<a href=\"/audit?by=ci\">the token ci (submitter) is in use and expires in 4d 23h</a>";
    assert!(page.contains(line) && !page.contains("brief"), "{page}");
    assert!(
        !ask(&short, "/").await.contains("is in use and expires"),
        "names of tokens are for administrators"
    );
    let page = ask(&submitter, "/jobs").await;
    assert!(page.contains("token expires in 4d 23h"), "{page}");
    let metrics = ask(&admin, "/metrics").await;
    let metric = "longshore_token_expires_timestamp_seconds ";
    let end: i64 = metrics.lines().find_map(|line| line.strip_prefix(metric)).unwrap().parse().unwrap();
    let left = end - jiff::Timestamp::now().as_second();
    assert!((4 * 86_400..=5 * 86_400).contains(&left), "{left}");
}
