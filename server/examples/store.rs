//! Measures the store: jobs a second, and microseconds of processor per job, in groups of 1,000.
//!
//! `cargo run --release -p longshore-server --example store -- [history] [directory]`
//!
//! Three groups for every 1,000 jobs: added, assigned, started and ended. First on an empty store, then on top of `history` ended
//! jobs (2,000,000 if not given); at last a restart with a million waiting jobs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_server::store::directory::DataDirectory;
use longshore_server::store::sqlite::{self, SqliteArchive, SqliteStore};
use longshore_server::store::{Archive, Group, JobFilter, Loaded, Store, StoredDefinition, live_jobs};
use protocol::report::{Outcome, OutputLengths};
use protocol::{AttemptNo, Fence, JobId, Nonce, Revision, SessionId, Timestamp, Token, WorkerId};
use scheduler::ids::GroupNo;
use scheduler::job::State;
use scheduler::step::{AddedJob, Assigned, Change, ClosedAttempt, Ended};

const GROUP: u64 = 1_000;
const WORKERS: u64 = 20;
const WAITING: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let history = arguments.next().map_or(Ok(2_000_000), |number| number.parse())?;
    let place =
        arguments.next().map_or_else(|| std::env::temp_dir().join("longshore-store-cost"), PathBuf::from);
    let _ = std::fs::remove_dir_all(&place);
    let mut bench = StoreBench::open(&place)?;
    println!(
        "{:>9} {:>9} {:>9}   µs of wall time a job: added, assigned, ended",
        "history", "jobs/s", "cpu µs"
    );
    bench.lives(250_000)?;
    while bench.job < history {
        bench.lives(250_000.min(history - bench.job))?;
    }
    bench.folded(250_000)?;
    bench.reads()?;
    for _ in 0..WAITING / GROUP {
        let changes = bench.take(GROUP).map(added).collect();
        bench.commit(changes)?;
    }
    drop(bench);
    let before = Instant::now();
    let bench = StoreBench::open(&place)?;
    println!(
        "restart with {WAITING} waiting jobs: {:.2} s ({} live)",
        before.elapsed().as_secs_f64(),
        bench.live
    );
    drop(bench);
    std::fs::remove_dir_all(&place)?;
    Ok(())
}

struct StoreBench {
    store: SqliteStore,
    archive: SqliteArchive,
    loaded: Loaded,
    live: u64,
    job: u64,
    definition: Arc<StoredDefinition>,
}

impl StoreBench {
    fn open(place: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        let (mut store, archive) = sqlite::open(&Arc::new(DataDirectory::take(place)?))?;
        let mut live = 0;
        let loaded = store.load(&mut live_jobs(|_| live += 1))?;
        let definition = StoredDefinition { revision: Revision(1), name: "noop".into(), entry: "{}".into() };
        Ok(Self { store, archive, job: loaded.last_job.0, loaded, live, definition: Arc::new(definition) })
    }

    fn take(&mut self, count: u64) -> std::ops::Range<u64> {
        let first = self.job + 1;
        self.job += count;
        first..first + count
    }

    fn commit(&mut self, changes: Vec<Change>) -> Result<Duration, Box<dyn std::error::Error>> {
        self.loaded.group = GroupNo(self.loaded.group.0 + 1);
        let group = Group {
            epoch: self.loaded.epoch,
            number: self.loaded.group,
            at: Timestamp(0),
            definitions: vec![Arc::clone(&self.definition)],
            changes,
            ..Group::default()
        };
        let before = Instant::now();
        self.store.commit(&group)?;
        Ok(before.elapsed())
    }

    /// Three groups for each thousand.
    fn lives(&mut self, jobs: u64) -> Result<(), Box<dyn std::error::Error>> {
        let history = self.job;
        let (cpu, mut wall) = (cpu_seconds()?, [Duration::ZERO; 3]);
        for _ in 0..jobs / GROUP {
            let ids = self.take(GROUP);
            wall[0] += self.commit(ids.clone().map(added).collect())?;
            wall[1] += self.commit(ids.clone().map(assigned).collect())?;
            wall[2] += self.commit(ids.flat_map(over).collect())?;
        }
        let (cpu, each) = (cpu_seconds()? - cpu, wall.map(|time| time.as_secs_f64() * 1e6 / jobs as f64));
        let rate = 1e6 / each.iter().sum::<f64>();
        let [first, second, third] = each;
        println!(
            "{history:>9} {rate:>9.0} {:>9.2}   {first:.2} {second:.2} {third:.2}",
            cpu * 1e6 / jobs as f64
        );
        Ok(())
    }

