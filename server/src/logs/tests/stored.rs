//! Stored bytes of attempts, and how long their numbers are kept.

use protocol::report::OutputLengths;

use super::*;

#[tokio::test]
async fn stored_bytes_are_kept_until_output_comes_or_goes() {
    let place = tempfile::tempdir().unwrap();
    let logs = Logs::open(place.path(), SMALL).unwrap();
    for at in 0..20 {
        logs.append(vec![out(1, at * 12, "0123456789"), err(1, at * 10, "0123456789")]).await.unwrap();
    }
    let attempt = token(1).into();
    let counted = |stdout, stderr| StoredOutput::Counted(OutputLengths { stdout, stderr });
    assert_eq!(logs.stored(attempt), None);
    assert_eq!(logs.count_stored(attempt).unwrap(), counted(200, 200));
    assert_eq!(logs.stored(attempt), Some(counted(200, 200)));
    logs.append(vec![out(2, 0, "another attempt")]).await.unwrap();
    assert_eq!(logs.stored(attempt), Some(counted(200, 200)));
    logs.append(vec![err(1, 200, "later")]).await.unwrap();
    assert_eq!(logs.stored(attempt), None, "more has come");
    assert_eq!(logs.count_stored(attempt).unwrap(), counted(200, 205));
    let segments = logs.segments();
    assert!(segments.len() > 1);
    logs.remove(segments[0].number).unwrap();
    assert_eq!(logs.stored(attempt), None, "the beginning was deleted");
    let StoredOutput::Counted(rest) = logs.count_stored(attempt).unwrap() else { panic!("it is counted") };
    assert!(rest.stdout > 0 && rest.stdout < 200 && logs.stored(attempt).is_some(), "{rest:?}");
}

#[tokio::test]
async fn output_with_many_records_is_not_counted() {
    let place = tempfile::tempdir().unwrap();
    let logs = Logs::open(place.path(), SMALL).unwrap();
    for at in 0..40 {
        logs.append(vec![out(1, at * 10, "0123456789")]).await.unwrap();
    }
    assert!(!logs.segments().is_empty());
    let attempt = token(1).into();
    assert_eq!(logs.count_stored_within(attempt, 39).unwrap(), StoredOutput::Uncounted);
    assert_eq!(logs.stored(attempt), Some(StoredOutput::Uncounted), "and nothing looks again");
    let all = OutputLengths { stdout: 400, stderr: 0 };
    assert_eq!(logs.count_stored_within(attempt, 40).unwrap(), StoredOutput::Counted(all));
}
