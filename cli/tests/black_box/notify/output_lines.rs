//! `output_lines`: messages about failures with the last lines of the output, for targets that ask for them and no others.

use serde_json::json;

use super::receiver::Receiver;
use super::{ALLOW, run, start};

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_asks_for_output_gets_the_last_lines_and_no_other_does() {
    let receiver = Receiver::start(&[]).await;
    let jobs = format!(
        "version: 1
jobs:
  nightly:
    runtime: process
    environment: {{ PASSWORD: planted-password }}
    log: {{ mask: ['planted-[a-z]+'] }}
    params: {{ code: {{ type: integer, default: 3 }} }}
    command: [sh, -c, 'seq 1000; printf \"a \\033[31mred\\033[0m word\\n\"; echo \"$PASSWORD <end>\"; exit $PARAM_CODE']
    notify:
    - {{ webhook: 'http://127.0.0.1:{0}/with', output_lines: 3 }}
    - {{ webhook: 'http://127.0.0.1:{0}/without' }}
    - {{ slack: 'http://127.0.0.1:{0}/slack', output_lines: 2, on: failed }}
    - {{ slack: 'http://127.0.0.1:{0}/discord', format: discord, output_lines: 2, on: failed }}
",
        receiver.port
    );
    let stars = "*".repeat("planted-password".len());
    let (cluster, _server, _worker) = start(&jobs, &ALLOW).await;
    run(&cluster, 3).await;
    let received = receiver.wait_for(4).await;
    let of = |path: &str| received.iter().find(|message| message.path == path).unwrap();
    let tail = &of("/with").json()["data"]["job"]["output_tail"];
    assert_eq!(tail, format!("1000\na red word\n{stars} <end>").as_str(), "{received:?}");
    let without = of("/without");
    assert!(!without.body.contains("red") && !without.body.contains("output_tail"), "{without:?}");
    let text = of("/slack").json()["text"].as_str().unwrap().to_owned();
    assert!(text.ends_with(&format!("\n```\na red word\n{stars} &lt;end&gt;\n```")), "{text}");
    let content = of("/discord").json()["content"].as_str().unwrap().to_owned();
    assert!(content.ends_with(&format!("\n```\na red word\n{stars} <end>\n```")), "{content}");
    assert!(received.iter().all(|message| !message.body.contains("planted-password")), "{received:?}");

    // A recovery is no failure.
    run(&cluster, 0).await;
    let recovered = receiver.wait_for(6).await.split_off(4);
    assert!(
        recovered.iter().all(|message| message.json()["type"] == "definition.recovered"),
        "{recovered:?}"
    );
    assert!(recovered.iter().all(|message| !message.body.contains("red word")), "{recovered:?}");
    let shown = cluster.api().get("/api/definitions/nightly").await;
    assert_eq!(
        (&shown["notify"][0]["output_lines"], &shown["notify"][1]["output_lines"]),
        (&json!(3), &json!(null))
    );
}
