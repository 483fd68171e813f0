//! Tests of an active segment that the disk has damaged.

use super::super::record::TIMED_HEADER_BYTES;
use super::*;

/// So little is ever unsynced that all of the segments here is older.
const SYNCED: Limits = Limits { waiting_bytes: 100, ..SMALL_WAITING };
const SMALL_WAITING: Limits = Limits {
    segment_bytes: 64 << 20,
    sync_interval: Duration::ZERO,
    waiting_bytes: 1 << 20,
    is_same_boot: false,
};
/// Only the server was restarted: what was not synced is here, too.
const RESTARTED: Limits = Limits { is_same_boot: true, ..SMALL_WAITING };

/// Output of two jobs in turn, twelve pieces of 250 bytes each, in one segment.
async fn write(position: &Path, limits: Limits) -> PathBuf {
    let logs = Logs::open(position, limits).unwrap();
    for at in 0..12 {
        logs.append(vec![out(1, at * 250, &"x".repeat(250))]).await.unwrap();
        logs.append(vec![out(2, at * 250, &"y".repeat(250))]).await.unwrap();
    }
    files(position, "seg").pop().unwrap()
}

/// Bytes of a piece with its header.
const RECORD: usize = TIMED_HEADER_BYTES + 250;

/// Damages the third piece of job 1: a byte of its header or its text.
fn damage(segment: &Path, (at, byte): (u64, u8)) {
    let file = fs::File::options().read(true).write(true).open(segment).unwrap();
    let at = 4 * RECORD as u64 + at;
    let mut before = [0];
    file.read_exact_at(&mut before, at).unwrap();
    // A time may have this byte.
    file.write_all_at(&[if before == [byte] { !byte } else { byte }], at).unwrap();
}

const LENGTH: (u64, u8) = (4, b'?');
const TEXT: (u64, u8) = (100, b'?');
const TIME: (u64, u8) = (41, 0);
/// The code says that the header is shorter than it is.
const SHORTER: (u64, u8) = (40, 0);
const UNKNOWN_CODE: (u64, u8) = (40, b'?');

#[tokio::test]
async fn output_after_a_damaged_piece_is_kept_and_shown() {
    for byte in [LENGTH, TEXT, TIME, SHORTER, UNKNOWN_CODE] {
        let place = tempfile::tempdir().unwrap();
        let segment = write(place.path(), SYNCED).await;
        let whole = fs::metadata(&segment).unwrap().len();
        damage(&segment, byte);
        assert_eq!(examine::examine(place.path(), true).unwrap().damaged, [1]);
        let logs = Logs::open(place.path(), SYNCED).unwrap();
        assert_eq!(fs::metadata(&segment).unwrap().len(), whole, "nothing is deleted");
        let expected = format!("{}{}{}", "x".repeat(500), "_".repeat(250), "x".repeat(2_250));
        assert_eq!(text(&logs, 1, OUT), expected);
        assert_eq!(text(&logs, 2, OUT), "y".repeat(3_000));
        logs.append(vec![out(2, 3_000, "more")]).await.unwrap();
        drop(logs);
        let logs = Logs::open(place.path(), SYNCED).unwrap();
        assert_eq!((text(&logs, 1, OUT), text(&logs, 2, OUT).len()), (expected, 3_004), "once more");
        assert_eq!(files(place.path(), "seg").len(), 2);
    }
}

#[tokio::test]
async fn payload_of_a_torn_record_is_not_parsed_as_a_record() {
    let place = tempfile::tempdir().unwrap();
    let segment = write(place.path(), SYNCED).await;
    let whole = fs::read(&segment).unwrap();
    // The head of a record of a thousand bytes, and as its payload, of which a part is there, another record from end to end.
    let mut torn = whole[..TIMED_HEADER_BYTES].to_vec();
    torn[4..8].copy_from_slice(&1_000_u32.to_le_bytes());
    torn.extend_from_slice(&whole[..RECORD]);
    let file = fs::File::options().write(true).open(&segment).unwrap();
    file.write_all_at(&torn, whole.len() as u64).unwrap();
    assert!(examine::examine(place.path(), true).unwrap().damaged.is_empty());
    let logs = Logs::open(place.path(), SYNCED).unwrap();
    assert_eq!(fs::metadata(&segment).unwrap().len(), whole.len() as u64, "it is cut off");
    assert_eq!(text(&logs, 1, OUT), "x".repeat(3_000));
}

