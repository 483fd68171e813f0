//! The names of connections and of their ends.

/// A connection, counted from the beginning of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionNo(pub(crate) u32);

/// The ends of a connection; a direction is named by the end at which it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Worker,
    Server,
}

impl End {
    pub(crate) const BOTH: [Self; 2] = [Self::Worker, Self::Server];

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Worker => Self::Server,
            Self::Server => Self::Worker,
        }
    }
}
