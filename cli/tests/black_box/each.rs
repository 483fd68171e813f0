//! `longshore run --each`: a batch from the lines of a file or of standard input, with real processes.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its cluster fails")]

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::running::Running;
use crate::stub::{JSON, Stub, run};

const JOBS: &str = "version: 1
jobs:
  resize:
    runtime: process
    command: [sh, -c, 'echo \"$1 $2\"', sh, '${params.size}', '${params.mode}']
    params:
      size: { type: integer, required: true }
      mode: { type: string, default: slow }
  two:
    runtime: process
    command: ['true', '${params.a}', '${params.b}']
    params: { a: { required: true }, b: { required: true } }
  none: { runtime: process, command: ['true'] }
";

impl Running {
    /// Writes a file into the directory of the cluster.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.cluster.path(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// The parameters of the members of the batch that begins with this job.
    async fn params_of(&self, first: u64, count: u64) -> Vec<Value> {
        let mut all = Vec::new();
        for id in first..first + count {
            all.push(self.api.get(&format!("/api/jobs/{id}")).await["params"].clone());
        }
        all
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_line_of_a_file_is_a_job_with_that_parameter() {
    let running = Running::start(JOBS).await;
    let sizes = running.file("sizes.txt", "640\n\n800\r\n");
    let flags = ["run", "resize", "--each", &sizes, "-p", "mode=fast", "--batch-name", "sizes", "--wait"];
    let said = running.run_cli(&flags);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("2 succeeded") && said.out.contains("sizes"), "{said:?}");
    let params = |size, mode| json!({ "size": size, "mode": mode });
    assert_eq!(running.params_of(1, 2).await, [params(640, "fast"), params(800, "fast")]);
    assert!(running.run_cli(&["logs", "2"]).out.contains("800 fast"));

    let records = running.file("jobs.csv", "mode,size\n\"a, b\",1\n,2\n");
    let flags = ["run", "resize", "--each", &records, "-p", "mode=other", "--quiet"];
    assert_eq!(running.run_cli(&flags).out, "3\n");
    assert_eq!(running.params_of(3, 2).await, [params(1, "a, b"), params(2, "other")]);
    let objects = running.file("jobs.jsonl", "{\"size\":3}\n");
    assert_eq!(running.run_cli(&["run", "resize", "--each", &objects, "--quiet"]).out, "5\n");

    let mut command =
        crate::stub::longshore(&["run", "resize", "--each", "-", "--each-as", "mode", "-p", "size=4"]);
    let address = format!("http://{}", running.cluster.address());
    let command = command.env("LONGSHORE_SERVER", address).arg("--quiet");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"one\ntwo").unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), out.stdout.as_slice()), (Some(0), &b"6\n"[..]), "{out:?}");
    assert_eq!(running.params_of(6, 2).await, [params(4, "one"), params(4, "two")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_of_a_line_names_it_and_no_job_is_made() {
    let running = Running::start(JOBS).await;
    let refused = |name: &str, file: &str, more: &[&str]| {
        let said = running.run_cli(&[&["run", name, "--each", file], more].concat());
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
        said.err
    };
    let sizes = running.file("sizes.txt", "640\n\nwide\n");
    let told = refused("resize", &sizes, &[]);
    assert!(told.contains("line 3: ") && told.contains("params.size"), "{told}");
    let records = running.file("jobs.csv", "size,mode\n1\n");
    let told = refused("resize", &records, &[]);
    assert!(told.contains("jobs.csv:2: it has 1 fields, and the header names 2"), "{told}");
    assert!(refused("resize", &records, &["--each-as", "size"]).contains("--each-as is for lines"));
    assert!(refused("two", &sizes, &[]).contains("two requires several parameters: a, b"));
    assert!(refused("none", &sizes, &[]).contains("none has no parameters"));
    assert!(refused("resize", &sizes, &["-p", "size=1"]).contains("name it with --each-as"));
    let both = refused("resize", &sizes, &["-p", "size=1", "--each-as", "size"]);
    assert!(both.contains("the parameter size is the line, and is given with -p as well"), "{both}");
    let empty = running.file("empty.txt", " \n");
    assert!(refused("resize", &empty, &[]).contains("has no line for a job"));
    assert!(refused("resize", "/nowhere/sizes.txt", &[]).contains("cannot read /nowhere/sizes.txt"));
    assert_eq!(running.run_cli(&["run", "two", "--each", &sizes, "--count", "2"]).code, 2);
    assert_eq!(running.api.get("/api/jobs").await, json!([]));
}

#[test]
fn each_sends_one_request_whose_lines_are_those_of_the_file() {
    let stub = Stub::new();
    let made = r#"{"batch":12,"count":2,"first":12,"last":13,"created_at":"2026-03-01T09:30:00.000Z"}"#;
    let path = "POST /api/jobs?batch_name=b&max_failures=3&concurrency=2&require_worker=1";
    stub.on(path, "201 Created", JSON, made);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "x\n\ny\n").unwrap();
    let file = file.path().display().to_string();
    let options = ["--batch-name", "b", "--max-failures", "3", "--concurrency", "2", "--require-worker"];
    let words =
        [&["run", "resize", "--each", &file, "--each-as", "size", "--label", "a=b"][..], &options].concat();
    let said = run(&mut stub.longshore(&words));
    assert_eq!(said.code, 0, "{said:?}");
    let requests = stub.requests();
    let lines: Vec<&str> = requests[0].body.split('\n').collect();
    let job = |size| format!(r#"{{"labels":{{"a":"b"}},"name":"resize","params":{{"size":"{size}"}}}}"#);
    assert_eq!(lines, [job("x"), String::new(), job("y"), String::new()]);
    assert_eq!(requests.len(), 1, "the definition is not asked for");

    let twice =
        run(&mut stub.longshore(&["run", "resize", "--each", "-", "--each-as", "size", "--input", "-"]));
    assert_eq!((twice.code, stub.requests().len()), (2, 1), "{twice:?}");
    assert!(twice.err.contains("--each and --input cannot both read standard input"), "{twice:?}");
}
