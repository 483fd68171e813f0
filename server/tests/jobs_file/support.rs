//! Jobs files that are shown to people, for the tests that read them.

use std::fs;
use std::path::{Path, PathBuf};

use longshore_server::config::jobs_file::Environment;

/// The variables that the files use.
pub(crate) fn environment() -> Environment {
    [
        ("IMAGE", "busybox"),
        ("TAG", "1.36"),
        ("GREETING", "good morning"),
        ("SLACK_URL", "https://hooks.example.org/services/1"),
        ("DISCORD_URL", "https://discord.example.org/api/webhooks/1/token"),
        ("WEBHOOK_SECRET", "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into_iter()
    .collect()
}

/// The root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository")
}

/// The jobs file at the root, and that of each example.
pub(crate) fn shipped_files() -> Vec<PathBuf> {
    let mut files = vec![repository().join("jobs.yaml")];
    for entry in fs::read_dir(repository().join("examples")).expect("the examples") {
        let file = entry.expect("an entry").path().join("jobs.yaml");
        assert!(file.exists(), "{}", file.display());
        files.push(file);
    }
    files
}

/// The blocks of YAML in a page, each with the line on which it begins.
pub(crate) fn fenced_yaml(path: &Path) -> Vec<(usize, String)> {
    let page = fs::read_to_string(path).expect("the page");
    let mut blocks = Vec::new();
    let mut block: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(page.lines()) {
        match &mut block {
            None if line == "```yaml" => block = Some((number, String::new())),
            Some(_) if line == "```" => blocks.extend(block.take()),
            Some((_, text)) => text.extend([line, "\n"]),
            None => {}
        }
    }
    blocks
}
