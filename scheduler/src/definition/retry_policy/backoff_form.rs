//! The serde form of a backoff: flat, because it is older than the kinds other than exponential.

use alloc::vec::Vec;

use protocol::milliseconds::Milliseconds;
use serde::{Deserialize, Serialize};

use super::{Backoff, Delays};
use crate::defaults::is_default;

#[derive(Serialize, Deserialize)]
pub(super) struct BackoffForm {
    #[serde(default, skip_serializing_if = "is_default")]
    backoff_kind: Option<Kind>,
    backoff_initial_ms: Milliseconds,
    backoff_max_ms: Milliseconds,
    backoff_factor_milli: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    backoff_delays_ms: Vec<Milliseconds>,
    #[serde(default, skip_serializing_if = "is_default")]
    backoff_jitter_milli: Option<u32>,
}

/// A kind other than exponential.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Linear,
    Fixed,
    List,
}

impl From<Backoff> for BackoffForm {
    fn from(Backoff { delays, jitter_milli }: Backoff) -> Self {
        Self {
            backoff_kind: match &delays {
                Delays::Exponential { .. } => None,
                Delays::Linear { .. } => Some(Kind::Linear),
                Delays::Fixed(_) => Some(Kind::Fixed),
                Delays::List(_) => Some(Kind::List),
            },
            backoff_initial_ms: Milliseconds(delays.first()),
            backoff_max_ms: Milliseconds(delays.highest()),
            backoff_factor_milli: delays.factor_milli(),
            backoff_delays_ms: delays.list().iter().copied().map(Milliseconds).collect(),
            backoff_jitter_milli: Some(jitter_milli).filter(|it| *it != Backoff::FULL_JITTER_MILLI),
        }
    }
}

impl From<BackoffForm> for Backoff {
    fn from(form: BackoffForm) -> Self {
        let (initial, max) = (form.backoff_initial_ms.0, form.backoff_max_ms.0);
        let delays = match form.backoff_kind {
            None => Delays::Exponential { initial, max, factor_milli: form.backoff_factor_milli },
            Some(Kind::Linear) => Delays::Linear { initial, max },
            Some(Kind::Fixed) => Delays::Fixed(initial),
            Some(Kind::List) => Delays::List(form.backoff_delays_ms.into_iter().map(|it| it.0).collect()),
        };
        Self { delays, jitter_milli: form.backoff_jitter_milli.unwrap_or(Self::FULL_JITTER_MILLI) }
    }
}
