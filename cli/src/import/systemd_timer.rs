//! Timers and services of systemd: a definition for each timer with its service, and for each service without a timer.
//!
//! A timer's service is looked for among the given files, and then beside the timer. Rules are in `calendar`, commands in `exec`.

mod calendar;
mod exec;
mod exit_status;
mod service;
mod unit;

use super::draft::{Draft, Imported, Rule};
use super::host::Host;
use super::source::{Fault, Faults, Source};
use super::span;
use unit::{Name, Unit};

/// Reads units.
///
/// # Errors
/// A file is no timer and no service, or a timer has no service.
pub(super) fn import(sources: &[Source], host: &Host) -> Result<Imported, Faults> {
    let units = sources.iter().map(Unit::read).collect::<Result<Vec<_>, _>>()?;
    let mut imported = Imported::default();
    let mut used = Vec::new();
    for timer in units.iter().filter(|unit| unit.is_timer) {
        let name = timer.service_name();
        let given = units.iter().find(|unit| !unit.is_timer && name.is_file(unit.source.file_name()));
        let service = match given {
            Some(service) => {
                used.push(service.source.name.clone());
                service.clone()
            }
            None => beside(timer, &name)?,
        };
        let mut draft =
            Draft::new(name.stem(), &timer.source, timer.section("Timer").map_or(1, |timer| timer.line));
        draft.origin = format!("{} and {}", timer.source.name, service.source.name);
        service::read(&service, &name.0, host, &mut draft)?;
        read_timer(timer, host, &mut draft);
        imported.drafts.push(draft);
    }
    for unit in units.iter().filter(|unit| !unit.is_timer && !used.contains(&unit.source.name)) {
        let name = Name(unit.source.file_name().to_owned());
        let mut draft =
            Draft::new(name.stem(), &unit.source, unit.section("Service").map_or(1, |service| service.line));
        service::read(unit, &name.0, host, &mut draft)?;
        draft.remark("no timer of this service is among the files, so it runs on request only");
        imported.drafts.push(draft);
    }
    Ok(imported)
}

/// The service in the directory of its timer.
fn beside(timer: &Unit, name: &Name) -> Result<Unit, Fault> {
    let missing = || {
        let line = timer.section("Timer").map_or(0, |timer| timer.line);
        timer
            .source
            .fault(line, format!("the timer starts {}, which is not among the files; give it, too", name.0))
    };
    let path = timer.source.path.as_ref().ok_or_else(missing)?;
    let files = std::iter::once(name.0.clone()).chain(name.template());
    // A name with a slash would leave the directory.
    let mut paths = files.filter(|file| !file.contains('/')).map(|file| path.with_file_name(file));
    let found = paths.find(|path| path.is_file()).ok_or_else(missing)?;
    let source = Source::read(&found).map_err(|failure| timer.source.fault(0, failure.to_string()))?;
    Unit::read(&source)
}

fn read_timer(unit: &Unit, host: &Host, draft: &mut Draft) {
    let Some(timer) = unit.section("Timer") else { return };
    draft.zone(host.zone());
    // While the service runs, its timer starts nothing.
    draft.set_text("overlap", "skip");
    draft.set_text("catch_up", "none");
    let mut reader = Reader { draft, at_start: Vec::new() };
    for entry in &timer.entries {
        reader.take(&entry.key, &entry.value, entry.line);
    }
    for start in std::mem::take(&mut reader.at_start) {
        if draft.has_rules() {
            draft.drop_with_note(format!("{start}: there is no fire of its own after a start"));
        } else {
            draft.lose_rule(format!("{start}: no rule fires when a machine starts"));
        }
    }
}

struct Reader<'d> {
    draft: &'d mut Draft,
    /// Rules that count from a start of the machine or of systemd.
    at_start: Vec<String>,
}

impl Reader<'_> {
    fn take(&mut self, key: &str, value: &str, line: usize) {
        match key {
            "OnCalendar" => match calendar::translate(value) {
                Ok(rule) => self.draft.fire(rule),
                Err(why) => self.draft.lose_rule(format!("line {line}: OnCalendar={value}: {why}")),
            },
            "OnUnitActiveSec" => match span::of_systemd(value).filter(|millis| *millis > 0) {
                Some(millis) => self.draft.fire(Rule::every(millis)),
                None => self.draft.lose_rule(format!("line {line}: OnUnitActiveSec={value}")),
            },
            "OnUnitInactiveSec" => {
                let text = "no rule counts from the end of the job before";
                self.draft.lose_rule(format!("line {line}: OnUnitInactiveSec={value}: {text}"));
            }
            "OnBootSec" | "OnStartupSec" | "OnActiveSec" => {
                self.at_start.push(format!("line {line}: {key}={value}"))
            }
            "Persistent" if unit::is_true(value) => self.draft.catch_up_latest(),
            "RandomizedDelaySec" => match span::of_systemd(value) {
                Some(millis) => self.draft.jitter(millis),
                None => self.draft.drop_with_note(format!("line {line}: RandomizedDelaySec={value}")),
            },
            // How exactly systemd keeps the time; Longshore is always exact.
            "AccuracySec" | "FixedRandomDelay" | "Unit" | "Persistent" | "RemainAfterElapse" => {}
            _ => self.draft.drop_with_note(format!("line {line}: {key}={value}")),
        }
    }
}
