//! `longshore statistics`: how the latest jobs of a definition ended, and how long they waited and ran.

use server::http::present::shapes::{Job, Percentiles, Statistics};

use crate::api::{Api, parse};
use crate::args::CommonArgs;
use crate::duration;
use crate::records;
use crate::screen;
use crate::view::JobView as _;

/// Show how the latest jobs of a definition ended, and how long they waited and ran.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longshore statistics resize                of the last 1,000 ended jobs
  longshore statistics resize --since 7d     of those that ended within a week
  longshore statistics resize -o json | jq .run.p99_ms

Times are those of the last attempt of each job: it waits from when it is due until its container starts.")]
pub(crate) struct Flags {
    #[command(flatten)]
    common: CommonArgs,
    /// The definition.
    #[arg(value_name = "NAME", value_parser = crate::args::parse_definition_name, add = crate::completions::definitions())]
    name: String,
    /// The most jobs to count, from the newest on [default: 1000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000))]
    jobs: Option<u64>,
    /// Only jobs that ended at or after this instant (RFC 3339), from this date on (UTC), or so long ago at most (90s, 1h30m, 7d).
    #[arg(long, value_name = "TIME", value_parser = crate::run::date_or_instant_or_ago)]
    since: Option<String>,
}

/// Shows statistics.
pub(crate) async fn statistics(flags: Flags) -> anyhow::Result<()> {
    let api = Api::new(&flags.common.server_args)?;
    let query = [("jobs", flags.jobs.map(|jobs| jobs.to_string())), ("since", flags.since)];
    let query: Vec<_> = query.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    let json = api.json(api.get(&["api", "definitions", &flags.name, "statistics"]).query(&query)).await?;
    if records::print(flags.common.format, &json, "name")? {
        return Ok(());
    }
    screen::fields(&shown(&parse(&api, &json)?))
}

fn shown(statistics: &Statistics) -> Vec<(&'static str, String)> {
    let Statistics { jobs, states, retries, retried_jobs, .. } = statistics;
    let older = if statistics.complete { "" } else { "; older ones are not counted" };
    let span = match (statistics.first_end, statistics.last_end) {
        (Some(first), Some(last)) => format!(", ended from {first} to {last}"),
        _ => String::new(),
    };
    let mut fields = vec![("jobs", format!("{jobs}{span}{older}"))];
    for state in ["succeeded", "failed", "cancelled", "expired", "lost"] {
        let Some(count) = states.get(state) else { continue };
        let rate = statistics.success_rate.filter(|_| state == "succeeded");
        let rate =
            rate.map(|rate| format!(" ({:.1} % of those that succeeded, failed or were lost)", 100.0 * rate));
        fields.push((state, format!("{count}{}", rate.unwrap_or_default())));
    }
    if *retries > 0 {
        fields.push(("retries", format!("{retries}, of {}", screen::counted(*retried_jobs, "job"))));
    }
    fields.extend(statistics.run.map(|run| ("run time", percentiles(&run))));
    fields.extend(statistics.wait.map(|wait| ("wait", percentiles(&wait))));
    fields.extend(statistics.last_success.as_ref().map(|job| ("last success", last(job))));
    fields.extend(statistics.last_failure.as_ref().map(|job| ("last failure", last(job))));
    fields
}

fn percentiles(of: &Percentiles) -> String {
    let show = |length_ms| duration::show(i64::try_from(length_ms).unwrap_or(i64::MAX));
    let Percentiles { p50_ms, p90_ms, p99_ms, max_ms } = *of;
    format!("p50 {}, p90 {}, p99 {}, max {}", show(p50_ms), show(p90_ms), show(p99_ms), show(max_ms))
}

/// `job 12 at 2026-03-01T09:30:00.000Z: failed, exit 3`
fn last(job: &Job) -> String {
    let at = job.ended_at.map(|at| format!(" at {at}")).unwrap_or_default();
    format!("job {}{at}: {}", job.id, job.end_text())
}
