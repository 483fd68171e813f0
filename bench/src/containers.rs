//! The cost that Longshore adds to `docker run`: the same containers, by Longshore and by the bare command line, in turns.
//!
//! The bare ones get the same arguments that a worker would use. The order of the three variants rotates each round, so that the load of the
//! engine and warm caches affect all of them equally. Longshore is timed at two points: when all jobs have ended (compare `docker run`), and
//! when all containers are removed (compare run, inspect and rm).

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use client::runtime::Membership;
use client::runtime::argv::{CommandLine, docker_run};
use protocol::container::ContainerSpec;
use protocol::{ClusterId, Fence, JobId, Nonce, Revision, RuntimeKind, Token, WorkerId};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use worker::step::Launch;

use crate::database::Counts;
use crate::load::{Load, Pace};
use crate::record::{Record, log_progress};
use crate::run_dir::{BenchEnv, WorkerCapacity, WorkerPool};
use crate::waiting;

/// Takes the figures at parallelism 1, 2 and 4.
pub(crate) async fn measure(env: &BenchEnv, jobs: u64, image: &str) -> anyhow::Result<()> {
    docker(&["image", "inspect", "--", image])
        .await
        .with_context(|| format!("the image {image} is needed; see --image"))?;
    for parallel in [1, 2, 4] {
        log_progress(&format!("{jobs} containers, {parallel} at once"));
        take(env, jobs, parallel, image).await?;
    }
    Ok(())
}

async fn take(env: &BenchEnv, jobs: u64, parallel: u32, image: &str) -> anyhow::Result<()> {
    let run_dir =
        env.run_dir(&format!("version: 1\njobs:\n  {NAME}: {{ image: '{image}', command: ['true'] }}\n"))?;
    let (server, _) = run_dir.server().await?;
    let capacity = WorkerCapacity { slots: parallel, backlog: parallel };
    let pool = WorkerPool { workers: 1, capacity: Some(capacity), allow: None };
    let workers = run_dir.workers(&server, &pool).await?;
    let batch = (jobs / TURNS).max(1);
    let load = Load { jobs: batch, batch, connections: 1, name: NAME, pace: Pace::Accepted };
    let (mut ended, mut removed, mut with_inspect, mut alone) =
        (Duration::ZERO, Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for turn in 0..TURNS {
        for variant in order(turn) {
            match variant {
                Variant::Longshore => {
                    let began = load.submit(server.address).await?.began;
                    ended += waiting::until_all_ended(&server).await?.duration_since(began);
                    until_removed().await?;
                    removed += began.elapsed();
                }
                Variant::RunInspectRemove => {
                    with_inspect += by_hand(turn * 2, batch, parallel, image, true).await?;
                }
                Variant::Run => alone += by_hand(turn * 2 + 1, batch, parallel, image, false).await?,
            }
        }
    }
    for worker in workers {
        worker.stop().await?;
    }
    server.process.stop().await?;
    let counts = Counts::read(&run_dir.data(), 0)?;
    counts.require_success(batch * TURNS)?;
    let mut record = Record::new("containers");
    record.set("jobs", batch * TURNS);
    record.set("turns", TURNS);
    record.set("parallel", parallel);
    record.set("image", image);
    record.figure("longshore_ended_s", ended.as_secs_f64());
    record.figure("longshore_removed_s", removed.as_secs_f64());
    record.figure("run_inspect_rm_s", with_inspect.as_secs_f64());
    record.figure("run_s", alone.as_secs_f64());
    for (theirs, by_hand) in [("run_inspect_rm", with_inspect), ("run", alone)] {
        record.figure(&format!("ended_to_{theirs}"), ended.as_secs_f64() / by_hand.as_secs_f64());
        record.figure(&format!("removed_to_{theirs}"), removed.as_secs_f64() / by_hand.as_secs_f64());
    }
    record.set("verified", counts);
    record.print();
    Ok(())
}

/// A program that runs the containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Longshore,
    RunInspectRemove,
    Run,
}

