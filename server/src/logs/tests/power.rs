//! Loss of power while output is written: what was acknowledged is there, what is there was written, and writing goes on.

use std::collections::BTreeMap;

use baddisk::{Disk, Event, Loss, Rng};

use super::super::segment_writer::Watch;
use super::*;

const NAME: &str = "0000000001.seg";
const APPENDS: u64 = 40;
const JOBS: u64 = 5;

/// The output that was sent for each job, by the number of its append.
type Sent = BTreeMap<u64, Vec<(u64, String)>>;

fn text_until(sent: &Sent, job: u64, append: u64) -> String {
    let pieces = sent.get(&job).into_iter().flatten();
    pieces.filter(|(at, _)| *at <= append).map(|(_, text)| text.as_str()).collect()
}

/// Writes output of several jobs, and tells the disk what was acknowledged.
async fn write(disk: &Arc<Disk>, rng: &mut Rng) -> Sent {
    let place = tempfile::tempdir().unwrap();
    let limits = Limits { sync_interval: Duration::ZERO, ..Limits::default() };
    let logs = Logs::open(place.path(), limits).unwrap();
    let file = disk.file(NAME);
    // The segment was made, and its name synced, before anybody could write.
    disk.note(Event::NamesSynced);
    disk.acknowledge(0);
    logs.shared.segments_mut().watch(Watch { disk: Arc::clone(disk), file });
    let mut sent = Sent::new();
    for append in 1..=APPENDS {
        let mut chunks = Vec::new();
        for _ in 0..=rng.below(3) {
            let job = 1 + rng.below(JOBS);
            let text =
                format!("{append} of {job}: {}\n", "x".repeat(usize::try_from(rng.below(2_000)).unwrap()));
            let offset = text_until(&sent, job, append).len() as u64;
            chunks.push(out(job, offset, &text));
            sent.entry(job).or_default().push((append, text));
        }
        logs.append(chunks).await.unwrap();
        disk.acknowledge(append);
    }
    sent
}

#[tokio::test]
async fn what_was_acknowledged_survives_loss_of_power_and_nothing_is_there_that_was_not_written() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let anywhere = tempfile::tempdir().unwrap();
    let disk = Arc::new(Disk::at(anywhere.path()).unwrap());
    let sent = write(&disk, &mut rng).await;
    let recording = disk.recording();
    let begin = recording.events().iter().position(|event| *event == Event::Acknowledged(0)).unwrap();
    for moment in begin + 1..=recording.events().len() {
        let told = recording.acknowledged_before(moment).unwrap();
        for loss in [Loss::All, Loss::Chance, Loss::Nothing] {
            let place = tempfile::tempdir().unwrap();
            recording.crash(moment, loss, &mut rng).write_to(place.path()).unwrap();
            let logs = Logs::open(place.path(), Limits::default()).unwrap();
            for job in 1..=JOBS {
                let found = text(&logs, job, OUT);
                let (acknowledged, all) = (text_until(&sent, job, told), text_until(&sent, job, APPENDS));
                assert!(found.starts_with(&acknowledged), "{loss:?} at {moment}: job {job} has lost output");
                assert!(all.starts_with(&found), "{loss:?} at {moment}: job {job} never wrote this");
            }
            let job = 1 + rng.below(JOBS);
            let all = text_until(&sent, job, APPENDS);
            logs.append(vec![out(job, 0, &all)]).await.unwrap();
            assert_eq!(text(&logs, job, OUT), all, "its worker sends the rest again");
        }
    }
}
