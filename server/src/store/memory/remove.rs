//! Retention: everything is looked at, as everywhere in this store.

use std::collections::BTreeSet;

use protocol::{JobId, Timestamp};
use scheduler::step::Note;

use super::World;
use crate::store::{Keep, Removed};

impl World {
    pub(super) fn remove(&mut self, keep: &Keep) -> Removed {
        let jobs = self.due_jobs(keep);
        let is_old = |(_, (_, at)): &(&String, &(_, Timestamp))| *at < keep.keyed_since;
        let old = self.keys.iter().filter(is_old).take(keep.rows_max);
        let keys: BTreeSet<String> = old.map(|(key, _)| key.clone()).collect();
        self.jobs.retain(|job, _| !jobs.contains(job));
        self.keys.retain(|key, _| !keys.contains(key));
        let late_reports = self.remove_late_reports(keep);
        let more = [jobs.len(), keys.len(), late_reports].contains(&keep.rows_max);
        Removed { jobs: jobs.len() as u64, keys: keys.len() as u64, late_reports: late_reports as u64, more }
    }

    fn due_jobs(&self, keep: &Keep) -> BTreeSet<JobId> {
        let rows = self.jobs.values().map(|kept| &kept.record.row);
        let mut ended: Vec<(Timestamp, JobId)> =
            rows.filter_map(|row| Some((row.ended_at?, row.job))).collect();
        ended.sort_unstable();
        let surplus = ended.len().saturating_sub(usize::try_from(keep.ended_max).unwrap_or(usize::MAX));
        let may_go = |(nth, (at, _)): &(usize, (Timestamp, JobId))| *at < keep.ended_since || *nth < surplus;
        let due = ended.into_iter().enumerate().take_while(may_go).take(keep.rows_max);
        due.map(|(_, (_, job))| job).collect()
    }

    fn remove_late_reports(&mut self, keep: &Keep) -> usize {
        let mut removed = 0;
        for kept in self.jobs.values_mut() {
            kept.record.notes.retain(|(at, note)| {
                let goes = matches!(note, Note::LateReport { .. })
                    && *at < keep.late_since
                    && removed < keep.rows_max;
                removed += usize::from(goes);
                !goes
            });
        }
        removed
    }
}
