//! Fuzz targets for the output of the `docker` program. Each panics if a property is violated.

use protocol::{Now, Timestamp, Uptime};

use super::cli::{one_line, unreachable_line};
use super::container::{Container, fault_of, init_failure, looks_like_a_dead_engine};
use super::events::Event;

/// A line of `docker inspect`.
pub fn inspected(line: &str) {
    let Some(container) = Container::parse(line) else { return };
    let now = NOW;
    assert!(container.started_at(now) <= now.up && container.ended_at(now) <= now.up, "the future was seen");
    assert!(container.age(now) <= now.up.since(Uptime(0)));
    let known = (
        container.name(),
        container.owner(),
        container.lifecycle(),
        container.exit(false),
        container.run_time(),
    );
    let is_dead = looks_like_a_dead_engine(&container.exit(false));
    let engine = (is_dead, container.was_lost_by_the_engine(), container.exit_code());
    assert!(!format!("{known:?}{engine:?}").is_empty());
}

/// A line of `docker events`.
pub fn event(line: &str) {
    let Ok(event) = serde_json::from_str::<Event>(line) else { return };
    assert!(event.at(NOW) <= NOW.up, "the future was heard");
    assert!(event.name().is_none_or(|name| name.len() <= line.len()));
}

/// The standard error of a call.
pub fn error_line(stderr: &str) {
    for said in [Some(one_line(stderr)), unreachable_line(stderr), init_failure(true, 127, stderr)]
        .into_iter()
        .flatten()
    {
        assert!(said.len() <= stderr.len().max(1), "more is told than was said");
    }
    assert!(!one_line(stderr).contains(char::is_control));
    fault_of(stderr);
}

const NOW: Now = Now { utc: Timestamp(1_767_225_605_000), up: Uptime(100_000_000_000) };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_understood_or_not() {
        let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/docker_answers");
        for seed in std::fs::read_dir(seeds).expect("seeds") {
            let seed = std::fs::read(seed.expect("a seed").path()).expect("a file");
            let text = String::from_utf8_lossy(&seed[1..]);
            for parse in [inspected, event, error_line] {
                parse(&text);
            }
        }
    }
}
