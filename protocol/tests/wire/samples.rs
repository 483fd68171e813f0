//! One example of every message, with the meaning of each of its bytes. In the order of the transcript in `docs/protocol.md` they tell
//! one story: worker `dock-3` lost its connection while job 10 ran and job 11 waited; it reconnects and runs jobs 12 and 13.

/// Appends a line per field.
macro_rules! fields {
    ($notes:expr, $of:expr, $($field:ident),+) => {
        $notes$(.field(stringify!($field), &$of.$field))+
    };
}

mod orders;
mod reports;

use std::fmt::{Debug, Display};

use bincode::Encode;
use longshore_protocol::report::Numbered;
use longshore_protocol::{ClusterId, Fence, JobId, Nonce, Order, Report, ReportNo, Revision, Token};

pub(crate) use orders::orders;
pub(crate) use reports::reports;

/// A message and what its bytes mean.
#[derive(Clone, Debug)]
pub(crate) struct Sample<M> {
    pub(crate) message: M,
    pub(crate) notes: Notes,
}

/// Bytes with their meaning, in the order in which they are sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(pub(crate) Vec<(Vec<u8>, String)>);

impl Notes {
    pub(super) fn of(tag: u8, name: &str) -> Self {
        Self(vec![(vec![tag], format!("tag: {name}"))])
    }

    /// One field: its bytes, its name, its value.
    pub(super) fn field<T: Encode + Debug>(mut self, name: &str, value: &T) -> Self {
        let bytes = bincode::encode_to_vec(value, bincode::config::standard()).unwrap();
        self.0.push((bytes, format!("{name} = {value:?}")));
        self
    }

    /// One field whose value is shown as people are shown it.
    pub(super) fn id<T: Encode + Display>(mut self, name: &str, value: &T) -> Self {
        let bytes = bincode::encode_to_vec(value, bincode::config::standard()).unwrap();
        self.0.push((bytes, format!("{name} = {value}")));
        self
    }

    /// How many entries follow.
    pub(super) fn count<T>(mut self, name: &str, list: &[T]) -> Self {
        let bytes = bincode::encode_to_vec(list.len() as u64, bincode::config::standard()).unwrap();
        self.0.push((bytes, format!("{name}: {} follow", list.len())));
        self
    }

    /// The presence byte of an optional group of fields.
    pub(super) fn present(mut self, name: &str) -> Self {
        self.0.push((vec![1], format!("{name} is present")));
        self
    }

    pub(super) fn token(self, token: &Token) -> Self {
        self.id("token.job", &token.job).id("token.fence", &token.fence).id("token.nonce", &token.nonce)
    }
}

pub(super) const FOREIGN: Token =
    Token { job: JobId(9), fence: Fence(280), nonce: Nonce(0x0f1e_2d3c_4b5a_6978) };
pub(super) const RUNNING: Token =
    Token { job: JobId(10), fence: Fence(290), nonce: Nonce(0x1122_3344_5566_7788) };
pub(super) const QUEUED: Token =
    Token { job: JobId(11), fence: Fence(291), nonce: Nonce(0x8877_6655_4433_2211) };
pub(super) const TOKEN: Token =
    Token { job: JobId(12), fence: Fence(300), nonce: Nonce(0x0123_4567_89ab_cdef) };
pub(super) const OTHER: Token =
    Token { job: JobId(13), fence: Fence(301), nonce: Nonce(0xfedc_ba98_7654_3210) };
pub(super) const REVISION: Revision = Revision(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
pub(super) const CLUSTER: ClusterId = ClusterId(0x00c0_ffee);

pub(super) fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// A message whose notes are told by `tell`.
pub(super) fn single<M: Tagged>(message: M, tell: impl FnOnce(Notes) -> Notes) -> Sample<M> {
    let notes = tell(Notes::of(message.tag(), message.name()));
    Sample { message, notes }
}

/// A message that is a list.
pub(super) fn list<M: Tagged, T: Clone>(
    make: impl FnOnce(Vec<T>) -> M,
    entries: Vec<T>,
    tell: impl Fn(Notes, &T) -> Notes,
) -> Sample<M> {
    single(make(entries.clone()), |notes| entries.iter().fold(notes.count("entries", &entries), tell))
}

/// A message that is a numbered list.
pub(super) fn numbered<T: Clone>(
    make: impl FnOnce(Numbered<T>) -> Report,
    first: u64,
    list: Vec<T>,
    tell: impl Fn(Notes, &T) -> Notes,
) -> Sample<Report> {
    let first = ReportNo(first);
    single(make(Numbered { first, list: list.clone() }), |notes| {
        list.iter().fold(notes.id("first", &first).count("entries", &list), tell)
    })
}

/// Common interface of orders and reports.
pub(crate) trait Tagged {
    fn tag(&self) -> u8;
    fn name(&self) -> &'static str;
}

impl Tagged for Order {
    fn tag(&self) -> u8 {
        self.tag()
    }
    fn name(&self) -> &'static str {
        self.name()
    }
}

impl Tagged for Report {
    fn tag(&self) -> u8 {
        self.tag()
    }
    fn name(&self) -> &'static str {
        self.name()
    }
}
