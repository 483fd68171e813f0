//! `--for` and `--until` of pauses and cordons, which end by themselves.

use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::local_time;

/// The end of a pause or a cordon.
#[derive(Debug, clap::Args)]
pub(crate) struct EndArgs {
    /// End by itself after this time: 90s, 2h or 3d, at most 366d. Without an end it lasts until somebody ends it.
    #[arg(long = "for", value_name = "DURATION", conflicts_with = "until")]
    lasts: Option<String>,
    /// End by itself at this time, within 366 days: 18:30 (the next one), "2026-12-01 06:00", or with its zone 2026-12-01T06:00Z.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// The zone of a time that names none, such as Europe/Berlin [default: that of this machine].
    #[arg(long, value_name = "ZONE", requires = "until")]
    timezone: Option<String>,
}

impl EndArgs {
    /// Reads a local time, and notes its instant.
    ///
    /// # Errors
    /// Those of [`local_time::instant`].
    pub(crate) fn read(self) -> Result<End, Failure> {
        let Self { lasts, until, timezone } = self;
        let until =
            until.map(|until| local_time::instant("--until", &until, timezone.as_deref())).transpose()?;
        let until = until.map(|until| {
            until.tell();
            until.utc
        });
        Ok(End { lasts, until })
    }
}

/// An end as the server reads it.
#[derive(Debug)]
pub(crate) struct End {
    lasts: Option<String>,
    until: Option<String>,
}

impl End {
    /// As the end of a sentence: ` for 2h`, or nothing.
    pub(crate) fn words(&self) -> String {
        match (&self.lasts, &self.until) {
            (Some(lasts), _) => format!(" for {lasts}"),
            (None, Some(until)) => format!(" until {until}"),
            (None, None) => String::new(),
        }
    }

    /// The body of the request, with this reason; none if nothing is given. The server checks it.
    pub(crate) fn body(self, reason: Option<String>) -> Option<Value> {
        let given = [("for", self.lasts), ("until", self.until), ("reason", reason)];
        let body: Map<String, Value> =
            given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect();
        (!body.is_empty()).then_some(Value::Object(body))
    }
}
