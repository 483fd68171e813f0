//! Wall-clock times as text: RFC 3339 in UTC with milliseconds.
//!
//! The HTTP answers, the manifest of a backup and messages about the store show times in this one form.

use std::borrow::Cow;

use protocol::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

/// An instant: RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ToSchema)]
#[schema(value_type = String, format = DateTime)]
pub struct Time(pub Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let instant: jiff::Timestamp = text.parse().map_err(D::Error::custom)?;
        Ok(Self(Timestamp(instant.as_millisecond())))
    }
}

impl std::fmt::Display for Time {
    /// An instant that no calendar has is shown as the nearest one that it has.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nearest = if self.0.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        write!(f, "{:.3}", jiff::Timestamp::from_millisecond(self.0.0).unwrap_or(nearest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_shown_in_utc_with_milliseconds_and_read_again() {
        let time = Time(Timestamp(1_700_000_000_120));
        let text = serde_json::to_string(&time).unwrap();
        assert_eq!(text, "\"2023-11-14T22:13:20.120Z\"");
        assert_eq!(serde_json::from_str::<Time>(&text).unwrap(), time);
    }

    #[test]
    fn an_instant_outside_of_the_calendar_is_shown_as_the_nearest_one() {
        assert_eq!(Time(Timestamp(i64::MAX)).to_string(), "9999-12-30T22:00:00.999Z");
    }
}
