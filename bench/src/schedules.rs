//! Many schedules, each of which fires once an hour: what they cost, and how long a start with them takes.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::record::{Record, log_progress};
use crate::run_dir::BenchEnv;
use crate::swarm::{AttemptHandling, Swarm, SwarmSettings};

/// Takes the figures over a minute.
pub(crate) async fn measure(env: &BenchEnv, schedules: u64) -> anyhow::Result<()> {
    log_progress(&format!("{schedules} schedules"));
    let run_dir = env.run_dir(&jobs_file(schedules))?;
    let (server, first_start) = run_dir.server().await?;
    let memory = server.process.memory_bytes()?;
    let address = server.address;
    server.process.stop().await?;
    let (server, start) = run_dir.server_at(address).await?;
    let start_cpu = server.process.cpu_us()?;
    let settings = SwarmSettings { workers: WORKERS, slots: SLOTS, attempts: AttemptHandling::Finish };
    let swarm = Swarm::start(server.address, settings)?;
    swarm.until_ready().await?;
    tokio::time::sleep(SETTLE).await;
    swarm.take_arrivals();
    let (before, began) = (server.process.cpu_us()?, Instant::now());
    tokio::time::sleep(OBSERVED).await;
    let used = (server.process.cpu_us()? - before) / began.elapsed().as_micros() as f64 * 100.0;
    let fired = swarm.take_arrivals().len();
    drop(swarm);
    server.process.stop().await?;

    let mut record = Record::new("schedules");
    record.set("schedules", schedules);
    record.set("observed_s", OBSERVED.as_secs());
    record.set("fired", fired);
    record.figure("cpu_percent_of_a_core", used);
    record.figure("first_start_s", first_start.as_secs_f64());
    record.figure("start_s", start.as_secs_f64());
    record.figure("start_cpu_s", start_cpu / 1e6);
    record.figure("memory_mib", memory as f64 / 1_048_576.0);
    record.print();
    Ok(())
}

/// The seconds of an hour in turn.
fn jobs_file(schedules: u64) -> String {
    let mut text = String::from("version: 1\njobs:\n");
    for first in (0..schedules).step_by(SCHEDULES_EACH as usize) {
        let seconds = (first..schedules.min(first + SCHEDULES_EACH)).map(|n| n % 3_600);
        let rules: Vec<String> =
            seconds.map(|second| format!("{} {} * * * *", second % 60, second / 60)).collect();
        let number = first / SCHEDULES_EACH;
        // Writing to a String never fails.
        let _ = writeln!(
            text,
            "  j{number}: {{ runtime: fake, overlap: allow, schedule: [{}] }}",
            rules.join(",")
        );
    }
    text
}

/// The most that a definition may have.
const SCHEDULES_EACH: u64 = 64;
const WORKERS: u64 = 20;
const SLOTS: u32 = 64;
const SETTLE: Duration = Duration::from_secs(3);
const OBSERVED: Duration = Duration::from_secs(60);
