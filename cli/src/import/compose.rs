//! Compose files: each service becomes a definition; the labels of Ofelia and swarm-cronjob become schedules.

mod labels;
mod project;
mod service;
mod variables;

use super::document;
use super::draft::{Imported, Note};
use super::source::{Fault, Faults, Source};
use project::Project;

/// Reads compose files.
///
/// # Errors
/// A file is not one, or a label holds a schedule that is none.
pub(super) fn import(sources: &[Source], zone: Option<&str>) -> Result<Imported, Faults> {
    let mut imported = Imported::default();
    for source in sources {
        let documents = document::read(source)?;
        let [root] = &documents[..] else {
            return Err(not_compose(source, "it must hold one YAML document").into());
        };
        let Some(services) = root.get("services").filter(|services| services.is_map()) else {
            return Err(not_compose(source, "it has no \"services\", a map of services by name").into());
        };
        let project = Project { source, root, services, zone };
        for pair in services.pairs() {
            if !pair.value.is_map() {
                let text =
                    format!("the service \"{}\" must be a map, such as {{ image: busybox }}", pair.key);
                return Err(source.fault(pair.line, text).into());
            }
            labels::import(&project, pair, &mut imported)?;
        }
        for pair in root.pairs() {
            let is_known =
                ["services", "version", "name", "networks", "volumes"].contains(&pair.key.as_str());
            if !is_known && !pair.key.starts_with("x-") {
                let text =
                    format!("{}, line {}: {} at the top of the file", source.name, pair.line, pair.key);
                imported.note(Note::NotTranslated(text));
            }
        }
    }
    Ok(imported)
}

fn not_compose(source: &Source, why: &str) -> Fault {
    source.fault(0, format!("not a compose file: {why}"))
}
