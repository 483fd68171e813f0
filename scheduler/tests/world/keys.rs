//! Keys of definitions, and the origins of commands, as scenarios write them.

use std::sync::Arc;
use std::time::Duration;

use crate::world::protocol::WorkerId;
use crate::world::scheduler::hooks::{HookEvent, Hooks};
use crate::world::scheduler::origin::Origin;
use crate::world::scheduler::placement::narrowing::Narrowing;
use crate::world::scheduler::placement::rules::{
    Comparison, Condition, LabelRule, PlacementRules, PlacementStrategy, Preference, RunOn, WorkerSelector,
};
use crate::world::scheduler::schedule::catch_up::{CatchUp, CatchUpMode};
use crate::world::scheduler::schedule::{Overlap, Rule, Schedule, Timetable, Zone};

/// `requires=zone:a,size>4`, `prefers=zone:a*10`, `workers=1,w2`, `strategy=pack`.
pub(crate) fn placement(words: &[&str]) -> PlacementRules {
    let option = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let list = |key| option(key).into_iter().flat_map(|list| list.split(','));
    let preference = |text: &str| {
        let (rule, weight) = text.split_once('*').unwrap();
        Preference { rule: label_rule(rule), weight: weight.parse().unwrap() }
    };
    PlacementRules {
        requires: list("requires").map(label_rule).collect(),
        prefers: list("prefers").map(preference).collect(),
        workers: list("workers").map(selector).collect(),
        strategy: PlacementStrategy::ALL
            .into_iter()
            .find(|it| Some(it.name()) == option("strategy"))
            .unwrap_or_default(),
        run_on: match option("run_on") {
            Some("all") => RunOn::All,
            Some(count) => RunOn::Count(count.parse().unwrap()),
            None => RunOn::One,
        },
    }
}

/// `on=w1,2` and `where=zone:a|b,gpu`: the workers that a job asks for.
pub(crate) fn narrowing(words: &[&str]) -> Option<Arc<Narrowing>> {
    let option = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let list = |key| option(key).into_iter().flat_map(|list| list.split(','));
    Narrowing::asked(list("on").map(selector).collect(), list("where").map(label_rule).collect())
}

fn selector(text: &str) -> WorkerSelector {
    text.parse().map_or_else(|_| WorkerSelector::Name(text.into()), |id| WorkerSelector::Id(WorkerId(id)))
}

/// `zone:a|b`, `zone!a|b`, `zone`, `!zone` or `size>4`.
fn label_rule(text: &str) -> LabelRule {
    let values = |values: &str| values.split('|').map(str::to_owned).collect();
    let (label, condition) = match text.split_once([':', '!', '>']) {
        Some((label, values_of)) if text.contains(':') => (label, Condition::In(values(values_of))),
        Some((label, bound)) if text.contains('>') => {
            (label, Condition::Compare(Comparison::Greater, bound.parse().unwrap()))
        }
        Some(("", label)) => (label, Condition::Absent),
        Some((label, values_of)) => (label, Condition::NotIn(values(values_of))),
        None => (text, Condition::Exists),
    };
    LabelRule { label: label.into(), condition }
}

/// `every=10s`, `cron=0_2_*_*_*`, `zone=Europe/Berlin`, `id=nightly`, `jitter=5s`, and how slots meet what is there.
pub(crate) fn timetable(name: &str, words: &[&str]) -> Timetable {
    let option = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let rule = match (option("every"), option("cron")) {
        (Some(every), _) => Rule::every(every).unwrap(),
        (None, Some(cron)) => Rule::cron(&cron.replace('_', " ")).unwrap(),
        (None, None) => return Timetable::default(),
    };
    let zone = option("zone").map_or_else(Zone::utc, |zone| Zone::named(zone).unwrap());
    let mut schedule = Schedule::new(name, Some(option("id").unwrap_or("main")), rule, zone);
    schedule.jitter = option("jitter").map_or(Duration::ZERO, seconds);
    let overlap = option("overlap").map_or(Overlap::Skip, |word| {
        Overlap::ALL.into_iter().find(|overlap| overlap.name() == word).unwrap()
    });
    let mut catch_up = CatchUp::default();
    catch_up.mode = match option("catch_up") {
        Some("none") => CatchUpMode::None,
        Some("all") => CatchUpMode::All,
        _ => CatchUpMode::Latest,
    };
    catch_up.window = option("window").map_or(catch_up.window, seconds);
    catch_up.limit = option("limit").map_or(catch_up.limit, |limit| limit.parse().unwrap());
    Timetable { schedules: vec![schedule], overlap, catch_up }
}

/// `on_start=a`, `on_success=a,b`, `on_failure=a`, `on_end=a`.
pub(crate) fn hooks(words: &[&str]) -> Hooks {
    let names = |event: HookEvent| {
        let list = words.iter().find_map(|word| word.strip_prefix(event.name())?.strip_prefix('='));
        list.into_iter().flat_map(|list| list.split(',')).map(Into::into).collect()
    };
    Hooks {
        on_start: names(HookEvent::Start),
        on_success: names(HookEvent::Success),
        on_failure: names(HookEvent::Failure),
        on_end: names(HookEvent::End),
    }
}

pub(crate) fn seconds(text: &str) -> Duration {
    if let Some(hours) = text.strip_suffix('h') {
        return Duration::from_secs(3_600 * hours.parse::<u64>().unwrap());
    }
    Duration::from_secs_f64(text.trim_end_matches('s').parse().unwrap())
}

/// The origin of an operator's command: `by=` and `reason=`.
pub(crate) fn origin<'w>(option: impl Fn(&str) -> Option<&'w str>) -> Origin {
    Origin { by: option("by").unwrap_or_default().into(), reason: option("reason").map(Into::into) }
}