#[tokio::test]
async fn unsynced_damage_keeps_the_segment_and_accepts_a_resend() {
    let place = tempfile::tempdir().unwrap();
    let segment = write(place.path(), SMALL_WAITING).await;
    let whole = fs::metadata(&segment).unwrap().len();
    damage(&segment, TEXT);
    let logs = Logs::open(place.path(), SMALL_WAITING).unwrap();
    assert_eq!(fs::metadata(&segment).unwrap().len(), whole, "nothing is deleted");
    assert_eq!(text(&logs, 1, OUT), "x".repeat(500), "later bytes may never have been acknowledged");
    assert_eq!(text(&logs, 2, OUT), "y".repeat(3_000), "this goes on where it stood");
    logs.append(vec![out(1, 500, &"x".repeat(2_500))]).await.unwrap();
    assert_eq!(text(&logs, 1, OUT), "x".repeat(3_000));
}

#[tokio::test]
async fn damage_near_the_end_hides_nothing_else_after_a_restart_of_the_server() {
    let place = tempfile::tempdir().unwrap();
    let segment = write(place.path(), RESTARTED).await;
    damage(&segment, TEXT);
    for _ in 0..2 {
        let logs = Logs::open(place.path(), RESTARTED).unwrap();
        let expected = format!("{}{}{}", "x".repeat(500), "_".repeat(250), "x".repeat(2_250));
        assert_eq!(text(&logs, 1, OUT), expected);
        assert_eq!(text(&logs, 2, OUT), "y".repeat(3_000));
    }
}

/// The last piece of a job, which is the last one of the segment, or is followed by one of another job.
#[tokio::test]
async fn a_damaged_last_piece_is_shown_as_missing_and_not_as_to_come() {
    for (job, limits, back) in [(2, RESTARTED, 1), (1, RESTARTED, 2), (1, SYNCED, 2)] {
        let place = tempfile::tempdir().unwrap();
        let segment = write(place.path(), limits).await;
        let whole = fs::metadata(&segment).unwrap().len();
        let file = fs::File::options().write(true).open(&segment).unwrap();
        file.write_all_at(b"?", whole - back * RECORD as u64 + 100).unwrap();
        for _ in 0..2 {
            // A synced segment is longer than what may be unsynced.
            let limits = Limits { waiting_bytes: 100, ..limits };
            let logs = Logs::open(place.path(), limits).unwrap();
            assert_eq!(fs::metadata(&segment).unwrap().len(), whole, "nothing is deleted");
            let [own, other] = if job == 1 { [(1, 'x'), (2, 'y')] } else { [(2, 'y'), (1, 'x')] };
            let shown = format!("{}{}", own.1.to_string().repeat(2_750), "_".repeat(250));
            assert_eq!(text(&logs, own.0, OUT), shown, "{job}");
            assert_eq!(text(&logs, other.0, OUT), other.1.to_string().repeat(3_000), "{job}");
        }
    }
}

#[tokio::test]
async fn a_record_that_a_killed_server_wrote_in_part_is_cut_off() {
    let place = tempfile::tempdir().unwrap();
    let segment = write(place.path(), RESTARTED).await;
    let whole = fs::metadata(&segment).unwrap().len();
    fs::File::options().write(true).open(&segment).unwrap().set_len(whole - 10).unwrap();
    let logs = Logs::open(place.path(), RESTARTED).unwrap();
    assert_eq!(fs::metadata(&segment).unwrap().len(), whole - RECORD as u64);
    assert_eq!(text(&logs, 2, OUT), "y".repeat(2_750), "its worker sends the rest again");
}

#[tokio::test]
async fn segment_recovery_scan_is_bounded() {
    let place = tempfile::tempdir().unwrap();
    let segment = write(place.path(), SYNCED).await;
    let file = fs::File::options().append(true).open(&segment).unwrap();
    // At each fourth byte stands a length that fits, in front of a kind that there is, and none of the records is whole.
    let teeth = 0x0003_0000_u32.to_le_bytes().repeat(1 << 20);
    std::io::Write::write_all(&mut &file, &teeth).unwrap();
    let logs = Logs::open(place.path(), SYNCED).unwrap();
    assert_eq!(text(&logs, 1, OUT).len(), 3_000);
    assert!(fs::metadata(&segment).unwrap().len() > 4 << 20, "what is not looked through is not deleted");
}
