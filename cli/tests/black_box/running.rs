//! A running server with one worker, for tests of the command line.

use testkit::{Api, Cluster, Process};

use crate::stub::{CliOutput, longshore, run};

/// A running server and a worker that runs plain processes.
pub(crate) struct Running {
    pub(crate) cluster: Cluster,
    pub(crate) api: Api,
    pub(crate) server: Process,
    _worker: Process,
}

impl Running {
    /// Starts both with these definitions, and waits until the worker is ready.
    pub(crate) async fn start(jobs_file: &str) -> Self {
        let cluster = Cluster::new(env!("CARGO_BIN_EXE_longshore"), jobs_file);
        let (server, api) = (cluster.start_server(&[]).await, cluster.api());
        let worker = cluster.start_worker("only", &["--no-docker", "--allow-process", "--slots", "8"]);
        api.wait_for_ready_worker("only").await;
        Self { api, server, _worker: worker, cluster }
    }

    /// Runs the program to its end.
    pub(crate) fn run_cli(&self, arguments: &[&str]) -> CliOutput {
        run(longshore(arguments).env("LONGSHORE_SERVER", format!("http://{}", self.cluster.address())))
    }
}
