//! Validity of a Hello. The scheduler decides whether the name is free and the secret is known.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::limits::{LABELS_MAX, NAME_BYTES_MAX};
use super::values::{Checked, ensure, plain, runtimes, slots};
use crate::report::Hello;
use crate::resources::{OfferedResources, RESOURCE_NAME_BYTES_MAX, RESOURCES_MAX, is_resource_name};

/// The Hello is well-formed. A worker checks its own before it connects.
///
/// # Errors
/// The field and a valid value.
pub fn check_hello(hello: &Hello) -> Checked {
    let versions = hello.versions;
    ensure(versions.lowest >= 1 && versions.lowest <= versions.highest, "versions", || {
        format!("{} to {} is no range of versions from 1", versions.lowest, versions.highest)
    })?;
    ensure(is_name(&hello.name), "name", || {
        format!("it must be 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 . _ - and begin with a letter or a digit")
    })?;
    if let Some(engine) = &hello.engine {
        plain("engine", engine, 1)?;
    }
    plain("version", &hello.version, 1)?;
    slots("slots", hello.slots)?;
    slots("backlog", hello.backlog)?;
    ensure(hello.labels.len() <= LABELS_MAX, "labels", || {
        format!("there are {}, at most {LABELS_MAX} are allowed", hello.labels.len())
    })?;
    for (index, (name, value)) in hello.labels.iter().enumerate() {
        plain("labels", name, 1)?;
        plain("labels", value, 0)?;
        ensure(hello.labels[..index].iter().all(|(other, _)| other != name), "labels", || {
            format!("{name:?} is given twice")
        })?;
    }
    runtimes(&hello.runtimes)?;
    offer(&hello.resources)
}

fn offer(offer: &OfferedResources) -> Checked {
    let counts = [("resources.gpus", offer.gpus.len()), ("resources.custom", offer.custom.len())];
    for (field, count) in counts {
        ensure(count <= RESOURCES_MAX, field, || {
            format!("there are {count}, at most {RESOURCES_MAX} are allowed")
        })?;
    }
    let gpus: Vec<&str> = offer.gpus.iter().map(String::as_str).collect();
    let custom: Vec<&str> = offer.custom.iter().map(|(name, _)| name.as_str()).collect();
    for (field, names) in [("resources.gpus", gpus), ("resources.custom", custom)] {
        for (index, name) in names.iter().enumerate() {
            ensure(is_resource_name(name), field, || {
                format!(
                    "each must be 1 to {RESOURCE_NAME_BYTES_MAX} of A-Z a-z 0-9 . _ : - and begin with a letter or a digit"
                )
            })?;
            ensure(!names[..index].contains(name), field, || format!("{name:?} is given twice"))?;
        }
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::ids::Incarnation;
    use crate::report::Availability;
    use crate::{RuntimeKind, VERSIONS};

    fn hello() -> Hello {
        Hello {
            versions: VERSIONS,
            name: "dock-3".into(),
            secret: [7; 32],
            cluster: None,
            rejoin: false,
            incarnation: Incarnation(1),
            process: 1,
            engine: None,
            version: "0.1.0".into(),
            slots: 4,
            backlog: 4,
            labels: Vec::new(),
            runtimes: Vec::new(),
            resources: OfferedResources::default(),
        }
    }

    fn refused(spoil: impl FnOnce(&mut Hello)) -> &'static str {
        let mut hello = hello();
        spoil(&mut hello);
        check_hello(&hello).unwrap_err().field
    }

    #[test]
    fn an_unacceptable_hello_names_its_field() {
        assert_eq!(check_hello(&hello()), Ok(()));
        assert_eq!(refused(|it| it.slots = 1_000_000_000), "slots");
        assert_eq!(refused(|it| it.backlog = u32::MAX), "backlog");
        assert_eq!(refused(|it| it.name = "../x".into()), "name");
        assert_eq!(refused(|it| it.name = String::new()), "name");
        assert_eq!(refused(|it| it.name = "n".repeat(64)), "name");
        assert_eq!(refused(|it| it.version = "1\n2".into()), "version");
        assert_eq!(refused(|it| it.engine = Some("e".repeat(300))), "engine");
        assert_eq!(refused(|it| it.versions.highest = 0), "versions");
        assert_eq!(
            refused(|it| it.runtimes = vec![(RuntimeKind::Docker, Availability::Available); 2]),
            "runtimes"
        );
    }

    #[test]
    fn offered_resources_are_few_named_and_unique() {
        assert_eq!(refused(|it| it.resources.gpus = vec!["0".into(), "0".into()]), "resources.gpus");
        assert_eq!(refused(|it| it.resources.gpus = vec!["0,1".into()]), "resources.gpus");
        assert_eq!(
            refused(|it| it.resources.gpus = (0..65).map(|id| format!("{id}")).collect()),
            "resources.gpus"
        );
        assert_eq!(refused(|it| it.resources.custom = vec![(String::new(), 1)]), "resources.custom");
        let mut good = hello();
        good.resources.gpus = vec!["GPU-3a23c669-1f69".into(), "0:1".into()];
        good.resources.custom = vec![("license".into(), 0)];
        assert_eq!(check_hello(&good), Ok(()));
    }

    #[test]
    fn labels_are_few_plain_and_unique() {
        let label = |name: &str, value: &str| (String::from(name), String::from(value));
        assert_eq!(
            refused(|it| it.labels = (0..65).map(|n| label(&format!("l{n}"), "")).collect()),
            "labels"
        );
        assert_eq!(refused(|it| it.labels = vec![label("zone", "a\u{1b}[31m")]), "labels");
        assert_eq!(refused(|it| it.labels = vec![label("", "x")]), "labels");
        assert_eq!(refused(|it| it.labels = vec![label("zone", "a"), label("zone", "b")]), "labels");
    }
}
