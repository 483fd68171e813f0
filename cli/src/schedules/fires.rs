//! `longshore fires`: what became of each slot, how its job ended, and how the last retry of that did.

use serde_json::Value;
use server::config::next_slots::local_text;
use server::http::present::shapes::{Fire, SlotRetry};

use super::Schedule;
use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::duration;
use crate::jobs::send_page;
use crate::records;
use crate::screen;
use crate::view::in_words;

/// Show which slots of a definition's schedules fired, were skipped or missed, the newest first, and how their jobs ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore fires report
  longshore fires report --schedule nightly --since 7d
  longshore fires report --failed                       slots without a good end
  longshore fires report --limit 500 -o json

STATE is that of the job of the slot, RETRY its last retry: a retry of a retry counts.
--failed leaves out slots that were missed or skipped: those without a job are listed by
'longshore backfill NAME --from TIME --dry-run'. LOCAL is the slot in the zone of its schedule, unless that is UTC.")]
pub(crate) struct FiresFlags {
    #[command(flatten)]
    common: CommonArgs,
    /// The definition.
    #[arg(value_name = "NAME", value_parser = crate::args::parse_definition_name, add = crate::completions::definitions())]
    name: String,
    /// Only slots of the schedule with this id.
    #[arg(long, value_name = "ID")]
    schedule: Option<String>,
    /// Only slots at or after this instant (RFC 3339), from this date on (UTC), or so long ago at most (90s, 1h30m, 7d).
    #[arg(long, value_name = "TIME", value_parser = crate::run::date_or_instant_or_ago)]
    since: Option<String>,
    /// Only slots before this instant, or longer ago than this.
    #[arg(long, value_name = "TIME", value_parser = crate::run::date_or_instant_or_ago)]
    until: Option<String>,
    /// Only slots whose last job, a retry included, failed, expired or was lost, and was not acknowledged.
    #[arg(long)]
    failed: bool,
    /// How many rows; 1 to 500.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
}

/// Shows rows of the fire ledger.
pub(crate) async fn fires(flags: FiresFlags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let json = read(&api, &flags).await?;
    if records::print(flags.common.format, &json, "from")? {
        return Ok(());
    }
    let fires: Vec<Fire> = api::parse(&api, &json)?;
    if fires.is_empty() && !flags.failed && flags.since.is_none() && flags.until.is_none() {
        return note_first_slots(&api, &flags).await;
    }
    let local_slot = |it: &Fire| local(it.timezone.as_deref()?, &it.from.to_string());
    let has_local = fires.iter().any(|it| local_slot(it).is_some());
    let row = |it: &Fire| {
        let until = if it.from == it.to { String::new() } else { it.to.to_string() };
        let count = format!("{}{}", it.count, if it.at_least { "+" } else { "" });
        let job = it.job.map(|job| job.to_string()).unwrap_or_default();
        let reason = it.reason.as_deref().unwrap_or_default().to_owned();
        let late = duration::show(i64::try_from(it.lateness_ms).unwrap_or(i64::MAX));
        let state = it.state.as_ref().map(|state| end_text(state, it.outcome.as_deref(), it.exit_code));
        let mut row = vec![it.from.to_string()];
        row.extend(has_local.then(|| local_slot(it).unwrap_or_default()));
        row.extend([until, count, it.schedule.clone(), it.verdict.clone().into_owned(), reason, job]);
        row.extend([state.unwrap_or_default(), it.retry.as_ref().map(retry_text).unwrap_or_default(), late]);
        row
    };
    let mut heading =
        vec!["SLOT", "UNTIL", ">COUNT", "SCHEDULE", "VERDICT", "REASON", ">JOB", "STATE", "RETRY", ">LATE"];
    if has_local {
        heading.insert(1, "LOCAL");
    }
    screen::table(&heading, fires.iter().map(row).collect())
}

