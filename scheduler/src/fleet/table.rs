//! The published facts of all workers: a map that shares with its copies what has not changed.
//!
//! A copy costs one pointer. The first change after a copy copies the list of chunks, a pointer for 64 workers, and the pointers of one
//! chunk.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use protocol::WorkerId;

use super::facts::WorkerFacts;

/// Facts of workers by id.
#[derive(Clone, Debug, Default)]
pub struct WorkerTable {
    chunks: Arc<BTreeMap<u64, Arc<Chunk>>>,
}

type Chunk = BTreeMap<WorkerId, Arc<WorkerFacts>>;

/// Ids in one chunk. About the square root of 10,000 workers, so that both levels cost the same.
const CHUNK: u64 = 64;

impl WorkerTable {
    /// The facts of a worker.
    #[must_use]
    pub fn get(&self, id: WorkerId) -> Option<&WorkerFacts> {
        self.chunks.get(&(id.0 / CHUNK))?.get(&id).map(Arc::as_ref)
    }

    /// All workers, by id.
    pub fn iter(&self) -> impl Iterator<Item = &WorkerFacts> {
        self.chunks.values().flat_map(|chunk| chunk.values()).map(Arc::as_ref)
    }

    /// Sets or removes the facts of a worker. Equal facts change nothing.
    pub fn set(&mut self, id: WorkerId, facts: Option<WorkerFacts>) {
        if self.get(id) == facts.as_ref() {
            return;
        }
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = Arc::make_mut(chunks.entry(id.0 / CHUNK).or_default());
        match facts {
            Some(facts) => drop(chunk.insert(id, Arc::new(facts))),
            None => drop(chunk.remove(&id)),
        }
        if chunk.is_empty() {
            chunks.remove(&(id.0 / CHUNK));
        }
    }

    /// Workers that differ from an earlier copy, by id: the facts before and now. The cost follows from the number of differences and of
    /// chunks.
    pub fn differences<'t>(
        &'t self,
        before: &'t Self,
    ) -> impl Iterator<Item = (Option<&'t WorkerFacts>, Option<&'t WorkerFacts>)> {
        let all: BTreeSet<u64> = before.chunks.keys().chain(self.chunks.keys()).copied().collect();
        all.into_iter().flat_map(move |key| {
            let (old, new) = (before.chunks.get(&key), self.chunks.get(&key));
            let is_same = old.zip(new).is_some_and(|(old, new)| Arc::ptr_eq(old, new));
            let ids: BTreeSet<WorkerId> = if is_same {
                BTreeSet::new()
            } else {
                old.into_iter().chain(new).flat_map(|chunk| chunk.keys()).copied().collect()
            };
            let of = |chunk: Option<&'t Arc<Chunk>>, id| chunk.and_then(|chunk| chunk.get(&id));
            ids.into_iter().filter_map(move |id| {
                let (old, new) = (of(old, id), of(new, id));
                let is_same = old.zip(new).is_some_and(|(old, new)| Arc::ptr_eq(old, new));
                (!is_same).then(|| (old.map(Arc::as_ref), new.map(Arc::as_ref)))
            })
        })
    }
}

impl FromIterator<WorkerFacts> for WorkerTable {
    fn from_iter<T: IntoIterator<Item = WorkerFacts>>(all: T) -> Self {
        let mut table = Self::default();
        all.into_iter().for_each(|facts| table.set(facts.id, Some(facts)));
        table
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use protocol::{SessionId, Timestamp};

    use super::*;
    use crate::fleet::facts::WorkerState;

    fn facts(id: u64, busy: u32) -> WorkerFacts {
        WorkerFacts {
            id: WorkerId(id),
            name: "w".into(),
            session: Some(SessionId(id)),
            state: WorkerState::Ready,
            since: Timestamp(0),
            slots: 2,
            busy,
            backlog: 0,
            queued: 0,
            suspect: None,
            exclusions: Vec::new(),
            cordoned: false,
            cordon: None,
            drain_deadline: None,
            own_labels: Vec::new(),
            granted_labels: Vec::new(),
            set_labels: Vec::new(),
            revoked_at: None,
            runtimes: Vec::new(),
            version: alloc::string::String::new(),
            address: alloc::string::String::new(),
            unmanaged: Arc::default(),
            clone_addresses: Vec::new(),
            offer: Default::default(),
            in_use: Default::default(),
            set_aside_for: None,
        }
    }

    fn table(ids: impl Iterator<Item = u64>) -> WorkerTable {
        ids.map(|id| facts(id, 0)).collect()
    }

    #[test]
    fn a_change_copies_one_chunk_and_leaves_the_other_copies_alone() {
        let mut table = table(1..=10_000);
        let before = table.clone();
        table.set(WorkerId(5_000), Some(facts(5_000, 1)));
        table.set(WorkerId(7), None);
        table.set(WorkerId(8), Some(facts(8, 0)));
        let copied =
            table.chunks.iter().filter(|(key, chunk)| !Arc::ptr_eq(chunk, &before.chunks[key])).count();
        assert_eq!(copied, 2, "equal facts change nothing");
        assert_eq!(before.get(WorkerId(5_000)).map(|it| it.busy), Some(0));
        assert_eq!(table.get(WorkerId(5_000)).map(|it| it.busy), Some(1));
        assert_eq!((before.iter().count(), table.iter().count()), (10_000, 9_999));
    }

    #[test]
    fn differences_are_workers_that_came_left_or_changed_by_id() {
        let mut table = table([1, 2, 3, 200].into_iter());
        let before = table.clone();
        assert_eq!(table.differences(&before).count(), 0);
        table.set(WorkerId(2), Some(facts(2, 1)));
        table.set(WorkerId(200), None);
        table.set(WorkerId(900), Some(facts(900, 0)));
        let shown: Vec<_> = table
            .differences(&before)
            .map(|(old, new)| (old.map(|it| (it.id.0, it.busy)), new.map(|it| (it.id.0, it.busy))))
            .collect();
        assert_eq!(shown, vec![(Some((2, 0)), Some((2, 1))), (Some((200, 0)), None), (None, Some((900, 0)))]);
    }
}
