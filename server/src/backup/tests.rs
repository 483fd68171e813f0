//! Backups of a store that is being written, and what becomes of them.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use protocol::report::{Chunk, ChunkData, Outcome, OutputLengths, Stream};
use protocol::{AttemptNo, Epoch, Fence, JobId, Nonce, Revision, SessionId, Timestamp, Token, WorkerId};
use scheduler::ids::GroupNo;
use scheduler::job::State;
use scheduler::step::{AddedJob, Assigned, Change, ClosedAttempt, Ended};
use tempfile::TempDir;

use super::*;
use crate::clock;
use crate::logs::{self, AttemptKey, Logs, PieceData, Streams};
use crate::store::directory::DataDirectory;
use crate::store::sqlite::copy::{NUMBERS_LEFT_OUT, STARTS_LEFT_OUT};
use crate::store::sqlite::{self, SqliteArchive, SqliteStore};
use crate::store::{Archive, Group, LiveJob, Loaded, Store, StoredDefinition};

mod full_target;
mod schedules;

/// A server's side of a data directory: its store and its output.
struct Server {
    store: SqliteStore,
    archive: SqliteArchive,
    logs: Arc<Logs>,
    loaded: Loaded,
    live: Vec<LiveJob>,
    group: u64,
}

impl Server {
    fn start(data: &Path) -> Self {
        let directory = Arc::new(DataDirectory::take(data).unwrap());
        let (mut store, archive) = sqlite::open(&directory).unwrap();
        let mut live = Vec::new();
        let loaded = store.load(&mut crate::store::live_jobs(|job| live.push(job))).unwrap();
        let limits = logs::Limits { segment_bytes: 150, ..logs::Limits::default() };
        let logs = Logs::open(&directory.logs(), limits).unwrap();
        let group = loaded.group.0;
        Self { store, archive, logs, loaded, live, group }
    }

    fn commit(&mut self, changes: Vec<Change>) {
        self.group += 1;
        let definition =
            StoredDefinition { revision: Revision(1), name: "resize".into(), entry: "{}".into() };
        self.store
            .commit(&Group {
                epoch: self.loaded.epoch,
                number: GroupNo(self.group),
                definitions: vec![Arc::new(definition)],
                changes,
                ..Group::default()
            })
            .unwrap();
    }

    /// A job's whole life; its output arrives before its end is known.
    async fn run(&mut self, job: u64) {
        self.commit(vec![added(job), assigned(job)]);
        let data = ChunkData::Bytes(text_of(job).into_bytes());
        self.logs
            .append(vec![Chunk { token: token(job), stream: Stream::Stdout, offset: 0, data }])
            .await
            .unwrap();
        self.commit(vec![ended(job)]);
    }

    fn output(&self, job: u64) -> Vec<PieceData> {
        let attempt = AttemptKey { job: JobId(job), fence: Fence(job) };
        let page = self.logs.read(attempt, Streams::Only(Stream::Stdout), 0, 1 << 20).unwrap();
        page.pieces.into_iter().map(|piece| piece.data).collect()
    }

    fn state(&self, job: u64) -> Option<State> {
        self.archive.job(JobId(job)).unwrap().map(|record| record.row.state)
    }
}

fn token(job: u64) -> Token {
    Token { job: JobId(job), fence: Fence(job), nonce: Nonce(job) }
}

fn text_of(job: u64) -> String {
    format!("output of job {job}\n").repeat(5)
}