    /// Two groups for each thousand: added and assigned at once, as it is when workers wait for jobs.
    fn folded(&mut self, jobs: u64) -> Result<(), Box<dyn std::error::Error>> {
        let (cpu, mut wall) = (cpu_seconds()?, Duration::ZERO);
        for _ in 0..jobs / GROUP {
            let ids = self.take(GROUP);
            wall += self.commit(ids.clone().flat_map(|id| [added(id), assigned(id)]).collect())?;
            wall += self.commit(ids.flat_map(over).collect())?;
        }
        let rate = jobs as f64 / wall.as_secs_f64();
        println!(
            "added and assigned in one group: {rate:.0} jobs/s, {:.2} cpu µs",
            (cpu_seconds()? - cpu) * 1e6 / jobs as f64
        );
        Ok(())
    }

    fn reads(&self) -> Result<(), Box<dyn std::error::Error>> {
        let name = Some("noop".to_owned());
        let all = JobFilter { limit: 100, ..JobFilter::default() };
        for (what, filter) in [
            ("newest", all.clone()),
            ("by name", JobFilter { name, ..all.clone() }),
            ("by worker", JobFilter { worker: Some(WorkerId(3)), ..all.clone() }),
            ("failed", JobFilter { states: vec![State::Failed], ..all.clone() }),
            ("running", JobFilter { states: vec![State::Running], ..all.clone() }),
            ("unheard name", JobFilter { name: Some("unheard".into()), ..all }),
        ] {
            let before = Instant::now();
            let found = self.archive.jobs(&filter)?.len();
            println!("list {what}: {found} jobs in {:.2} ms", before.elapsed().as_secs_f64() * 1e3);
        }
        Ok(())
    }
}

fn token(job: u64) -> Token {
    Token { job: JobId(job), fence: Fence(job), nonce: Nonce(job.wrapping_mul(0x9E37_79B9_7F4A_7C15)) }
}

fn added(job: u64) -> Change {
    Change::Added(AddedJob {
        job: JobId(job),
        revision: Revision(1),
        state: State::Queued,
        priority: 0,
        created_at: Timestamp(1_763_000_000_000),
        due_at: Timestamp(1_763_000_000_000),
        timeout: None,
        batch: None,
        retry_of: None,
        submitted_by: None,
        narrowing: None,
        keys: None,
        details: None,
    })
}

fn assigned(job: u64) -> Change {
    Change::Assigned(Assigned {
        gpus: Vec::new(),
        token: token(job),
        number: AttemptNo(1),
        worker: WorkerId(1 + job % WORKERS),
        session: SessionId(7),
        at: Timestamp(1_763_000_000_001),
    })
}

fn over(job: u64) -> [Change; 2] {
    let started_at = Timestamp(1_763_000_000_002);
    let ended_at = Timestamp(1_763_000_000_003);
    let closed = ClosedAttempt {
        token: token(job),
        outcome: Outcome::Succeeded,
        exit_code: Some(0),
        message: String::new(),
        started_at: Some(started_at),
        ended_at,
        output: OutputLengths { stdout: 100, stderr: 0 },
        usage: Default::default(),
        result: None,
        released: None,
    };
    [
        Change::Started { token: token(job), at: started_at, container: String::new() },
        Change::Ended(Ended {
            job: JobId(job),
            state: State::Succeeded,
            at: ended_at,
            reason: String::new(),
            closed: Some(closed),
            confirmed: false,
        }),
    ]
}

/// Processor time of this process so far. The kernel counts it in hundredths of a second.
fn cpu_seconds() -> Result<f64, Box<dyn std::error::Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(") ").ok_or("no name in stat")?.1;
    let mut fields = after_name.split(' ').skip(11);
    let mut ticks = || fields.next().and_then(|field| field.parse::<f64>().ok()).ok_or("no time in stat");
    Ok((ticks()? + ticks()?) / 100.0)
}
