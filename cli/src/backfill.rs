//! `longshore backfill`: makes the jobs of past slots that have none.

use reqwest::Method;
use serde::Deserialize;

use crate::api::{self, Api};
use crate::args::CommonArgs;
use crate::records;
use crate::schedules::local;
use crate::screen;

/// Make the jobs of past slots of a schedule that have none. Slots that fired are listed, and never fire again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore backfill report --from 2026-03-01 --to 2026-03-07 --dry-run
  longshore backfill report --from 7d --interval 1m
  longshore backfill report --schedule nightly --from 2026-03-01T00:00:00+01:00

One request makes 1,000 jobs at most. Unless the definition has 'overlap: allow', they run one after the other.")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// The definition.
    #[arg(value_name = "NAME", value_parser = crate::args::parse_definition_name, add = crate::completions::definitions())]
    name: String,
    /// The beginning of the range: a date in the schedule's time zone, an instant with its zone, or how long ago (12h, 7d).
    #[arg(long, value_name = "TIME", value_parser = crate::run::date_or_instant_or_ago)]
    from: String,
    /// The end of the range, likewise; a date is included [default: now].
    #[arg(long, value_name = "TIME", value_parser = crate::run::date_or_instant_or_ago)]
    to: Option<String>,
    /// The schedule, if the definition has several.
    #[arg(long, value_name = "ID")]
    schedule: Option<String>,
    /// Start each job no earlier than this long after the one before it: 30s, 5m.
    #[arg(long, value_name = "DURATION", value_parser = crate::overrides::delay)]
    interval: Option<String>,
    /// Also the slots that a job of an earlier rule of the schedule covers.
    #[arg(long)]
    covered: bool,
    /// Show what would be made, and make nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Deserialize)]
struct Backfill {
    count: u64,
    batch: Option<u64>,
    timezone: Option<String>,
    slots: Vec<Slot>,
}

#[derive(Debug, Deserialize)]
struct Slot {
    slot: String,
    result: String,
    job: Option<u64>,
}

/// Makes the jobs, or says which would be made.
pub(crate) async fn backfill(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let mut query = vec![("from", flags.from)];
    query.extend(flags.to.map(|to| ("to", to)));
    query.extend(flags.schedule.map(|id| ("schedule", id)));
    query.extend(flags.interval.map(|interval| ("interval", interval)));
    query.extend(flags.covered.then(|| ("covered", "1".to_owned())));
    query.extend(flags.dry_run.then(|| ("dry_run", "1".to_owned())));
    let request = api.request(Method::POST, &["api", "definitions", &flags.name, "backfill"]).query(&query);
    let json = api.json(request).await?;
    if records::print_list(flags.common.format, &json, "slots", "slot")? {
        return Ok(());
    }
    let shown: Backfill = api::parse(&api, &json)?;
    let local = |it: &Slot| shown.timezone.as_deref().and_then(|zone| local(zone, &it.slot));
    let has_local = shown.slots.iter().any(|it| local(it).is_some());
    let row = |it: &Slot| {
        let job = it.job.map(|job| job.to_string()).unwrap_or_default();
        let mut row = vec![it.slot.clone()];
        row.extend(has_local.then(|| local(it).unwrap_or_default()));
        row.extend([it.result.clone(), job]);
        row
    };
    let heading = ["SLOT", "LOCAL", "RESULT", ">JOB"].into_iter().filter(|it| has_local || *it != "LOCAL");
    screen::table(&heading.collect::<Vec<_>>(), shown.slots.iter().map(row).collect())?;
    match shown.batch {
        Some(batch) => screen::note(&format!(
            "longshore: made {}; list them with: longshore ls --batch {batch}",
            screen::counted(shown.count, "job")
        )),
        None if flags.dry_run => {
            screen::note(&format!("longshore: {} would be made", screen::counted(shown.count, "job")))
        }
        None if shown.slots.iter().all(|it| matches!(&*it.result, "fired" | "covered")) => {
            screen::note("longshore: no slot of this range is without a job");
        }
        None => screen::note("longshore: nothing was made"),
    }
    for line in notes_about_others(&shown.slots) {
        screen::note(&line);
    }
    Ok(())
}

/// Why some slots make no job although none is known for them.
fn notes_about_others(slots: &[Slot]) -> Vec<String> {
    let note = |(result, why_one, why_all): (&str, &str, &str)| match slots
        .iter()
        .filter(|slot| slot.result == result)
        .count() as u64
    {
        0 => None,
        1 => Some(format!("longshore: 1 slot is {result}: {why_one}")),
        count => Some(format!("longshore: {count} slots are {result}: {why_all}")),
    };
    let forgotten = ("forgotten", "it may have run, and gets no job", "they may have run, and get no jobs");
    let undecided = ("undecided", "it is left to the schedule", "they are left to the schedule");
    let covered = (
        "covered",
        "an earlier rule made its job; --covered makes another",
        "an earlier rule made their jobs; --covered makes others",
    );
    [covered, forgotten, undecided].into_iter().filter_map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_without_a_known_job_say_why_they_get_none() {
        let slots = |results: &[&str]| {
            let slot = |result: &&str| Slot { slot: String::new(), result: (*result).to_owned(), job: None };
            results.iter().map(slot).collect::<Vec<_>>()
        };
        assert_eq!(notes_about_others(&slots(&["fired", "backfilled"])), [""; 0]);
        assert_eq!(
            notes_about_others(&slots(&["forgotten", "covered", "forgotten", "undecided"])),
            [
                "longshore: 1 slot is covered: an earlier rule made its job; --covered makes another",
                "longshore: 2 slots are forgotten: they may have run, and get no jobs",
                "longshore: 1 slot is undecided: it is left to the schedule",
            ]
        );
    }
}
