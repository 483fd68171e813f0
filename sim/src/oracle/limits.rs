//! Checks of limits and unique keys at each assignment.

use std::time::Duration;

use protocol::Timestamp;
use scheduler::step::Assigned;

use super::Oracle;
use crate::clock::Moment;
use crate::disk::Row;

impl Oracle {
    /// I14: no more jobs of a limit hold a worker than it has permits.
    pub(super) fn check_concurrency(&mut self, now: Moment, rows: &[Option<Row>], index: usize) {
        let Some((limit, permits)) = rows[index].as_ref().and_then(|row| row.permit.clone()) else { return };
        let holds =
            |row: &&Row| row.current().is_some() && row.permit.as_ref().is_some_and(|(it, _)| *it == limit);
        let holders = rows.iter().flatten().filter(holds).count();
        if holders > permits {
            let what =
                format!("job {} is the {holders}th to hold one of {permits} permits of {limit}", index + 1);
            self.violated(now, "I14 no limit is exceeded", what);
        }
    }

    /// I15: no time of any length sees more starts of a rate than its length and the burst allow, by the clock of the server.
    pub(super) fn check_rate(&mut self, now: Moment, row: &Row, it: &Assigned) {
        let Some((limit, rate)) = row.rate.as_ref().filter(|_| !self.walls_step) else { return };
        let starts = self.rate_starts.entry(limit.clone()).or_default();
        starts.push(it.at);
        // Instants are in whole milliseconds.
        let allowed = |from: Timestamp| {
            let nanos = (it.at.since(from) + Duration::from_millis(1)).as_nanos() as u64;
            u64::from(rate.burst) + nanos / rate.interval
        };
        let too_many = (1..).zip(starts.iter().rev()).find(|(count, from)| *count > allowed(**from));
        if let Some((count, from)) = too_many {
            let what = format!("{} is start {count} of {limit} since {} ms", it.token, from.0);
            self.violated(now, "I15 no rate is exceeded", what);
        }
    }

    /// I16: no two jobs with the same unique key hold a worker.
    pub(super) fn check_unique_keys(&mut self, now: Moment, rows: &[Option<Row>], index: usize) {
        let Some(id) = rows[index].as_ref().and_then(|row| row.unique.as_ref()) else { return };
        let holds = |(other, row): &(usize, &Option<Row>)| {
            let row = row.as_ref().filter(|row| row.current().is_some());
            *other != index && row.is_some_and(|row| row.unique.as_ref() == Some(id))
        };
        if let Some((other, _)) = rows.iter().enumerate().find(holds) {
            let what =
                format!("job {} holds a worker beside job {}, with the key {}", index + 1, other + 1, id.key);
            self.violated(now, "I16 unique never doubled", what);
        }
    }
}