/// The order of the variants in a round.
fn order(turn: u64) -> [Variant; 3] {
    let mut variants = [Variant::Longshore, Variant::RunInspectRemove, Variant::Run];
    variants.rotate_left((turn % 3) as usize);
    variants
}

/// Runs containers with the bare command line, this number at once; how long that takes. What `run` alone leaves behind is removed
/// after the clock was stopped.
async fn by_hand(
    turn: u64,
    count: u64,
    parallel: u32,
    image: &str,
    inspect_and_remove: bool,
) -> anyhow::Result<Duration> {
    let lines: Vec<(String, CommandLine)> =
        (1..=count).map(|n| line(turn * count + n, image)).collect::<anyhow::Result<_>>()?;
    let names: Vec<String> = lines.iter().map(|(name, _)| name.clone()).collect();
    let began = Instant::now();
    let queue = Arc::new(tokio::sync::Mutex::new(lines));
    let mut hands = tokio::task::JoinSet::new();
    for _ in 0..parallel {
        let queue = queue.clone();
        hands.spawn(async move {
            loop {
                let Some((name, line)) = queue.lock().await.pop() else { return anyhow::Ok(()) };
                run(&line).await?;
                if inspect_and_remove {
                    docker(&["inspect", "--", &name]).await?;
                    docker(&["rm", "--", &name]).await?;
                }
            }
        });
    }
    while let Some(done) = hands.join_next().await {
        done??;
    }
    let took = began.elapsed();
    if !inspect_and_remove {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        docker(&[&["rm", "--"][..], &names].concat()).await?;
    }
    Ok(took)
}

/// The words that a worker would use for such a container.
fn line(n: u64, image: &str) -> anyhow::Result<(String, CommandLine)> {
    // A cluster of this process's own: no worker will ever take these containers for its own.
    let cluster = ClusterId(std::process::id());
    let token = Token { job: JobId(n), fence: Fence(n), nonce: Nonce(n) };
    let spec = ContainerSpec {
        runtime: RuntimeKind::Docker,
        image: image.to_owned(),
        command: vec!["true".to_owned()],
        init: true,
        stop_grace: Duration::from_secs(10),
        ..ContainerSpec::default()
    };
    let launch = Launch {
        token,
        revision: Revision::default(),
        name: "true".into(),
        spec: Arc::new(spec),
        overrides: None,
        time_left: None,
        secrets: Default::default(),
    };
    let membership = Membership { cluster, worker: WorkerId(1) };
    Ok((token.container_name(cluster), docker_run(&launch, membership, None)?))
}

async fn run(line: &CommandLine) -> anyhow::Result<()> {
    let mut command = Command::new("docker");
    command
        .args(&line.args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&line.environment).await?;
    }
    let output = child.wait_with_output().await?;
    if !output.status.success() {
        bail!("docker run: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Waits until the engine has none of our containers any more. The last `docker ps` is part of Longshore's time.
async fn until_removed() -> anyhow::Result<()> {
    while !docker(&["ps", "--all", "--quiet", "--filter", CONTAINER_FILTER]).await?.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

async fn docker(words: &[&str]) -> anyhow::Result<Vec<u8>> {
    let output = Command::new("docker").args(words).stdin(Stdio::null()).kill_on_drop(true).output().await?;
    if !output.status.success() {
        bail!("docker {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}

/// The definition of the jobs.
const NAME: &str = "bench-container";
/// Selects the containers of this benchmark among all of the engine.
const CONTAINER_FILTER: &str = "label=longshore.definition=bench-container";
/// Each of the three ways is first, second and last equally often.
const TURNS: u64 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_takes_each_position_equally_often() {
        for variant in order(0) {
            for position in 0..3 {
                let times = (0..TURNS).filter(|turn| order(*turn)[position] == variant).count() as u64;
                assert_eq!(times, TURNS / 3, "{variant:?} at position {position}");
            }
        }
    }
}
