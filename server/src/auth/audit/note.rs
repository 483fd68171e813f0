//! The facts about a request that only its handler knows: the thing that it acted on, and the kind of the change.
//!
//! Handlers call [`object`] and [`detail`]. The middleware reads the note after the answer and writes it into the audit log.

use std::sync::{Arc, Mutex, PoisonError};

use crate::excerpt::excerpt_of;

/// The facts about one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct AuditNote {
    /// The thing that the request acted on, such as `token ci` or `worker 3 (anna)`.
    pub(crate) object: Option<String>,
    /// The change: names, roles, keys that differ. Never a secret, and never the value of a variable.
    pub(crate) detail: Option<String>,
}

/// The note of one request, shared by its handler and the middleware.
#[derive(Clone, Debug, Default)]
pub(crate) struct NoteSlot(Arc<Mutex<AuditNote>>);

impl NoteSlot {
    /// Runs a handler whose calls of [`object`] and [`detail`] go to this note.
    pub(crate) async fn serve<F: Future>(&self, handler: F) -> F::Output {
        CURRENT.scope(self.clone(), handler).await
    }

    /// The note as it is now.
    pub(crate) fn read(&self) -> AuditNote {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut AuditNote)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The note of the present request, for a task that goes on with it. Nobody reads it if no request is being audited.
pub(crate) fn current() -> NoteSlot {
    CURRENT.try_with(Clone::clone).unwrap_or_default()
}

/// Names the thing that the present request acts on. Outside of a request that is audited it does nothing.
pub(crate) fn object(text: impl Into<String>) {
    let text = text.into();
    // An error means that no request is being audited.
    let _ = CURRENT.try_with(|slot| slot.change(|note| note.object = Some(excerpt_of(&text, CHARS_MAX))));
}

/// Says how the present request changes its object. Outside of a request that is audited it does nothing.
pub(crate) fn detail(text: impl Into<String>) {
    let text = text.into();
    // An error means that no request is being audited.
    let _ = CURRENT.try_with(|slot| slot.change(|note| note.detail = Some(excerpt_of(&text, CHARS_MAX))));
}

/// A list for a note or a message: the first few of these words, and how many more there are.
pub(crate) fn list<W: std::fmt::Display>(words: impl IntoIterator<Item = W>) -> String {
    let mut words = words.into_iter();
    let shown: Vec<String> = words.by_ref().take(WORDS_MAX).map(|word| word.to_string()).collect();
    match words.count() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The change of definitions, for a note: `added a, b; changed c`. Nothing if there is none.
pub(crate) fn changes<W: std::fmt::Display>(changes: [(&str, Vec<W>); 3]) -> Option<String> {
    let some = changes.into_iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> = some.map(|(verb, names)| format!("{verb} {}", list(names))).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

tokio::task_local! {
    static CURRENT: NoteSlot;
}

/// Longer texts are cut: a row of the log stays small.
const CHARS_MAX: usize = 400;
const WORDS_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_handler_writes_the_note_of_its_own_request() {
        object("nothing is being audited");
        let (first, second) = (NoteSlot::default(), NoteSlot::default());
        first.serve(async { object("token ci") }).await;
        second.serve(async { detail("x".repeat(CHARS_MAX + 1)) }).await;
        assert_eq!(first.read(), AuditNote { object: Some("token ci".to_owned()), detail: None });
        assert_eq!(second.read().detail.map(|text| text.chars().count()), Some(CHARS_MAX + 1));
    }

    #[test]
    fn a_list_is_cut_after_a_few_words() {
        assert_eq!(list(["a", "b"]), "a, b");
        assert_eq!(list(1..=12), "1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more");
        assert_eq!(
            changes([("added", vec!["a"]), ("changed", vec![]), ("removed", vec!["c"])]).unwrap(),
            "added a; removed c"
        );
        assert_eq!(changes::<&str>([("added", vec![]), ("changed", vec![]), ("removed", vec![])]), None);
    }
}
