//! Deploys to jobs files that cannot be replaced, and beside reloads.

use rustix::process::Signal;
use testkit::ProcessSpec;

use crate::support::{Cluster, own_mounts};

const JOBS: &str = "jobs: { old: { runtime: fake } }\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_jobs_file_on_a_mount_that_refuses_it_is_named_and_stays() {
    let file = |cluster: &Cluster| cluster.path("etc/jobs.yaml").display().to_string();
    let directory = |cluster: &Cluster| cluster.path("etc").display().to_string();
    for (mount, told) in [
        // As a unit with ProtectSystem=strict has its /etc.
        (directory as fn(&Cluster) -> String, "it is on a read-only mount"),
        // As a container has a file of `docker run -v`.
        (file, "it is a mount of its own"),
    ] {
        let cluster = Cluster::new(JOBS);
        std::fs::create_dir(cluster.path("etc")).unwrap();
        std::fs::rename(cluster.path("jobs.yaml"), cluster.path("etc/jobs.yaml")).unwrap();
        let Some(mut through) = own_mounts() else {
            println!("no mounts of one's own here: only the unit tests saw a file that cannot be replaced");
            return;
        };
        let (path, jobs) = (mount(&cluster), cluster.path("jobs.yaml").display().to_string());
        let only_read = if path == file(&cluster) { "true" } else { "mount -o remount,bind,ro" };
        let mount = format!("mount --bind {path} {path} && {only_read} {path} && exec \"$@\"");
        through.extend(["sh", "-c", &mount, "sh"].map(str::to_owned));
        let spec = cluster.server_spec(&["--allow-deploy"]);
        let named = |word: String| if word == jobs { file(&cluster) } else { word };
        let arguments = spec.arguments.iter().cloned().map(named).collect();
        let server = ProcessSpec { through, arguments, ..spec }.start();
        cluster.api().wait_until_ready().await;

        std::fs::write(cluster.path("new.yaml"), "jobs: { new: { runtime: fake } }\n").unwrap();
        let new = cluster.path("new.yaml").display().to_string();
        let (code, text) = cluster.run_cli(&["deploy", &new, "--server", &cluster.address()]);
        assert!(code == 5 && text.contains(told), "{code} {text}\n{}", server.log());
        assert_eq!(std::fs::read_to_string(cluster.path("etc/jobs.yaml")).unwrap(), JOBS);
        let files = std::fs::read_dir(cluster.path("etc")).unwrap().count();
        assert_eq!(files, 1, "drafts are left");
        assert_eq!(cluster.api().get("/api/definitions").await[0]["name"], "old");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deploys_and_reloads_at_the_same_time_leave_the_file_whose_definitions_are_in_force() {
    let cluster = Cluster::new(JOBS);
    let server = cluster.start_server(&["--allow-deploy", "--watch-jobs"]).await;
    let address = cluster.address();
    let deploy_often = &|name: &str| {
        let file = cluster.path(&format!("{name}.yaml")).display().to_string();
        std::fs::write(&file, format!("jobs: {{ {name}: {{ runtime: fake }} }}\n")).unwrap();
        for _ in 0..ROUNDS {
            server.signal(Signal::HUP);
            let (code, text) = cluster.run_cli(&["deploy", &file, "--server", &address]);
            assert_eq!(code, 0, "{text}");
            // The answer comes with the definitions: another deploy may have replaced them since.
            let definitions = cluster.run_cli(&["definitions", "--server", &address, "-o", "json"]).1;
            assert!(!definitions.contains("\"old\""), "{definitions}");
        }
    };
    std::thread::scope(|scope| {
        for name in ["one", "two"] {
            scope.spawn(move || deploy_often(name));
        }
    });
    let file = std::fs::read_to_string(cluster.path("jobs.yaml")).unwrap();
    let name = cluster.api().get("/api/definitions").await[0]["name"].as_str().unwrap().to_owned();
    assert!(file.contains(&format!("{{ {name}: {{")), "{name} is in force: {file}");
    assert!(!server.log().contains("refused") && !server.log().contains("not reloaded"), "{}", server.log());
}

const ROUNDS: usize = 10;
