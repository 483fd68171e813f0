//! Times of the command line without a zone, such as `18:30` or `2026-12-01 18:30`: by the clock of `--timezone`, or of this machine.
//!
//! They are read as the `at` of a schedule, so clock changes count as docs/scheduling.md says. The instant is noted, because the zone may be
//! another one than the reader has in mind.

use std::path::Path;

use server::config::next_slots::{RuleText, Slot, check_zone, next_slots};

use crate::failure::{Exit, Failure};
use crate::screen;

/// The instant of a flag.
#[derive(Debug)]
pub(crate) struct Instant {
    /// The text for the server.
    pub(crate) utc: String,
    /// Says by which clock a local time was read.
    note: Option<String>,
}

impl Instant {
    /// Notes the instant of a local time.
    pub(crate) fn tell(&self) {
        if let Some(note) = &self.note {
            screen::note(note);
        }
    }
}

/// The instant that the value of a flag means. One with its own zone is sent as it is.
///
/// # Errors
/// The zone is not known, or is given twice, or the value is no time, or is past.
pub(crate) fn instant(flag: &str, text: &str, timezone: Option<&str>) -> Result<Instant, Failure> {
    let usage = |text: String| Failure::new(Exit::Usage, text);
    if text.parse::<jiff::Timestamp>().is_ok() {
        if timezone.is_some() {
            let text = format!("--timezone: {flag} {} names its own zone", screen::visible(text));
            return Err(usage(text).hint("leave --timezone out, or write the time without a zone"));
        }
        return Ok(Instant { utc: text.to_owned(), note: None });
    }
    // The parser of local times reads over it.
    if text.contains('[') {
        let text =
            format!("{flag}: \"{}\" names a zone in brackets beside a local time", screen::visible(text));
        return Err(
            usage(text).hint("give the zone with --timezone, or add the distance from UTC, such as -05:00")
        );
    }
    let zone = match timezone {
        Some(zone) => {
            check_zone(zone).map_err(|why| usage(format!("--timezone: {why}")))?;
            zone.to_owned()
        }
        None => machine_zone().map_err(|why| {
            usage(format!("{flag}: {why}"))
                .hint("give --timezone, or write the instant with its zone, such as 2026-03-01T09:30:00Z")
        })?,
    };
    let slots = next_slots(RuleText::At(text), &zone, None, 1).map_err(|_| {
        usage(format!("{flag}: \"{}\" is no time", screen::visible(text))).hint(
            "write 18:30 (the next one), \"monday 18:30\", \"2026-03-01 18:30\", or with its zone 2026-03-01T18:30:00Z",
        )
    })?;
    let Some(Slot { utc, local }) = slots.into_iter().next() else {
        return Err(usage(format!("{flag}: {} is past in {zone}", screen::visible(text))));
    };
    let note = Some(format!("longshore: {flag} {text} is {utc}, in {zone} {local}"));
    Ok(Instant { utc, note })
}

/// The zone of this machine: of the variable TZ, or of /etc/localtime. Without both it is UTC, as for the C library.
fn machine_zone() -> Result<String, String> {
    if let Some(value) = std::env::var_os("TZ") {
        let value = value.to_string_lossy();
        // `:Europe/Berlin`, a path below zoneinfo and a link to it are the same zone; an empty variable is UTC.
        let name = value.strip_prefix(':').unwrap_or(&value);
        let name = zone_of_file(Path::new(name)).unwrap_or_else(|| name.to_owned());
        return match name.as_str() {
            "" => Ok(UTC.to_owned()),
            name if check_zone(name).is_ok() => Ok(name.to_owned()),
            _ => Err(format!(
                "the variable TZ is \"{}\", which is no zone with a name",
                screen::visible(&value)
            )),
        };
    }
    let link = Path::new("/etc/localtime");
    if link.symlink_metadata().is_err() {
        return Ok(UTC.to_owned());
    }
    let named = zone_of_file(link).filter(|name| check_zone(name).is_ok());
    named.ok_or_else(|| "/etc/localtime does not name the zone of this machine".to_owned())
}

/// The zone of a file of the zone database, or of an absolute link to one such as /etc/localtime.
fn zone_of_file(path: &Path) -> Option<String> {
    zone_of_path(path).or_else(|| {
        let target = path.is_absolute().then(|| std::fs::read_link(path).ok())?;
        target.as_deref().and_then(zone_of_path)
    })
}

/// The zone of a path in the zone database: `Europe/Berlin` of `/usr/share/zoneinfo/Europe/Berlin`.
fn zone_of_path(path: &Path) -> Option<String> {
    let (_, name) = path.to_str()?.rsplit_once("zoneinfo/")?;
    Some(name.to_owned())
}

const UTC: &str = "UTC";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_zone_database_names_its_zone() {
        let zone = |path: &str| zone_of_path(Path::new(path));
        assert_eq!(zone("/usr/share/zoneinfo/Europe/Berlin").as_deref(), Some("Europe/Berlin"));
        assert_eq!(zone("../usr/share/zoneinfo/Etc/UTC").as_deref(), Some("Etc/UTC"));
        assert_eq!(zone("/etc/here"), None);
    }

    #[test]
    fn an_instant_with_its_zone_is_sent_as_it_is() {
        for text in ["2026-03-01T09:30:00Z", "2026-12-01T06:00Z", "2026-03-01T09:30:00+02:00"] {
            assert_eq!(instant("--at", text, None).unwrap().utc, text);
            let twice = instant("--at", text, Some("Europe/Berlin")).unwrap_err().to_string();
            assert!(twice.starts_with(&format!("--timezone: --at {text} names its own zone; ")), "{twice}");
        }
    }

    #[test]
    fn a_local_time_is_read_as_that_of_a_schedule() {
        let at = |text| instant("--at", text, Some("Europe/Berlin")).map(|at| at.utc);
        assert_eq!(at("2999-12-01 18:30").unwrap(), "2999-12-01T17:30:00.000Z");
        assert_eq!(at("2999-07-01T18:30:15").unwrap(), "2999-07-01T16:30:15.000Z");
        assert!(at("18:30").unwrap().contains(":30:00.000Z"));
        let text = |text| at(text).unwrap_err().to_string();
        assert_eq!(text("2020-12-01 18:30"), "--at: 2020-12-01 18:30 is past in Europe/Berlin");
        for wrong in ["2999-12-01", "25:00", "soon", "tomorrow 18:30", ""] {
            assert!(
                text(wrong).starts_with(&format!("--at: \"{wrong}\" is no time; write 18:30")),
                "{wrong}"
            );
        }
        for annotated in ["2999-12-01 18:30[America/New_York]", "18:30[UTC]"] {
            let why = text(annotated);
            assert!(why.contains("names a zone in brackets") && why.contains("--timezone"), "{why}");
        }
        let zone = instant("--at", "18:30", Some("Europe/Berln")).unwrap_err().to_string();
        assert!(
            zone.contains("--timezone: \"Europe/Berln\" is no time zone; did you mean Europe/Berlin?"),
            "{zone}"
        );
    }
}
