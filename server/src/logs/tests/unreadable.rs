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
async fn an_index_that_cannot_be_used_is_made_again_when_output_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let logs = open(&place).await;
    let indexes = files(place.path(), "idx");
    for index in &indexes {
        fs::remove_file(index).unwrap();
    }
    logs.read(token(1).into(), OUT, 0, 100).unwrap_err();
    logs.jobs(logs.segments()[0].number, JobId(u64::MAX), 10).unwrap_err();
    let marks = logs.append(vec![out(3, 0, "z"), out(1, 2_000, "more"), out(3, 1, "z")]).await.unwrap();
    assert_eq!(marks.iter().map(|mark| mark.offset).collect::<Vec<_>>(), [2, 2_004]);
    assert_eq!(text(&logs, 3, OUT), "zz");
    assert_eq!(files(place.path(), "idx"), indexes);
    assert_eq!(text(&logs, 1, OUT), format!("{}more", "x".repeat(2_000)));
}

#[tokio::test]
async fn output_after_a_segment_that_cannot_be_read_has_its_place() {
    let place = tempfile::tempdir().unwrap();
    let logs = open(&place).await;
    for extension in ["idx", "seg"] {
        let sealed = files(place.path(), extension).into_iter().take(logs.segments().len());
        sealed.for_each(|file| drop(make_unreadable(&file)));
    }
    let marks = logs.append(vec![out(1, 2_000, "more")]).await.unwrap();
    assert_eq!(marks[0].offset, 2_004);
    assert_eq!(text_from(&logs, 1, OUT, 2_000), "more");
}

#[tokio::test]
async fn a_segment_whose_files_are_gone_is_a_gap_and_can_be_removed() {
    let place = tempfile::tempdir().unwrap();
    let logs = open(&place).await;
    let first = logs.segments()[0].number;
    fs::remove_file(&files(place.path(), "seg")[0]).unwrap();
    assert!(text(&logs, 1, OUT).starts_with("____"));
    logs.remove(first).unwrap();
    assert!(logs.segments().iter().all(|segment| segment.number != first));
}

#[tokio::test]
async fn a_segment_that_cannot_be_deleted_stays_in_the_set() {
    let place = tempfile::tempdir().unwrap();
    let logs = open(&place).await;
    let before = logs.segments();
    let moved = make_unreadable(&files(place.path(), "seg")[1]);
    logs.remove(before[1].number).unwrap_err();
    assert_eq!(logs.segments(), before);
    let file = files(place.path(), "seg")[1].clone();
    fs::remove_dir(&file).unwrap();
    fs::rename(moved, &file).unwrap();
    logs.remove(before[1].number).unwrap();
    // Its index stays if the process ends just here.
    fs::write(file.with_extension("idx"), "").unwrap();
    drop(logs);
    drop(Logs::open(place.path(), SMALL).unwrap());
    assert!(!file.with_extension("idx").exists());
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
