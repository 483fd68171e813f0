//! `longshore schedules`, `next`, `fires`: when jobs are made without a request, and what became of it.

mod fires;

use serde::Deserialize;
use serde_json::{Value, json};
use server::config::next_slots::{RuleText, local_text, next_slots};

use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::duration;
use crate::failure::{Exit, Failure};
use crate::records;
use crate::screen;
pub(crate) use fires::{FiresFlags, fires, local};

/// List schedules with their next and their last slot.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore schedules
  longshore schedules -o json | jq '.[] | {name, id, next: .next[0]}'")]
pub(crate) struct ListFlags {
    #[command(flatten)]
    common: CommonArgs,
}

/// Show the next slots of a definition's schedules, or of a rule, which needs no server.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore next report -n 10
  longshore next report --from 2026-10-24T22:00:00Z    the slots from then on
  longshore next report --from 2026-12-01              from midnight on in the zone of each schedule
  longshore next --cron '0 2 * * *' --timezone Europe/Berlin
  longshore next --at 'monday 08:30' --timezone America/New_York")]
pub(crate) struct NextFlags {
    #[command(flatten)]
    common: CommonArgs,
    /// The definition.
    #[arg(value_name = "NAME", value_parser = crate::args::parse_definition_name, add = crate::completions::definitions(), required_unless_present_any = ["cron", "every", "at"])]
    name: Option<String>,
    /// How many slots; 1 to 100.
    #[arg(short = 'n', long = "count", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    count: u16,
    /// The slots at or after this instant, with its zone: 2026-10-25T00:00:00Z, or from this date on [default: those that have not fired].
    #[arg(long, value_name = "TIME", value_parser = crate::run::date_or_instant)]
    from: Option<String>,
    /// A cron rule instead of a definition.
    #[arg(long, value_name = "RULE", conflicts_with_all = ["name", "every", "at"])]
    cron: Option<String>,
    /// An interval instead of a definition.
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["name", "at"])]
    every: Option<String>,
    /// A time, or a day and a time, instead of a definition.
    #[arg(long, value_name = "TIME", conflicts_with = "name")]
    at: Option<String>,
    /// The zone of the rule.
    #[arg(long, value_name = "ZONE", default_value = "UTC", conflicts_with = "name")]
    timezone: String,
}

#[derive(Debug, Deserialize)]
struct Schedule {
    name: String,
    id: String,
    rule: String,
    timezone: String,
    state: String,
    paused_until: Option<String>,
    decided_until: Option<String>,
    next: Vec<String>,
    /// When these slots fire; empty without jitter.
    #[serde(default)]
    next_due: Vec<String>,
    last_fire: Option<LastFire>,
}

impl Schedule {
    /// The next slots, each with the time at which it fires if that is another one.
    fn slots(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let due = self.next_due.iter().map(|due| Some(due.as_str())).chain(std::iter::repeat(None));
        self.next.iter().map(String::as_str).zip(due)
    }

    /// The next slot that is to fire. Without one, why: a pause may end after all the slots that the server has told.
    fn next_in_words(&self) -> String {
        let mut fires =
            self.slots().filter(|(slot, _)| !matches!(self.state_at(slot), "paused" | "disabled"));
        match (fires.next(), &self.paused_until) {
            (Some((slot, Some(due))), _) => format!("{slot} (fires {due})"),
            (Some((slot, None)), _) => slot.to_owned(),
            // The rule has no more slots, whatever becomes of the pause.
            (None, _) if self.state == "paused" && self.next.is_empty() => String::new(),
            (None, Some(until)) if self.state == "paused" => format!("after {until}"),
            (None, _) if matches!(&*self.state, "paused" | "disabled") => self.state.clone(),
            (None, _) => String::new(),
        }
    }

    /// The state at a slot: the pause may have ended by itself until then, and a slot at the end of a pause fires.
    fn state_at(&self, slot: &str) -> &str {
        let instant = |text: &str| text.parse::<jiff::Timestamp>().ok();
        let end = self.paused_until.as_deref().filter(|_| self.state == "paused").and_then(instant);
        match (end, instant(slot)) {
            (Some(end), Some(at)) if at >= end => "active",
            _ => &self.state,
        }
    }
}

#[derive(Debug, Deserialize)]
struct LastFire {
    slot: String,
    job: u64,
    lateness_ms: i64,
}

