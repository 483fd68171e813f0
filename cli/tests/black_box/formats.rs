//! Output formats and completions, against a stub server.

use testkit::{Cluster, Process, ProcessSpec, wait_until};

use crate::stub::{JSON, Stub, job, longshore, run};

const WORKERS: &str = r#"[
    {"id":1,"name":"anna","state":"ready","connected":true,"slots":4,"busy":1,"since":"2026-03-01T09:30:00.000Z","address":"10.0.0.7:4000","labels":{"zone":"b"}},
    {"id":2,"name":"=bob","state":"ready","connected":true,"slots":4,"busy":0,"since":"2026-03-01T09:30:00.000Z"}]"#;

#[test]
fn a_list_can_be_had_in_every_format() {
    let stub = Stub::new();
    stub.on("GET /api/workers", "200 OK", JSON, WORKERS);
    let workers = |format: &str| {
        let said = run(&mut stub.longshore(&["workers", "-o", format]));
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{format}");
        said.out
    };
    let given: serde_json::Value = serde_json::from_str(WORKERS).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&workers("json")).unwrap(), given);
    let lines: Vec<serde_json::Value> =
        workers("ndjson").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(&serde_json::Value::from(lines), &given);
    assert_eq!(workers("name"), "anna\n=bob\n");
    let csv = workers("csv");
    assert_eq!(
        csv.lines().collect::<Vec<_>>(),
        [
            "id,name,state,address,busy,connected,labels,since,slots",
            "1,anna,ready,10.0.0.7:4000,1,true,\"{\"\"zone\"\":\"\"b\"\"}\",2026-03-01T09:30:00.000Z,4",
            "2,\"'=bob\",ready,,0,true,,2026-03-01T09:30:00.000Z,4",
        ]
    );
    let (table, wide) = (workers("table"), workers("wide"));
    assert!(!table.contains("10.0.0.7") && wide.contains("10.0.0.7:4000"), "{table}{wide}");
}