fn added(job: u64) -> Change {
    Change::Added(AddedJob {
        job: JobId(job),
        revision: Revision(1),
        state: State::Queued,
        priority: 0,
        created_at: Timestamp(1),
        due_at: Timestamp(1),
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
    let (token, number, at, gpus) = (token(job), AttemptNo(1), Timestamp(1), Vec::new());
    Change::Assigned(Assigned { token, number, worker: WorkerId(1), session: SessionId(1), at, gpus })
}

fn ended(job: u64) -> Change {
    let closed = ClosedAttempt {
        token: token(job),
        outcome: Outcome::Succeeded,
        exit_code: Some(0),
        message: String::new(),
        started_at: Some(Timestamp(2)),
        ended_at: Timestamp(3),
        output: OutputLengths { stdout: text_of(job).len() as u64, stderr: 0 },
        usage: Default::default(),
        result: None,
        released: None,
    };
    let (job, state, at, reason) = (JobId(job), State::Succeeded, Timestamp(3), String::new());
    Change::Ended(Ended { job, state, at, reason, closed: Some(closed), confirmed: true })
}

/// A data directory, and room for backups of it.
struct Stage(TempDir);

impl Stage {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A store with the ended jobs 1 to 3, and a backup of it.
    async fn backed_up() -> (Self, PathBuf) {
        let stage = Self::new();
        let mut server = Server::start(&stage.data());
        for job in 1..=3 {
            server.run(job).await;
        }
        server.commit(vec![added(4), assigned(4)]);
        let backup = stage.at("backup");
        take(&stage.data(), &backup, false).unwrap();
        (stage, backup)
    }
}

fn refusal<T: std::fmt::Debug>(result: Result<T, BackupError>) -> String {
    result.unwrap_err().to_string()
}

#[tokio::test]
async fn a_restored_server_keeps_live_jobs_and_reuses_no_id() {
    let (stage, backup) = Stage::backed_up().await;
    let restored = restore(&backup, &stage.at("other"), false).unwrap();
    assert_eq!((restored.manifest.last_job, restored.manifest.live_jobs), (4, 1));
    assert!(restored.aside.is_none());
    let server = Server::start(&stage.at("other"));
    assert!(server.loaded.last_job >= JobId(4 + NUMBERS_LEFT_OUT));
    assert!(server.loaded.last_fence >= Fence(4 + NUMBERS_LEFT_OUT));
    assert!(server.loaded.epoch > Epoch(1 + STARTS_LEFT_OUT));
    assert_eq!(server.loaded.last_job, restored.identity.last_job);
    assert_eq!(
        server.live.iter().map(|job| job.attempt.as_ref().unwrap().token).collect::<Vec<_>>(),
        [token(4)]
    );
    for job in 1..=3 {
        assert_eq!(server.output(job), [PieceData::Bytes(Bytes::from(text_of(job)))]);
        assert_eq!(server.state(job), Some(State::Succeeded));
    }
}

#[tokio::test]
async fn restored_assigned_attempts_count_as_begun() {
    let (stage, backup) = Stage::backed_up().await;
    restore(&backup, &stage.at("other"), false).unwrap();
    let mut server = Server::start(&stage.at("other"));
    let next = server.loaded.last_job.0 + 1;
    let Change::Assigned(given) = assigned(next) else { unreachable!() };
    let session = SessionId((server.loaded.epoch.0 << 32) | 1);
    server.commit(vec![added(next), Change::Assigned(Assigned { session, ..given })]);
    drop(server);
    let server = Server::start(&stage.at("other"));
    let from_backup: Vec<_> =
        server.live.iter().map(|job| (job.job.0, job.attempt.as_ref().unwrap().from_backup)).collect();
    assert_eq!(from_backup, [(4, true), (next, false)]);
    // Without a restore the server has seen every report.
    let server = Server::start(&stage.data());
    assert!(!server.live[0].attempt.as_ref().unwrap().from_backup);
}

#[tokio::test]
async fn a_backup_under_load_is_of_one_commit_and_has_the_output_of_what_has_ended() {
    let stage = Stage::new();
    let mut server = Server::start(&stage.data());
    server.run(1).await;
    let (data, backup, done) = (stage.data(), stage.at("backup"), Arc::new(AtomicBool::new(false)));
    let taking = {
        let done = Arc::clone(&done);
        std::thread::spawn(move || {
            let taken = take(&data, &backup, false);
            done.store(true, Ordering::SeqCst);
            taken
        })
    };
    let mut last = 1;
    while !done.load(Ordering::SeqCst) {
        last += 1;
        server.run(last).await;
    }
    let manifest = taking.join().unwrap().unwrap();
    restore(&stage.at("backup"), &stage.at("other"), false).unwrap();
    let copy = Server::start(&stage.at("other"));
    assert_eq!(copy.loaded.group, GroupNo(manifest.commit));
    // Every job is two commits; the last of both kinds of them may be in it alone.
    let whole = manifest.commit / 2;
    for job in 1..=last {
        let state = copy.state(job);
        if job <= whole {
            assert_eq!(state, Some(State::Succeeded), "job {job} of {last}, {whole} of them in the backup");
            assert_eq!(copy.output(job), [PieceData::Bytes(Bytes::from(text_of(job)))]);
        } else {
            assert_eq!(state, (job * 2 - 1 == manifest.commit).then_some(State::Assigned));
        }
    }
}

#[tokio::test]
async fn files_of_a_backup_are_private_wherever_they_are_copied_to() {
    let (_stage, backup) = Stage::backed_up().await;
    for name in [STORE, Manifest::NAME, "logs/0000000001.seg"] {
        let mode = std::fs::metadata(backup.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_backup_overwrites_only_backups_and_only_with_force() {
    let (stage, backup) = Stage::backed_up().await;
    let first = Manifest::read(&backup).unwrap();
    assert!(refusal(take(&stage.data(), &backup, false)).contains("--force"));
    let mut server = Server::start(&stage.data());
    server.run(5).await;
    take(&stage.data(), &backup, true).unwrap();
    let second = Manifest::read(&backup).unwrap();
    assert_eq!((first.last_job, second.last_job), (4, 5));
    std::fs::create_dir(stage.at("holiday")).unwrap();
    std::fs::write(stage.at("holiday/beach.jpg"), "sand").unwrap();
    assert!(refusal(take(&stage.data(), &stage.at("holiday"), true)).contains("is no backup"));
    assert!(stage.at("holiday/beach.jpg").exists());
    let mut names: Vec<_> =
        std::fs::read_dir(stage.0.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["backup", "data", "holiday"], "nothing unfinished is left behind");
}

#[tokio::test]
async fn what_a_broken_off_backup_has_left_is_cleared_away_and_is_no_backup() {
    let (stage, backup) = Stage::backed_up().await;
    let unfinished = stage.at("backup.unfinished");
    std::fs::create_dir(&unfinished).unwrap();
    std::fs::write(unfinished.join("longshore.db"), "half").unwrap();
    assert!(
        refusal(take(&stage.data(), &backup, true)).contains("is no unfinished backup"),
        "it may be somebody's"
    );
    std::fs::write(unfinished.join("unfinished"), "").unwrap();
    assert!(
        refusal(restore(&unfinished, &stage.at("other"), false))
            .contains("is no backup, or an unfinished one")
    );
    take(&stage.data(), &backup, true).unwrap();
    assert!(!unfinished.exists());
}

#[tokio::test]
async fn a_store_is_replaced_only_on_demand_and_kept_aside_whole() {
    let (stage, backup) = Stage::backed_up().await;
    let mut server = Server::start(&stage.data());
    server.run(5).await;
    assert!(refusal(restore(&backup, &stage.data(), true)).starts_with("data directory in use by pid"));
    drop(server);
    assert!(refusal(restore(&backup, &stage.data(), false)).contains("--replace"));
    assert_eq!(Server::start(&stage.data()).state(5), Some(State::Succeeded), "the refusal changed nothing");
    let last = LastBackup::of(&Manifest::read(&backup).unwrap(), &backup);
    last.write(&stage.data()).unwrap();
    FailedBackup::now("the disk is full", &backup).write(&stage.data()).unwrap();
    let restored = restore(&backup, &stage.data(), true).unwrap();
    assert_eq!(restored.unread, None);
    let aside = restored.aside.clone().unwrap();
    let records = [stage.data(), aside].map(|data| LastBackup::read(&data).unwrap());
    assert_eq!(records, [None, Some(last)], "the restored store has had no backup");
    assert_eq!(FailedBackup::read(&stage.data()).unwrap(), None, "nor a failed one");
    let server = Server::start(&stage.data());
    assert_eq!((server.state(5), server.loaded.last_job), (None, JobId(5 + NUMBERS_LEFT_OUT)));
    drop(server);
    assert_eq!(Server::start(&restored.aside.unwrap()).state(5), Some(State::Succeeded));
}

#[tokio::test]
async fn a_second_restore_of_the_same_backup_gives_no_number_of_the_first_again() {
    let (stage, backup) = Stage::backed_up().await;
    restore(&backup, &stage.data(), true).unwrap();
    let mut server = Server::start(&stage.data());
    let given = server.loaded.last_job.0 + 3;
    server.run(given).await;
    let (epoch, worker) = (server.loaded.epoch, server.loaded.last_worker);
    drop(server);

    let again = restore(&backup, &stage.data(), true).unwrap();
    assert_eq!((again.manifest.last_job, again.unread), (4, None));
    let second = Server::start(&stage.data()).loaded;
    assert!(second.last_job > JobId(given) && second.last_fence > Fence(given), "{second:?}");
    assert!(second.epoch > epoch && second.last_worker > worker, "{second:?}");
}

#[tokio::test]
async fn restore_over_an_unreadable_store_reports_it_and_skips_ids() {
    let (stage, backup) = Stage::backed_up().await;
    std::fs::write(stage.data().join("longshore.db"), "no store any more").unwrap();
    let restored = restore(&backup, &stage.data(), true).unwrap();
    assert!(restored.unread.is_some_and(|why| why.contains("longshore.db")));
    assert_eq!(std::fs::read(restored.aside.unwrap().join("longshore.db")).unwrap(), b"no store any more");
    assert!(Server::start(&stage.data()).loaded.last_job >= JobId(4 + NUMBERS_LEFT_OUT));
}

#[tokio::test]
async fn a_backup_that_is_not_what_it_was_is_refused_and_changes_nothing() {
    let (stage, backup) = Stage::backed_up().await;
    let manifest = Manifest::read(&backup).unwrap();
    assert!(manifest.files.len() > 2, "{:?}", manifest.files);
    for file in &manifest.files {
        let path = backup.join(&file.name);
        let whole = std::fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        let refusal = refusal(restore(&backup, &stage.data(), true));
        assert!(refusal.contains("is not what it was") && refusal.contains(&file.name), "{refusal}");
        let elsewhere = stage.data().with_file_name("elsewhere");
        let refused = restore(&backup, &elsewhere, false);
        assert!(matches!(refused, Err(BackupError::Damaged(_))), "{refused:?}");
        assert!(!elsewhere.exists(), "nothing is left of it");
        std::fs::write(&path, whole).unwrap();
        assert_eq!(Server::start(&stage.data()).state(3), Some(State::Succeeded));
    }
    restore(&backup, &stage.data(), true).expect("it is whole again");
}

#[tokio::test]
async fn a_newer_backup_and_a_newer_store_are_refused_by_name() {
    let (stage, backup) = Stage::backed_up().await;
    let mut manifest = Manifest::read(&backup).unwrap();
    manifest.format = 2;
    manifest.write(&backup).unwrap();
    assert!(refusal(restore(&backup, &stage.at("other"), false)).contains("written by a newer Longshore"));
    let shell = rusqlite::Connection::open(stage.data().join("longshore.db")).unwrap();
    shell.pragma_update(None, "user_version", 99).unwrap();
    let refusal = refusal(take(&stage.data(), &stage.at("more"), false));
    assert!(refusal.contains("has schema 99, written by a newer Longshore"), "{refusal}");
    assert!(!stage.at("more").exists() && !stage.at("more.unfinished").exists());
}

#[tokio::test]
async fn no_server_starts_over_a_restore_that_was_broken_off() {
    let (stage, backup) = Stage::backed_up().await;
    let data = stage.data();
    std::fs::create_dir(data.join("restoring")).unwrap();
    std::fs::rename(data.join("longshore.db"), stage.at("moved")).unwrap();
    let refused = DataDirectory::take(&data).unwrap_err().to_string();
    assert!(
        refused.contains("a restore into data directory") && refused.contains("was broken off"),
        "{refused}"
    );
    std::fs::write(backup.join("logs/0000000001.seg"), "damaged").unwrap();
    refusal(restore(&backup, &data, true));
    DataDirectory::take(&data).expect_err("it is still broken off");
    std::fs::remove_dir_all(&backup).unwrap();
    std::fs::rename(stage.at("moved"), data.join("longshore.db")).unwrap();
    take(&data, &backup, false).expect("whatever is in the directory can be saved");
    restore(&backup, &data, true).unwrap();
    assert_eq!(Server::start(&data).state(3), Some(State::Succeeded));
}
