//! What recently submitted jobs add to their definitions, so that handing them out right away reads nothing from the store.
//!
//! A cache, never the truth: bounded by bytes, emptied by handing out and by a job's end, and whoever misses asks the archive.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use protocol::JobId;
use protocol::container::Body;

/// How much is kept: enough for a burst of 60,000 jobs with a kilobyte each, little beside the store's own cache.
const BYTES_MAX: usize = 64 << 20;

/// Bodies of jobs that wait, by job.
#[derive(Debug, Default)]
pub struct Bodies {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    bodies: HashMap<JobId, Body>,
    bytes: usize,
}

impl Bodies {
    /// Keeps a body, if there is room.
    pub fn put(&self, job: JobId, body: &Body) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let size = size_of(body);
        if kept.bytes + size <= BYTES_MAX {
            kept.bytes += size;
            kept.bodies.insert(job, body.clone());
        }
    }

    /// Takes a body out. An attempt after the first finds nothing here and asks the archive.
    pub fn take(&self, job: JobId) -> Option<Body> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let body = kept.bodies.remove(&job)?;
        kept.bytes -= size_of(&body);
        Some(body)
    }
}

/// What a body weighs, with a guess for the table's own part.
fn size_of(body: &Body) -> usize {
    let words: usize = body.environment.iter().map(|(name, value)| name.len() + value.len() + 48).sum();
    let args: usize = body.args.iter().map(|arg| arg.len() + 24).sum();
    128 + words + args + body.input.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_makes_room_again() {
        let bodies = Bodies::default();
        let body = Body { args: vec!["x".repeat(BYTES_MAX / 2)], ..Body::default() };
        bodies.put(JobId(1), &body);
        bodies.put(JobId(2), &body);
        assert_eq!(bodies.take(JobId(2)), None);
        assert_eq!(bodies.take(JobId(1)), Some(body.clone()));
        bodies.put(JobId(2), &body);
        assert_eq!(bodies.take(JobId(2)), Some(body));
    }
}
