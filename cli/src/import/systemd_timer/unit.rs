//! Files of systemd, and names of services.

use super::super::ini::{self, Section};
use super::super::source::{Fault, Source};

/// A file of systemd.
#[derive(Clone)]
pub(super) struct Unit {
    pub(super) source: Source,
    pub(super) sections: std::rc::Rc<[Section]>,
    pub(super) is_timer: bool,
}

impl Unit {
    pub(super) fn read(source: &Source) -> Result<Self, Fault> {
        let wrong = |why: &str| {
            let form = "systemd-timer takes units with [Timer] or [Service]";
            source.fault(0, format!("not a unit of systemd: {why}; {form}"))
        };
        let sections = ini::read(source).map_err(|fault| wrong(&fault.to_string()))?;
        let has = |name: &str| sections.iter().any(|section| section.name == name);
        if !has("Timer") && !has("Service") {
            let found =
                sections.first().map_or("no section".to_owned(), |section| format!("[{}]", section.name));
            return Err(wrong(&format!("it has {found}")));
        }
        Ok(Self { source: source.clone(), is_timer: has("Timer"), sections: sections.into() })
    }

    pub(super) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// Of a timer: what it starts.
    pub(super) fn service_name(&self) -> Name {
        let named =
            self.section("Timer").and_then(|timer| timer.last("Unit")).map(|entry| entry.value.clone());
        let file = self.source.file_name();
        Name(named.unwrap_or_else(|| format!("{}.service", file.strip_suffix(".timer").unwrap_or(file))))
    }
}

/// The name of a service.
pub(super) struct Name(pub(super) String);

impl Name {
    pub(super) fn stem(&self) -> &str {
        self.0.strip_suffix(".service").unwrap_or(&self.0)
    }

    /// The file of the template that an instance such as `backup@daily.service` is made from.
    pub(super) fn template(&self) -> Option<String> {
        let (prefix, _) = self.stem().split_once('@')?;
        Some(format!("{prefix}@.service"))
    }

    pub(super) fn is_file(&self, file: &str) -> bool {
        file == self.0 || self.template().is_some_and(|template| template == file)
    }
}
