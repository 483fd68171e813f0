//! E-mail by the real program, to a real mail server: refused for now and for good, hanging, encrypted, with a user.

use std::os::unix::fs::PermissionsExt as _;

use testkit::smtp::{MailServer, Offer, Refusal};
use testkit::{Cluster, Process, wait_until};

use super::receiver::Receiver;
use super::{jobs_file, notifications, run, start};

const PASSWORD: &str = "planted-password";
const FROM: [&str; 2] = ["--smtp-from", "Longshore <longshore@example.org>"];

fn plain(server: &MailServer) -> String {
    format!("smtp+plain://127.0.0.1:{}", server.port)
}

/// A cluster whose server hands mails to this one without encryption.
async fn start_with(server: &MailServer, notify: &str) -> (Cluster, Process, Process) {
    let flags = ["--smtp", &plain(server), FROM[0], FROM[1], "--public-url", "https://jobs.example/"];
    start(&jobs_file(notify), &[&flags[..], &super::ALLOW].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_recipient_gets_a_mail_with_the_fact_and_a_link() {
    let server = MailServer::start(Offer::default(), &[]).await;
    let notify = "{ email: [ops@example.org, dev@Example.org], on: failed }";
    let (cluster, _server, _worker) = start_with(&server, notify).await;
    let failed = run(&cluster, 3).await;
    let mut mails = server.wait_for(2).await;
    mails.sort_by(|a, b| a.to.cmp(&b.to));
    assert_eq!([&mails[0].to, &mails[1].to], ["TO:<dev@Example.org>", "TO:<ops@example.org>"]);
    let mail = &mails[1];
    assert_eq!(mail.from, "FROM:<longshore@example.org>");
    assert_eq!(mail.header("Subject"), format!("[longshore] nightly failed: exit 3 (job {failed})"));
    assert_eq!(mail.header("To"), "ops@example.org");
    assert_eq!(mail.header("From"), "Longshore <longshore@example.org>");
    assert_eq!(mail.header("Auto-Submitted"), "auto-generated");
    assert_ne!(mail.header("Message-ID"), mails[0].header("Message-ID"));
    assert!(mail.text.contains(&format!("\nhttps://jobs.example/jobs/{failed}\n")), "{}", mail.text);
    assert!(
        mail.text.contains(&format!("\njob         {failed}, failed after 1 attempt\n")),
        "{}",
        mail.text
    );
    for line in ["\nworker      only\n", "\nstarted     ", "\nran         "] {
        assert!(mail.text.contains(line), "{}", mail.text);
    }

    let address = cluster.address();
    let (code, text) = cluster.run_cli(&["notify", "test", "nightly", "--server", &address]);
    assert!(code == 0 && text.contains("email") && text.contains("dev@example.org"), "{code}: {text}");
    let mails = server.wait_for(4).await;
    assert_eq!(mails[3].header("Subject"), "[longshore] Test: nightly failed");
    let definition = cluster.api().get("/api/definitions/nightly").await;
    assert_eq!(definition["notify"][0]["kind"], "email", "{definition}");
    assert_eq!(definition["notify"][1]["host"], "dev@example.org", "{definition}");
    wait_until("both are delivered", async || {
        notifications(&cluster).await.iter().filter(|row| row["state"] == "delivered").count() == 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_that_was_refused_for_now_is_sent_again_as_the_same_mail() {
    let refusals = [Refusal::Answer("RCPT", "451 4.7.1 greylisted"), Refusal::Answer(".", "452 4.3.1 full")];
    let server = MailServer::start(Offer::default(), &refusals).await;
    let (cluster, _server, _worker) = start_with(&server, "{ email: ops@example.org, on: failed }").await;
    run(&cluster, 3).await;
    for answer in ["(451): 4.7.1 greylisted", "(452): 4.3.1 full"] {
        wait_until(answer, async || {
            let error = notifications(&cluster).await[0]["error"].to_string();
            error.contains("refused the mail (") && error.contains(answer)
        })
        .await;
    }
    let mails = server.wait_for(1).await;
    wait_until("it is delivered at the third try", async || {
        let row = &notifications(&cluster).await[0];
        row["state"] == "delivered" && row["tries"] == 3 && row["error"].is_null()
    })
    .await;
    assert!(mails[0].header("Message-ID").starts_with("<msg_"), "{mails:?}");
    assert_eq!(server.mails().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_that_was_refused_for_good_is_not_sent_again() {
    let server =
        MailServer::start(Offer::default(), &[Refusal::Answer("RCPT", "550 5.1.1 no such user")]).await;
    let (cluster, _server, _worker) = start_with(&server, "{ email: gone@example.org, on: failed }").await;
    run(&cluster, 3).await;
    wait_until("it is given up", async || notifications(&cluster).await[0]["state"] == "failed").await;
    let row = notifications(&cluster).await[0].clone();
    let error = row["error"].as_str().unwrap();
    assert!(error.contains("refused the mail for good (550): 5.1.1 no such user"), "{error}");
    assert_eq!((row["tries"].as_u64(), row["kind"].as_str()), (Some(1), Some("email")), "{row}");
    let page = String::from_utf8_lossy(&cluster.api().get_bytes("/notifications").await).into_owned();
    assert!(page.contains("Failing targets") && page.contains("email gone@example.org"), "{page}");
    let metrics = String::from_utf8_lossy(&cluster.api().get_bytes("/metrics").await).into_owned();
    let failed = "longshore_notification_tries_total{kind=\"email\",result=\"failed\"} 1";
    assert!(metrics.contains(failed), "{metrics}");
    assert!(server.mails().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_server_that_hangs_delays_no_other_target() {
    let server = MailServer::start(Offer::default(), &[Refusal::Hang]).await;
    let receiver = Receiver::start(&[]).await;
    let hook = format!("webhook: 'http://127.0.0.1:{}/hook'", receiver.port);
    let notify = format!("[{{ email: ops@example.org, on: failed }}, {{ {hook}, on: failed }}]");
    let (cluster, _server, _worker) = start_with(&server, &notify).await;
    run(&cluster, 3).await;
    receiver.wait_for(1).await;
    assert!(server.mails().is_empty(), "the mail hangs");
    server.release();
    let mails = server.wait_for(1).await;
    assert_eq!(mails[0].to, "TO:<ops@example.org>");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_goes_encrypted_with_user_and_password_which_are_shown_nowhere() {
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), &jobs_file("{ email: ops@example.org }"));
    let path = |name: &str| cluster.path(name).display().to_string();
    let (code, text) = cluster.run_cli(&["cert", "--host", "jobs.example", "--dir", &path("tls")]);
    assert_eq!(code, 0, "{text}");
    let password = |text: &str| {
        std::fs::write(cluster.path("password"), format!("{text}\n")).unwrap();
        std::fs::set_permissions(cluster.path("password"), std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    let offer = Offer::tls(&cluster.path("tls")).login("jobs", PASSWORD);
    let (start_tls, implicit) =
        (MailServer::start(offer.clone(), &[]).await, MailServer::start(offer.implicit(), &[]).await);
    let flags = |url: &str| {
        let file = path("password");
        let flags = ["--smtp", url, FROM[0], FROM[1], "--smtp-user", "jobs", "--smtp-password-file", &file];
        flags.map(str::to_owned)
    };
    let mut shown = String::new();
    let authority = path("tls/ca.pem");
    for (url, given, authority, result) in [
        (format!("smtp://127.0.0.1:{}", start_tls.port), PASSWORD, Some(&authority), "took the message"),
        (format!("smtps://127.0.0.1:{}", implicit.port), PASSWORD, Some(&authority), "took the message"),
        (
            format!("smtp://127.0.0.1:{}", start_tls.port),
            "planted-other",
            Some(&authority),
            "refused user and password of \"jobs\" (535)",
        ),
        // The system does not know the authority.
        (format!("smtp://127.0.0.1:{}", start_tls.port), PASSWORD, None, "invalid peer certificate"),
        (format!("smtps://127.0.0.1:{}", implicit.port), PASSWORD, None, "invalid peer certificate"),
    ] {
        password(given);
        let flags = flags(&url);
        let mut command = cluster.server_spec(&flags.each_ref().map(String::as_str)).command();
        if let Some(authority) = authority {
            command.env("SSL_CERT_FILE", authority);
        }
        let mut server = Process::spawn(command, &cluster.path("server.log")).unwrap();
        cluster.api().wait_until_ready().await;
        let (_, text) = cluster.run_cli(&["notify", "test", "nightly", "--server", &cluster.address()]);
        assert!(text.contains(result), "{url}: {text}");
        server.terminate().await;
        shown.push_str(&text);
        shown.push_str(&server.log());
    }
    for mails in [start_tls.mails(), implicit.mails()] {
        assert_eq!(mails.len(), 1, "nothing was sent without trust: {mails:?}");
        assert!(mails[0].encrypted && mails[0].user.as_deref() == Some("jobs"), "{mails:?}");
    }
    let encoded = data_encoding::BASE64.encode(format!("\0jobs\0{PASSWORD}").as_bytes());
    assert!(!shown.contains("planted") && !shown.contains(&encoded), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_server_without_starttls_gets_nothing() {
    let server = MailServer::start(Offer::default(), &[]).await;
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), &jobs_file("{ email: ops@example.org }"));
    let url = format!("smtp://127.0.0.1:{}", server.port);
    let _server = cluster.start_server(&["--smtp", &url, FROM[0], FROM[1]]).await;
    let (code, text) = cluster.run_cli(&["notify", "test", "nightly", "--server", &cluster.address()]);
    assert!(code == 1 && text.contains("offers no STARTTLS; smtps:// has TLS"), "{code}: {text}");
    assert!(server.mails().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_recipients_is_refused_by_a_server_without_mail_server() {
    let jobs = jobs_file("{ email: ops@example.org }");
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), &jobs);
    let (code, text) = cluster.server_spec(&[]).run();
    let fault = "jobs.yaml:7:22: invalid_value: email: this server sends no e-mail; start it with --smtp and --smtp-from";
    assert!(code == 2 && text.contains(fault), "{code}: {text}");
    // Away from its server nobody knows.
    let file = cluster.path("jobs.yaml").display().to_string();
    let (code, text) = cluster.run_cli(&["validate", &file]);
    assert_eq!(code, 0, "{text}");
    // A reload is refused as well, and the definitions stay.
    std::fs::write(&file, jobs_file("[]")).unwrap();
    let _server = cluster.start_server(&[]).await;
    std::fs::write(&file, jobs).unwrap();
    let (code, text) = cluster.run_cli(&["reload", "--server", &cluster.address()]);
    assert!(code != 0 && text.contains("this server sends no e-mail"), "{code}: {text}");
    assert_eq!(cluster.api().get("/api/definitions").await.as_array().unwrap().len(), 1);
}