/// Reads rows up to the limit. A page of failed slots may have fewer, although there are more.
async fn read(api: &Api, flags: &FiresFlags) -> anyhow::Result<Value> {
    let filters = [("schedule", &flags.schedule), ("since", &flags.since), ("until", &flags.until)];
    let filters = filters.into_iter().filter_map(|(key, value)| Some((key, value.clone()?)));
    let query: Vec<_> = filters.chain(flags.failed.then(|| ("failed", "1".to_owned()))).collect();
    let limit = usize::from(flags.limit);
    let (mut rows, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let request = api.get(&["api", "definitions", &flags.name, "fires"]).query(&query);
        let request = request.query(&[("limit", limit - rows.len())]);
        let (page, next) = send_page(api, request.query(&cursor.map(|cursor| [("cursor", cursor)]))).await?;
        rows.extend(page);
        cursor = next;
        if cursor.is_none() || rows.len() >= limit {
            return Ok(rows.into());
        }
    }
}

/// Says when the schedules fire first of which no slot has passed.
async fn note_first_slots(api: &Api, flags: &FiresFlags) -> anyhow::Result<()> {
    let json = api.json(api.get(&["api", "schedules"]).query(&[("name", &flags.name)])).await?;
    let schedules: Vec<Schedule> = api::parse(api, &json)?;
    if schedules.is_empty() {
        screen::note(&format!("longshore: {} has no schedule", flags.name));
    }
    let is_asked = |it: &&Schedule| flags.schedule.as_ref().is_none_or(|id| *id == it.id);
    for it in schedules.iter().filter(is_asked) {
        let next = it.next_in_words();
        let next = match (next.as_str(), local(&it.timezone, &next)) {
            ("", _) => "it has no slot any more".to_owned(),
            ("paused" | "disabled", _) => format!("it is {next}"),
            (_, Some(local)) => format!("the next one is {next}, {local}"),
            (_, None) => format!("the next one is {next}"),
        };
        screen::note(&format!("longshore: no slot of {} ({}) is in the ledger; {next}", it.name, it.id));
    }
    Ok(())
}

fn retry_text(retry: &SlotRetry) -> String {
    format!("{} {}", retry.id, end_text(&retry.state, retry.outcome.as_deref(), retry.exit_code))
}

/// An instant in a zone; none if that is UTC, where it is shown anyway.
pub(crate) fn local(zone: &str, utc: &str) -> Option<String> {
    Some(zone).filter(|zone| !matches!(*zone, "UTC" | "Etc/UTC")).and_then(|zone| local_text(zone, utc))
}

/// A state with the end of the latest attempt, as in `failed, exit 3`, where that says more.
fn end_text(state: &str, outcome: Option<&str>, exit_code: Option<i32>) -> String {
    match (state, outcome, exit_code) {
        ("failed", Some("failed"), Some(code)) => format!("failed, exit {code}"),
        ("succeeded", _, Some(code)) if code != 0 => format!("succeeded, exit {code}"),
        ("failed" | "lost", Some(outcome), _) if outcome != state => {
            format!("{state}, {}", in_words(outcome))
        }
        _ => state.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_the_exit_code_or_the_outcome_that_explains_it() {
        assert_eq!(end_text("failed", Some("failed"), Some(3)), "failed, exit 3");
        assert_eq!(end_text("failed", Some("oom_killed"), Some(137)), "failed, oom killed");
        assert_eq!(end_text("lost", Some("lost"), None), "lost");
        assert_eq!(end_text("succeeded", Some("succeeded"), Some(0)), "succeeded");
        assert_eq!(end_text("succeeded", Some("succeeded"), Some(24)), "succeeded, exit 24");
        assert_eq!(
            end_text("scheduled", Some("failed"), Some(3)),
            "scheduled",
            "it waits for its next attempt"
        );
    }

    #[test]
    fn slots_in_utc_have_no_second_time() {
        let utc = "2026-03-01T09:30:00.000Z";
        assert_eq!(local("UTC", utc), None);
        assert!(local("Europe/Berlin", utc).unwrap().contains("10:30:00 +01:00"));
    }
}
