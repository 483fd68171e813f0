//! Workers that are asked for by their id and do not come back under it: another worker has their name now, or they were forgotten.

use protocol::WorkerId;
use scheduler::placement::rules::WorkerSelector;

/// A worker that was not forgotten.
pub(crate) struct KnownWorker<'s> {
    pub(crate) id: WorkerId,
    pub(crate) name: &'s str,
    pub(crate) is_connected: bool,
}

/// Says which workers that are asked for by id have left, and the id that their name has now, if that is known. `None` if there are none:
/// one that is away and whose name nobody has may come back.
pub(crate) fn departed_text<'s>(
    asked: impl IntoIterator<Item = &'s WorkerSelector>,
    known: &[KnownWorker<'_>],
) -> Option<String> {
    let ids = asked.into_iter().filter_map(|selector| match selector {
        WorkerSelector::Id(id) => Some(*id),
        WorkerSelector::Name(_) => None,
    });
    let texts: Vec<String> = ids.filter_map(|id| text_of(id, known)).take(TOLD_MAX).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn text_of(id: WorkerId, known: &[KnownWorker<'_>]) -> Option<String> {
    let Some(worker) = known.iter().find(|worker| worker.id == id) else {
        return Some(format!("no worker has the id {id}: it was forgotten, or never joined"));
    };
    if worker.is_connected {
        return None;
    }
    // Ids grow, so a worker that joined anew has a higher one.
    let same_name = known.iter().filter(|other| other.name == worker.name && other.id > id);
    let now = same_name.max_by_key(|other| (other.is_connected, other.id))?;
    let (name, new) = (worker.name, now.id);
    Some(format!(
        "worker {id} has left: its name {name} is that of worker {new} now, so ask for id:{new}, or for the name"
    ))
}

/// Workers that one text tells of.
const TOLD_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(asked: u64, known: &[(u64, &str, bool)]) -> Option<String> {
        let known: Vec<KnownWorker<'_>> = known
            .iter()
            .map(|(id, name, is_connected)| KnownWorker {
                id: WorkerId(*id),
                name,
                is_connected: *is_connected,
            })
            .collect();
        departed_text(&[WorkerSelector::Name("w1".into()), WorkerSelector::Id(WorkerId(asked))], &known)
    }

    #[test]
    fn a_worker_that_joined_anew_is_told_with_its_new_id() {
        let both = [(5, "w1", false), (7, "w1", false), (9, "w1", true), (10, "w2", true)];
        assert_eq!(
            text(5, &both).as_deref(),
            Some("worker 5 has left: its name w1 is that of worker 9 now, so ask for id:9, or for the name")
        );
        assert_eq!(
            text(6, &both).as_deref(),
            Some("no worker has the id 6: it was forgotten, or never joined")
        );
    }

    #[test]
    fn a_worker_that_is_there_or_may_come_back_has_not_left() {
        assert_eq!(text(5, &[(5, "w1", true), (9, "w1", true)]), None);
        assert_eq!(text(5, &[(5, "w1", false), (9, "w2", true)]), None);
        assert_eq!(text(9, &[(5, "w1", true), (9, "w1", false)]), None, "an older worker has its name back");
    }
}