#[test]
fn wide_jobs_and_definitions_show_more() {
    let stub = Stub::new();
    let jobs = format!("[{}]", job(7, r#""state":"failed","priority":5,"labels":{"team":"red"}"#));
    stub.on("GET /api/jobs?limit=20", "200 OK", JSON, &jobs);
    let long = "d".repeat(70);
    let definition = format!(
        r#"[{{"name":"resize","revision":"5c1e","enabled":true,"runtime":"docker","description":"{long}"}}]"#
    );
    stub.on("GET /api/definitions?last_ended=1", "200 OK", JSON, &definition);
    let said = |arguments: &[&str]| run(&mut stub.longshore(arguments)).out;
    let wide = said(&["ls", "-o", "wide"]);
    assert!(wide.contains("2026-03-01T09:30:00.000Z") && wide.contains("team=red"), "{wide}");
    assert!(!said(&["definitions"]).contains(&long));
    assert!(said(&["definitions", "-o", "wide"]).contains(&long));
    let all = format!("[{}]", job(7, r#""state":"failed""#));
    stub.on("GET /api/jobs?limit=500", "200 OK", JSON, &all);
    assert_eq!(said(&["ls", "-o", "name"]), "7\n", "as --quiet");
}

#[test]
fn schedules_that_a_clock_silenced_are_named_beside_the_list() {
    let stub = Stub::new();
    let schedule = |id: &str, more: &str| {
        format!(
            r#"{{"name":"report","id":"{id}","rule":"every 1h","timezone":"UTC","state":"active","next":["2026-11-30T14:00:00.000Z"]{more}}}"#
        )
    };
    let ahead = schedule("main", r#","decided_until":"2026-11-30T13:00:00.000Z""#);
    let listed = format!("[{},{ahead}]", schedule("other", ""));
    stub.on("GET /api/schedules", "200 OK", JSON, &listed);
    let said = run(&mut stub.longshore(&["schedules"]));
    assert_eq!((said.code, said.out.lines().count()), (0, 3), "{said:?}");
    let warning = "warning: report (main) fires nothing until 2026-11-30T13:00:00.000Z\n";
    assert!(said.err.starts_with(warning) && said.err.contains("another id in jobs.yaml"), "{said:?}");
    assert_eq!(said.err.lines().count(), 2, "{said:?}");
    let json = run(&mut stub.longshore(&["schedules", "-o", "json"]));
    assert_eq!((json.code, json.err.as_str()), (0, ""));
}

#[test]
fn the_next_slot_of_a_paused_schedule_is_one_that_fires() {
    let stub = Stub::new();
    let schedule = |id: &str, state: &str, more: &str| {
        format!(
            r#"{{"name":"report","id":"{id}","rule":"every 1h","timezone":"UTC","state":"{state}",
                "next":["2026-11-30T14:00:00.000Z","2026-11-30T15:00:00.000Z"]{more}}}"#
        )
    };
    let jitter = r#","next_due":["2026-11-30T14:00:07.000Z","2026-11-30T15:00:08.000Z"]"#;
    let until = |at: &str, more: &str| format!(r#","paused_until":"2026-11-30T{at}:00.000Z"{more}"#);
    let listed = [
        schedule("a", "active", jitter),
        schedule("b", "paused", ""),
        schedule("c", "paused", &until("15:00", jitter)),
        schedule("d", "paused", &until("15:01", "")),
        schedule("e", "disabled", ""),
    ];
    stub.on("GET /api/schedules", "200 OK", JSON, &format!("[{}]", listed.join(",")));
    let said = run(&mut stub.longshore(&["schedules"]));
    let rows: Vec<String> =
        said.out.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let expected = [
        "report a every 1h UTC active 2026-11-30T14:00:00.000Z (fires 2026-11-30T14:00:07.000Z)",
        "report b every 1h UTC paused paused",
        "report c every 1h UTC paused until 2026-11-30T15:00:00.000Z 2026-11-30T15:00:00.000Z (fires 2026-11-30T15:00:08.000Z)",
        "report d every 1h UTC paused until 2026-11-30T15:01:00.000Z after 2026-11-30T15:01:00.000Z",
        "report e every 1h UTC disabled disabled",
    ];
    assert_eq!(rows, expected, "{said:?}");
}

#[test]
fn the_limit_of_a_rate_is_shown_with_its_burst() {
    let stub = Stub::new();
    let rate = |name: &str, burst: u32| {
        format!(
            r#"{{"kind":"rate","name":"{name}","interval_ms":6000,"burst":{burst},"in_use":0,"waiting":7}}"#
        )
    };
    stub.on("GET /api/limits", "200 OK", JSON, &format!("[{},{}]", rate("poll", 3), rate("slow", 1)));
    let said = run(&mut stub.longshore(&["limits"]));
    let rows: Vec<String> =
        said.out.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(rows, ["rate poll 1 per 6.0s, burst 3 0 7", "rate slow 1 per 6.0s 0 7"], "{said:?}");
}

#[test]
fn the_clock_of_a_server_is_what_its_answer_says() {
    let stub = Stub::new();
    let version = r#"{"name":"longshore","version":"0.1.0","time":"2020-01-01T00:00:00.000Z"}"#;
    stub.on("GET /version", "200 OK", JSON, version);
    let said = run(&mut stub.longshore(&["doctor", "-o", "json"]));
    assert!(said.out.contains(" s behind this machine's"), "{said:?}");
}

#[test]
fn verbs_that_make_or_change_something_name_it() {
    let stub = Stub::new();
    let made = job(7, r#""state":"queued""#);
    stub.on("POST /api/jobs/resize", "201 Created", JSON, &made);
    assert_eq!(run(&mut stub.longshore(&["run", "resize", "-o", "name"])).out, "7\n");
    stub.on("POST /api/jobs/7/cancel", "200 OK", JSON, &job(7, r#""state":"cancelled""#));
    assert_eq!(run(&mut stub.longshore(&["cancel", "7", "-o", "name"])).out, "7\n");
    let problem = r#"{"code":"unknown_job","status":404,"title":"no","detail":"no job 7"}"#;
    stub.on("GET /api/jobs/7", "404 Not Found", "application/problem+json", problem);
    let refused = run(&mut stub.longshore(&["show", "7", "-o", "csv"]));
    assert_eq!((refused.code, refused.out.as_str()), (4, ""));
    assert!(refused.err.starts_with("error: no job 7"), "an error is text: {refused:?}");
}

#[test]
fn names_are_printed_where_there_are_some() {
    let stub = Stub::new();
    for path in ["/api/pause", "/api/schedules/pause", "/api/pause?group=db"] {
        stub.on(&format!("POST {path}"), "200 OK", JSON, "{}");
    }
    let printed = |words: &[&str]| {
        let said = run(&mut stub.longshore(&[words, &["-o", "name"]].concat()));
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{words:?}");
        said.out
    };
    assert_eq!(printed(&["pause", "--all"]), "");
    assert_eq!(printed(&["pause", "--schedules"]), "");
    assert_eq!(printed(&["pause", "--group", "db"]), "db\n");

    let explained = r#"{"id":7,"name":"resize","state":"queued","reason":{"code":"busy","text":"it waits"},"limits":[],
        "workers":[{"worker":{"id":1,"name":"anna"},"verdict":"unable","text":"its slots are taken"}]}"#;
    stub.on("GET /api/jobs/7/explain", "200 OK", JSON, explained);
    assert_eq!(printed(&["explain", "7"]), "anna\n");
}

#[test]
fn verbs_within_verbs_treat_variables_and_errors_as_others_do() {
    let stub = Stub::new();
    stub.on("GET /api/tokens", "200 OK", JSON, "[]");
    let empty = ["LONGSHORE_CA_FILE", "LONGSHORE_OUTPUT", "LONGSHORE_TLS_CLIENT_CERT"].map(|name| (name, ""));
    let said = run(stub.longshore(&["token", "ls"]).envs(empty));
    assert_eq!((said.code, said.err.as_str()), (0, ""), "an empty variable counts as unset");
    let said = run(stub.longshore(&["token", "ls"]).env("LONGSHORE_OUTPUT", "xml"));
    let note = "note: the value comes from the environment variable LONGSHORE_OUTPUT\n";
    assert!(said.code == 2 && said.err.ends_with(note), "{said:?}");

    let stub = Stub::new();
    let problem = r#"{"code":"forbidden","status":403,"title":"no","detail":"needs the role admin"}"#;
    stub.on("GET /api/tokens", "403 Forbidden", "application/problem+json", problem);
    let refused = run(&mut stub.longshore(&["token", "ls", "-o", "json"]));
    let document: serde_json::Value = serde_json::from_str(&refused.err).expect("a problem document");
    assert_eq!((refused.code, &document["code"]), (3, &"forbidden".into()), "{refused:?}");
}

/// The words that a shell is offered for the last of these.
fn offered(stub: &Stub, words: &[&str]) -> Vec<String> {
    let mut command = stub.longshore(&["--"]);
    command.args(words).env("LONGSHORE_COMPLETE", "bash").env("_CLAP_IFS", "\n");
    command.env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
    let said = run(&mut command);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{words:?}");
    said.out.lines().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn names_of_definitions_and_workers_are_completed() {
    let stub = Stub::new();
    let definitions =
        r#"[{"name":"resize","description":"a\nb"},{"name":"report"},{"name":"re\nbad"},{"name":"other"}]"#;
    stub.on("GET /api/definitions", "200 OK", JSON, definitions).on(
        "GET /api/workers",
        "200 OK",
        JSON,
        WORKERS,
    );
    assert_eq!(offered(&stub, &["longshore", "run", "re"]), ["resize", "report"]);
    assert_eq!(offered(&stub, &["longshore", "ls", "--name", "o"]), ["other"]);
    assert_eq!(offered(&stub, &["longshore", "cordon", "a"]), ["anna"]);
    assert_eq!(offered(&stub, &["longshore", "upgr"]), ["upgrade-check"]);
    assert!(!stub.requests().iter().any(|asked| asked.line.starts_with("POST")));
    let elsewhere = Stub::new();
    assert!(
        offered(&elsewhere, &["longshore", "run", "re"]).is_empty(),
        "a server that refuses has no names"
    );
}

#[test]
fn the_script_of_bash_completes_with_the_program() {
    let stub = Stub::new();
    stub.on("GET /api/definitions", "200 OK", JSON, r#"[{"name":"resize"},{"name":"other"}]"#);
    let script = run(&mut longshore(&["completions", "bash"])).out;
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_longshore")).parent().unwrap().to_str().unwrap();
    let mut bash = stub.longshore(&[]);
    let server = bash.get_envs().find(|(name, _)| *name == "LONGSHORE_SERVER").unwrap().1.unwrap().to_owned();
    bash = std::process::Command::new("bash");
    bash.env_clear().env("PATH", format!("{program}:/usr/bin:/bin")).env("LONGSHORE_SERVER", server);
    let ask = "COMP_WORDS=(longshore run res); COMP_CWORD=2; COMP_TYPE=9; _clap_complete_longshore longshore res run; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let said = run(bash.args(["--norc", "-c", &format!("{script}\n{ask}")]));
    assert_eq!((said.code, said.out.trim()), (0, "resize"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_watch_prints_each_change_and_outlives_a_restart_of_the_server() {
    let jobs = "version: 1\njobs:\n  talks: { runtime: process, command: ['true'] }\n";
    let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), jobs);
    let mut server = cluster.start_server(&[]).await;
    let arguments = ["ls", "--watch", "-o", "name", "--server", &cluster.address()].map(str::to_owned);
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_longshore"));
    let mut watching = ProcessSpec::new(program, arguments.to_vec(), cluster.path("watch.log")).start();
    let make = async || cluster.api().post("/api/jobs/talks", None).await;
    make().await;
    let shows = async |watching: &Process, id: &str| {
        wait_until(&format!("job {id} in the list"), async || watching.log().lines().any(|line| line == id))
            .await;
    };
    shows(&watching, "1").await;
    make().await;
    shows(&watching, "2").await;
    server.kill();
    wait_until("the note", async || watching.log().contains("trying again")).await;
    let _server = cluster.start_server(&[]).await;
    make().await;
    shows(&watching, "3").await;
    watching.signal(rustix::process::Signal::INT);
    assert!(watching.wait_for_exit().await.success(), "{}", watching.log());
}

#[test]
fn a_deprecation_is_one_warning_beside_the_result() {
    let stub = Stub::new();
    let body = format!("[{}]", job(9, r#""state":"failed""#));
    let page = |link: &str| {
        format!(
            "HTTP/1.1 200 OK\r\ndeprecation: @1793491200\r\n{link}connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let next = page("link: </api/jobs?cursor=c2>; rel=\"next\"\r\n");
    stub.on_raw("GET /api/jobs?limit=2", next.as_bytes())
        .on_raw("GET /api/jobs?limit=1&cursor=c2", page("").as_bytes());
    let said = run(&mut stub.longshore(&["ls", "-q", "-n", "2"]));
    assert_eq!((said.code, said.out.as_str()), (0, "9\n9\n"));
    assert_eq!(
        said.err,
        "warning: the server says that this request is deprecated since 2026-11-01; upgrade this program\n"
    );
}
