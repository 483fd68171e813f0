//! `longshore batch ID set`: changes the limits of a batch that has not ended.

use reqwest::Method;
use serde_json::{Map, Value};

use super::Flags;
use crate::api::{Api, parse};
use crate::failure::{Exit, Failure};
use crate::records;
use crate::screen;
use crate::view::FullBatch;

/// Changes the limits that are given, and prints what they are now.
///
/// # Errors
/// No limit is given, or the batch has ended.
pub(super) async fn set(api: &Api, flags: &Flags) -> anyhow::Result<()> {
    let for_others = [
        ("--key", flags.key.is_some()),
        ("--dry-run", flags.dry_run),
        ("--follow", flags.follow),
        ("--wait", flags.wait.is_some()),
        ("--quiet", flags.quiet),
        ("--cancelled", flags.cancelled),
    ];
    flags.refuse_filters("set")?;
    if let Some((flag, _)) = for_others.iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::new(Exit::Usage, format!("{flag} is not for set")).into());
    }
    let limits = [
        ("concurrency", flags.concurrency, flags.no_concurrency),
        ("max_failures", flags.max_failures, flags.no_max_failures),
    ];
    let given = limits.into_iter().filter(|(_, limit, is_lifted)| limit.is_some() || *is_lifted);
    let body: Map<String, Value> = given.map(|(name, limit, _)| (name.to_owned(), limit.into())).collect();
    if body.is_empty() {
        let text = "set what? Give --concurrency, --max-failures, --no-concurrency or --no-max-failures";
        return Err(Failure::new(Exit::Usage, text).into());
    }
    let request = api.request(Method::PATCH, &["api", "batches", &flags.id.to_string()]).json(&body);
    let json = api.json(request).await?;
    if records::print(flags.common.format, &json, "id")? {
        return Ok(());
    }
    let batch = parse::<FullBatch>(api, &json)?.batch;
    let at_once = batch.concurrency.map_or_else(|| "any number".to_owned(), |limit| limit.to_string());
    let failures = batch.max_failures.map_or_else(
        || "no number of failures stops it".to_owned(),
        |max| format!("it stops after {}", screen::counted(max, "failure")),
    );
    screen::line(&format!("batch {}: {at_once} of its members at once; {failures}", batch.id))
}
