//! Directories with one thing wrong each.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use protocol::report::{Chunk, ChunkData, Stream};
use protocol::{Fence, JobId, Nonce, Token};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::logs::{Limits, Logs};
use crate::store::directory::DataDirectory;
use crate::store::{Store, sqlite};

/// A store with a few segments of output.
struct Patient(TempDir);

impl Patient {
    async fn new() -> Self {
        let patient = Self(tempfile::tempdir().unwrap());
        let directory = Arc::new(DataDirectory::take(&patient.data()).unwrap());
        let (mut store, _archive) = sqlite::open(&directory).unwrap();
        store.load(&mut |_| {}).unwrap();
        let logs = Logs::open(&directory.logs(), Limits { segment_bytes: 100, ..Limits::default() }).unwrap();
        for number in 1..=4 {
            let token = Token { job: JobId(number), fence: Fence(number), nonce: Nonce(1) };
            let data = ChunkData::Bytes(vec![b'x'; 200]);
            logs.append(vec![Chunk { token, stream: Stream::Stdout, offset: 0, data }]).await.unwrap();
        }
        patient
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn shell(&self) -> Connection {
        Connection::open(self.data().join("longshore.db")).unwrap()
    }

    /// The findings that are not ok, except about free disk space: the machine that runs the tests may have little.
    fn complaints(&self, deep: bool) -> Vec<(&'static str, CheckStatus, String)> {
        let findings = examine(&self.data(), deep);
        for finding in &findings {
            assert_eq!(
                finding.verdict == CheckStatus::Ok,
                finding.next.is_empty(),
                "a next step: {finding:?}"
            );
        }
        let wrong = findings.into_iter().filter(|it| it.verdict != CheckStatus::Ok && it.what != "room");
        wrong.map(|it| (it.what, it.verdict, it.text)).collect()
    }

    fn complaint(&self, deep: bool) -> (&'static str, CheckStatus, String) {
        let mut complaints = self.complaints(deep);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        complaints.remove(0)
    }
}

#[tokio::test]
async fn a_directory_that_is_well_has_no_complaints_whether_or_not_a_server_has_it() {
    let patient = Patient::new().await;
    assert_eq!(patient.complaints(true), []);
    let directory = Arc::new(DataDirectory::take(&patient.data()).unwrap());
    let _store = sqlite::open(&directory).unwrap();
    assert_eq!(patient.complaints(true), []);
    let lock = examine(&patient.data(), false).into_iter().find(|it| it.what == "lock").unwrap();
    assert_eq!(lock.text, format!("a server has it: pid {}", std::process::id()));
}

#[tokio::test]
async fn doctor_fails_early_on_a_missing_directory_or_unfinished_restore() {
    let patient = Patient::new().await;
    let missing = examine(&patient.0.path().join("elsewhere"), false);
    assert_eq!((missing.len(), missing[0].verdict), (1, CheckStatus::Fail));
    fs::create_dir(patient.data().join("restoring")).unwrap();
    let (what, verdict, _) = patient.complaint(false);
    assert_eq!((what, verdict), ("restore", CheckStatus::Fail));
}

#[tokio::test]
async fn a_reader_without_rights_is_told() {
    let patient = Patient::new().await;
    fs::set_permissions(patient.data(), fs::Permissions::from_mode(0o755)).unwrap();
    let (what, verdict, text) = patient.complaint(false);
    assert_eq!((what, verdict), ("directory", CheckStatus::Warn));
    assert!(text.contains("mode 0755"), "{text}");
}

#[tokio::test]
async fn a_store_that_is_newer_foreign_or_damaged_is_named() {
    let patient = Patient::new().await;
    patient.shell().pragma_update(None, "user_version", 999).unwrap();
    let (what, verdict, text) = patient.complaint(false);
    assert_eq!((what, verdict), ("store", CheckStatus::Fail));
    assert!(text.contains("written by a newer Longshore"), "{text}");

    let patient = Patient::new().await;
    patient.shell().pragma_update(None, "application_id", 7).unwrap();
    assert!(patient.complaint(false).2.contains("not a Longshore store"));

    let patient = Patient::new().await;
    let file = fs::File::options().write(true).open(patient.data().join("longshore.db")).unwrap();
    let pages = file.metadata().unwrap().len() / 4_096;
    for page in 2..pages {
        file.write_all_at(&[0xFF; 16], page * 4_096).unwrap();
    }
    let (what, verdict, text) = patient.complaint(false);
    assert_eq!((what, verdict), ("store", CheckStatus::Fail));
    assert!(text.contains("damaged"), "{text}");
}

#[tokio::test]
async fn retention_that_does_not_run_is_reported_while_a_server_runs() {
    let patient = Patient::new().await;
    patient.shell().execute("UPDATE installation SET retention_by = 1", []).unwrap();
    assert_eq!(patient.complaints(false), [], "no server runs");
    let _running = DataDirectory::take(&patient.data()).unwrap();
    let (what, verdict, _) = patient.complaint(false);
    assert_eq!((what, verdict), ("retention", CheckStatus::Warn));
}

#[tokio::test]
async fn refused_groups_are_reported_and_leftovers_are_counted() {
    let patient = Patient::new().await;
    fs::create_dir(patient.data().join("replaced-2026-01-01")).unwrap();
    let leftovers = examine(&patient.data(), false).into_iter().find(|it| it.what == "leftovers").unwrap();
    assert!(leftovers.text.starts_with("1 replaced stores, 0 drafts"), "{leftovers:?}");
    fs::write(patient.data().join("refused-group-7.txt"), "").unwrap();
    let (what, verdict, text) = patient.complaint(false);
    assert_eq!((what, verdict), ("refused groups", CheckStatus::Warn));
    assert!(text.starts_with("1 reports; 0 inputs are suspected"), "{text}");
}

#[tokio::test]
async fn rows_that_contradict_each_other_are_counted() {
    let patient = Patient::new().await;
    patient
        .shell()
        .execute_batch(
            "INSERT INTO definitions VALUES (1, zeroblob(16), 'resize', '{}');
             INSERT INTO jobs (id, definition, state, priority, created_at, due_at) VALUES (5, 1, 2, 0, 0, 0), (6, 2, 2, 0, 0, 0)",
        )
        .unwrap();
    let (what, verdict, text) = patient.complaint(false);
    assert_eq!((what, verdict), ("rows", CheckStatus::Fail));
    assert_eq!(text, "2 jobs with a number that was never given; 1 jobs without their definition");
}

#[tokio::test]
async fn output_without_an_index_and_output_that_is_damaged_is_told() {
    let patient = Patient::new().await;
    let segment = |name: &str| patient.data().join("logs").join(name);
    fs::remove_file(segment("0000000002.idx")).unwrap();
    let (what, verdict, text) = patient.complaint(false);
    assert_eq!((what, verdict), ("output", CheckStatus::Warn));
    assert!(text.ends_with("without an index: [2]"), "{text}");
    let file = fs::File::options().write(true).open(segment("0000000003.seg")).unwrap();
    file.write_all_at(b"?", 100).unwrap();
    assert_eq!(patient.complaint(false).1, CheckStatus::Warn, "it is not read");
    let (_, verdict, text) = patient.complaint(true);
    assert_eq!(verdict, CheckStatus::Fail);
    assert!(text.ends_with("damaged: [3]"), "{text}");
}

/// The superuser may write all the same, but a server runs as another user.
#[tokio::test]
async fn a_directory_that_its_owner_may_not_write_to_is_named_and_still_read() {
    let patient = Patient::new().await;
    let set = |mode| fs::set_permissions(patient.data(), fs::Permissions::from_mode(mode)).unwrap();
    set(0o500);
    let (what, verdict, text) = patient.complaint(false);
    set(0o700);
    assert_eq!((what, verdict), ("writing", CheckStatus::Fail));
    assert_eq!(
        text,
        format!(
            "its owner may not write to {}, mode 0500: no server can start here",
            patient.data().display()
        )
    );
    assert!(examine(&patient.data(), false).iter().any(|it| it.what == "store"));
}
