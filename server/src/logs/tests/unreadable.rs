//! Tests of segments that cannot be read, or go, while the logs are open.

use super::*;

/// Output of two jobs, 250 bytes at a time, in four sealed segments and the growing one.
async fn open(place: &TempDir) -> Arc<Logs> {
    let logs = Logs::open(place.path(), SMALL).unwrap();
    for at in 0..8 {
        logs.append(vec![out(1, at * 250, &"x".repeat(250))]).await.unwrap();
        logs.append(vec![out(2, at * 250, &"y".repeat(250))]).await.unwrap();
    }
    drop(logs);
    assert!(files(place.path(), "idx").len() >= 4);
    // Another process: the lengths of attempts are looked up again.
    Logs::open(place.path(), SMALL).unwrap()
}

/// Every read of this file fails; returns what it was.
fn make_unreadable(file: &Path) -> PathBuf {
    let moved = file.with_extension("moved");
    fs::rename(file, &moved).unwrap();
    fs::create_dir(file).unwrap();
    moved
}

#[tokio::test]
async fn a_page_opens_no_segment_before_its_position() {
    let place = tempfile::tempdir().unwrap();
    let logs = open(&place).await;
    make_unreadable(&files(place.path(), "idx")[0]);
    assert_eq!(text_from(&logs, 1, OUT, 1_500), "x".repeat(500));
    logs.read(token(1).into(), OUT, 0, 100).unwrap_err();
}

#[tokio::test]
async fn output_goes_on_beside_and_behind_segments_that_cannot_be_read() {
    let place = tempfile::tempdir().unwrap();
    let logs = open(&place).await;
    let unreadable: Vec<(PathBuf, PathBuf)> =
        files(place.path(), "idx").into_iter().map(|file| (make_unreadable(&file), file)).collect();
    let marks = logs.append(vec![out(3, 0, "z"), out(1, 2_000, "more"), out(3, 1, "z")]).await.unwrap();
    assert_eq!(marks.iter().map(|mark| mark.offset).collect::<Vec<_>>(), [2, 2_004]);
    assert_eq!(text(&logs, 3, OUT), "zz");
    for (moved, file) in unreadable {
        fs::remove_dir(&file).unwrap();
        fs::rename(moved, file).unwrap();
    }
    assert_eq!(text(&logs, 1, OUT), format!("{}more", "x".repeat(2_000)));
}

#[tokio::test]
async fn a_segment_whose_files_are_gone_is_a_gap_and_can_be_removed() {
    let place = tempfile::tempdir().unwrap();
    let logs = open(&place).await;
    let first = logs.segments()[0].number;
    for extension in ["idx", "seg"] {
        fs::remove_file(&files(place.path(), extension)[0]).unwrap();
    }
    assert!(text(&logs, 1, OUT).starts_with("____"));
    assert_eq!(logs.jobs(first, JobId(u64::MAX), 10).unwrap(), []);
    logs.remove(first).unwrap();
    assert!(logs.segments().iter().all(|segment| segment.number != first));
}

#[tokio::test]
async fn nothing_is_kept_of_followers_that_have_gone() {
    let place = tempfile::tempdir().unwrap();
    let logs = open(&place).await;
    let (one, other) = (logs.follow(token(1).into()), logs.follow(token(1).into()));
    drop(one);
    assert_eq!(logs.shared.followed.lock().unwrap().len(), 1);
    drop(other);
    assert_eq!(logs.shared.followed.lock().unwrap().len(), 0);
}
