//! jobs.yaml: whatever it is, it ends in definitions that survive being stored, or in faults that can be shown.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use server::config::jobs_file::{Environment, parse, parse_stored};

fuzz_target!(|text: &str| {
    let environment: Environment = [("IMAGE", "busybox"), ("TAG", "1.36")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into_iter()
        .collect();
    // A place without files, so that an `env_file` never finds one.
    match parse(text, Path::new("/nonexistent/jobs.yaml"), &environment) {
        Ok(loaded) => {
            for entry in &loaded.definitions {
                let again = parse_stored(&entry.stored).expect("what was stored is read");
                assert_eq!(again, *entry.definition);
            }
        }
        Err(faults) => {
            assert!(!faults.list.is_empty());
            let shown = faults.to_string();
            assert!(!shown.contains(|it: char| it.is_control() && it != '\n'), "{shown:?}");
        }
    }
});