/// Lists schedules.
pub(crate) async fn list(flags: ListFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let json = api.json(api.get(&["api", "schedules"])).await?;
    if records::print(flags.common.format, &json, "name")? {
        return Ok(());
    }
    let schedules: Vec<Schedule> = api::parse(&api, &json)?;
    let row = |it: &Schedule| {
        let last = it.last_fire.as_ref();
        let late = last.map(|last| duration::show(last.lateness_ms)).unwrap_or_default();
        let made = last.map(|last| format!("{} (job {})", last.slot, last.job)).unwrap_or_default();
        let next = it.next_in_words();
        let paused = it.paused_until.as_ref().filter(|_| it.state == "paused");
        let state = paused.map_or_else(|| it.state.clone(), |until| format!("paused until {until}"));
        [&it.name, &it.id, &it.rule, &it.timezone, &state, &next, &made, &late].map(String::clone).to_vec()
    };
    let heading = ["NAME", "ID", "RULE", "ZONE", "STATE", "NEXT", "LAST", ">LATE"];
    screen::table(&heading, schedules.iter().map(row).collect())?;
    let silent: Vec<_> = schedules.iter().filter_map(|it| Some((it, it.decided_until.as_ref()?))).collect();
    for (it, until) in silent.iter().take(SILENT_SHOWN) {
        screen::note(&format!("warning: {} ({}) fires nothing until {until}", it.name, it.id));
    }
    if let Some(more) = silent.len().checked_sub(SILENT_SHOWN).filter(|more| *more > 0) {
        screen::note(&format!("warning: {more} more schedules fire nothing for some time"));
    }
    if !silent.is_empty() {
        screen::note(
            "the server's clock was set back, and the slots up to then are decided. Give such a schedule another id in jobs.yaml, and it goes on now",
        );
    }
    Ok(())
}

/// Schedules that wait for the clock are named up to this many.
const SILENT_SHOWN: usize = 10;

/// Shows the next slots.
pub(crate) async fn next(flags: NextFlags) -> anyhow::Result<()> {
    let rule = match (&flags.cron, &flags.every, &flags.at) {
        (Some(text), ..) => RuleText::Cron(text),
        (None, Some(text), _) => RuleText::Every(text),
        (None, None, Some(text)) => RuleText::At(text),
        (None, None, None) => return next_of_definition(&flags).await,
    };
    let slots = next_slots(rule, &flags.timezone, flags.from.as_deref(), usize::from(flags.count))
        .map_err(|why| Failure::new(Exit::Usage, why))?;
    let json = slots.iter().map(|slot| json!({ "utc": slot.utc, "local": slot.local })).collect();
    if records::print(flags.common.format, &json, "utc")? {
        return Ok(());
    }
    screen::table(&["UTC", "LOCAL"], slots.into_iter().map(|slot| vec![slot.utc, slot.local]).collect())
}

async fn next_of_definition(flags: &NextFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let query = [("name", flags.name.clone().unwrap_or_default()), ("next", flags.count.to_string())];
    let from = flags.from.as_ref().map(|from| [("from", from)]);
    let json = api.json(api.get(&["api", "schedules"]).query(&query).query(&from)).await?;
    let schedules: Vec<Schedule> = api::parse(&api, &json)?;
    let of = |it| Schedule::slots(it).map(move |(slot, due)| (slot, due, it));
    let mut slots: Vec<(&str, Option<&str>, &Schedule)> = schedules.iter().flat_map(of).collect();
    slots.sort_by_key(|(slot, ..)| *slot);
    slots.truncate(usize::from(flags.count));
    let local = |slot: &str, it: &Schedule| local_text(&it.timezone, slot).unwrap_or_default();
    let shown = |(slot, due, it): &(&str, Option<&str>, &Schedule)| {
        let mut shown =
            json!({ "at": slot, "local": local(slot, it), "schedule": it.id, "state": it.state_at(slot) });
        if let Some(due) = due {
            shown["due_at"] = json!(due);
        }
        shown
    };
    if records::print(flags.common.format, &slots.iter().map(shown).collect::<Value>(), "at")? {
        return Ok(());
    }
    // Without jitter a slot fires at its instant.
    let has_jitter = slots.iter().any(|(_, due, _)| due.is_some());
    let row = |(slot, due, it): (&str, Option<&str>, &Schedule)| {
        let mut row = vec![slot.to_owned(), local(slot, it), it.id.clone(), it.state_at(slot).to_owned()];
        row.extend(has_jitter.then(|| due.unwrap_or(slot).to_owned()));
        row
    };
    let heading = ["AT", "LOCAL", "SCHEDULE", "STATE", "FIRES"];
    let columns = heading.len() - usize::from(!has_jitter);
    screen::table(&heading[..columns], slots.into_iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_slot_in_words_says_why_there_is_none() {
        let words = |state: &str, until: Option<&str>, next: &[&str]| {
            let schedule = json!({
                "name": "tick", "id": "daily", "rule": "every 1d", "timezone": "UTC", "state": state, "paused_until": until,
                "next": next,
            });
            serde_json::from_value::<Schedule>(schedule).unwrap().next_in_words()
        };
        let (first, second) = ("2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z");
        let far = Some("2026-04-01T00:00:00Z");
        assert_eq!(words("active", None, &[first, second]), first);
        assert_eq!(words("paused", Some(second), &[first, second]), second);
        assert_eq!(words("paused", far, &[first, second]), "after 2026-04-01T00:00:00Z");
        assert_eq!(words("paused", None, &[first, second]), "paused");
        assert_eq!(words("disabled", None, &[first]), "disabled");
        for (state, until) in [("active", None), ("paused", None), ("paused", far)] {
            assert_eq!(words(state, until, &[]), "", "the rule has ended: {state} {until:?}");
        }
    }
}
