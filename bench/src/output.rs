//! Checks that the server stored the output of jobs. Jobs end without waiting for their output, and reports carry only its length, so this
//! counts is what lies in the server's segments, read record by record.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use server::logs::{OutputTotals, examine, output_totals};

/// Waits until all of it is stored; the instant at which the last of it was seen to arrive.
pub(crate) async fn until_stored(data: &Path, expected: OutputTotals) -> anyhow::Result<Instant> {
    until(data, &format!("{expected:?}"), |stored| stored == expected).await
}

/// Waits until output of this number of attempts is stored, each of which writes once.
pub(crate) async fn until_attempts(data: &Path, attempts: usize) -> anyhow::Result<Instant> {
    until(data, &format!("output of {attempts} attempts"), |stored| stored.attempts >= attempts).await
}

async fn until(
    data: &Path,
    expected: &str,
    is_complete: impl Fn(OutputTotals) -> bool,
) -> anyhow::Result<Instant> {
    let logs = data.join(LOGS);
    let mut growth = Growth::new(Instant::now());
    loop {
        let size = examine(&logs, false).with_context(|| format!("cannot read {}", logs.display()))?.bytes;
        if growth.has_paused(size, Instant::now()) {
            let stored = read(data)?;
            if is_complete(stored) {
                return Ok(growth.last);
            }
            if growth.last.elapsed() > STANDSTILL_MAX {
                bail!(
                    "nothing has arrived for {STANDSTILL_MAX:?}: stored is {stored:?} instead of {expected}"
                );
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Fails unless exactly this is stored. It reads all of it.
pub(crate) fn require(data: &Path, expected: OutputTotals) -> anyhow::Result<()> {
    let stored = read(data)?;
    if stored != expected {
        bail!("stored is {stored:?} instead of {expected:?}: this run proves nothing");
    }
    Ok(())
}

fn read(data: &Path) -> anyhow::Result<OutputTotals> {
    let logs = data.join(LOGS);
    output_totals(&logs).with_context(|| format!("cannot read {}", logs.display()))
}

/// Watches the segments grow: reading them through would disturb the run, so that is done only when they have paused.
#[derive(Debug)]
struct Growth {
    size: u64,
    /// When they were last seen to grow.
    last: Instant,
    looks: u32,
}

impl Growth {
    const fn new(now: Instant) -> Self {
        Self { size: 0, last: now, looks: 0 }
    }

    /// Returns true once for each pause in which the segments did not grow for several looks.
    fn has_paused(&mut self, size: u64, now: Instant) -> bool {
        if size != self.size {
            (self.size, self.last, self.looks) = (size, now, 0);
            return false;
        }
        self.looks += 1;
        self.looks.is_multiple_of(LOOKS_PER_PAUSE)
    }
}

/// Within the data directory.
const LOGS: &str = "logs";
/// Fine enough for runs of seconds.
const PAUSE: Duration = Duration::from_millis(20);
/// Syncs are 10 ms apart under load: a tenth of a second without growth is the end, or a disk that is stuck.
const LOOKS_PER_PAUSE: u32 = 5;
const STANDSTILL_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_read_only_when_they_have_paused() {
        let began = Instant::now();
        let at = |look: u32| began + PAUSE * look;
        let mut growth = Growth::new(began);
        assert!((1..=20).all(|look| !growth.has_paused(u64::from(look), at(look))), "they grow");
        let paused: Vec<u32> = (21..=32).filter(|look| growth.has_paused(20, at(*look))).collect();
        assert_eq!((paused, growth.last), (vec![25, 30], at(20)));
        assert!(!growth.has_paused(21, at(33)));
        assert_eq!(growth.last, at(33));
    }

    #[tokio::test]
    async fn what_is_not_stored_is_no_result() {
        let data = tempfile::tempdir().unwrap();
        require(data.path(), OutputTotals::default()).unwrap();
        let expected = OutputTotals { attempts: 1, bytes: 100 };
        assert!(require(data.path(), expected).is_err());
        let logs =
            server::logs::Logs::open(&data.path().join(LOGS), server::logs::Limits::default()).unwrap();
        let token = protocol::Token::default();
        let chunk = |offset: u64, bytes: usize| protocol::report::Chunk {
            token,
            stream: protocol::report::Stream::Stdout,
            offset,
            data: protocol::report::ChunkData::Bytes(vec![b'x'; bytes]),
        };
        logs.append(vec![chunk(0, 60)]).await.unwrap();
        assert!(require(data.path(), expected).is_err(), "the rest is missing");
        let (stored, appended) =
            tokio::join!(until_stored(data.path(), expected), logs.append(vec![chunk(60, 40)]));
        appended.unwrap();
        stored.unwrap();
        require(data.path(), expected).unwrap();
    }

    #[tokio::test]
    async fn output_that_arrives_late_is_waited_for() {
        let data = tempfile::tempdir().unwrap();
        let logs =
            server::logs::Logs::open(&data.path().join(LOGS), server::logs::Limits::default()).unwrap();
        let chunk = |job: u64| protocol::report::Chunk {
            token: protocol::Token { job: protocol::JobId(job), ..protocol::Token::default() },
            stream: protocol::report::Stream::Stdout,
            offset: 0,
            data: protocol::report::ChunkData::Bytes(vec![b'x'; 10]),
        };
        logs.append(vec![chunk(1)]).await.unwrap();
        let late = async {
            tokio::time::sleep(PAUSE * 8).await;
            logs.append(vec![chunk(2)]).await.unwrap();
        };
        let (stored, ()) = tokio::join!(until_attempts(data.path(), 2), late);
        stored.unwrap();
        require(data.path(), OutputTotals { attempts: 2, bytes: 20 }).unwrap();
    }
}
