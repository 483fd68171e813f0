//! Recovers a definition from its container if the directory is lost: enough to watch the container to its end, and to stop it.

use std::time::Duration;

use protocol::ContainerSpec;
use protocol::container::Resources;
use serde::Deserialize;

use super::cli::CallError;
use super::container::Container;
use super::engine::EngineClient;
use crate::runtime::argv::{MASK_LABEL, SELF_FENCE_LABEL};

/// Whole objects: a format that names a missing key fails.
const FORMAT: &str = r#"{"Config":{{json .Config}},"HostConfig":{{json .HostConfig}}}"#;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct InspectedSpec {
    config: Config,
    host_config: HostConfig,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Config {
    stop_signal: Option<String>,
    /// Seconds; negative: no limit.
    stop_timeout: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct HostConfig {
    init: Option<bool>,
    /// Bytes; zero: no limit.
    memory: Option<i64>,
}

impl EngineClient {
    /// The definition by the engine's data.
    ///
    /// # Errors
    /// The engine does not answer, or the container is gone.
    pub(super) async fn spec_of(&self, container: &Container) -> Result<ContainerSpec, CallError> {
        let args = ["inspect", "--type", "container", "-f", FORMAT, "--", container.name()];
        let answer = self.call(args).await?;
        let made = answer.stdout.lines().find_map(|line| serde_json::from_str::<InspectedSpec>(line).ok());
        let log_mask = patterns_of(container.label(MASK_LABEL));
        let self_fence = container.label(SELF_FENCE_LABEL).and_then(|after| after.parse().ok());
        let self_fence = self_fence.map(Duration::from_millis);
        let image = container.image.clone();
        let spec = made.map(|made| ContainerSpec { image, log_mask, self_fence, ..made.spec() });
        spec.ok_or_else(|| {
            let (name, complaint) = (container.name(), answer.error_line());
            CallError::Unreachable(format!("`docker inspect` does not say what {name} is: {complaint}"))
        })
    }
}

impl InspectedSpec {
    fn spec(self) -> ContainerSpec {
        let Self { config: Config { stop_signal, stop_timeout }, host_config: HostConfig { init, memory } } =
            self;
        let positive = |it: i64| u64::try_from(it).ok();
        let stop_grace = stop_timeout.and_then(positive).map_or(STOP_GRACE, Duration::from_secs);
        let memory_bytes = memory.and_then(positive).filter(|bytes| *bytes > 0);
        ContainerSpec {
            stop_signal: stop_signal.filter(|it| !it.is_empty()),
            stop_grace,
            init: init == Some(true),
            resources: Resources { memory_bytes, ..Resources::default() },
            ..ContainerSpec::default()
        }
    }
}

/// The patterns of `log.mask` from the label of a container. A damaged label becomes a pattern that cannot be used, so that the output is
/// withheld.
fn patterns_of(label: Option<&str>) -> Vec<String> {
    label.map_or_else(Vec::new, |label| {
        serde_json::from_str(label).unwrap_or_else(|_| vec![UNUSABLE_PATTERN.to_owned()])
    })
}

const UNUSABLE_PATTERN: &str = "(";

/// Docker's default grace.
const STOP_GRACE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &str) -> ContainerSpec {
        serde_json::from_str::<InspectedSpec>(json).expect("valid").spec()
    }

    #[test]
    fn patterns_are_recovered_and_a_damaged_label_withholds_the_output() {
        assert!(patterns_of(None).is_empty());
        assert_eq!(patterns_of(Some(r#"["a\\w+","\"b,"]"#)), [r"a\w+", "\"b,"]);
        assert_eq!(patterns_of(Some("a")), [UNUSABLE_PATTERN]);
    }

    #[test]
    fn the_definition_is_recovered_from_the_engine() {
        let full = spec(
            r#"{"Config":{"Env":["A=1"],"StopSignal":"SIGINT","StopTimeout":7},"HostConfig":{"Init":true,"Memory":64}}"#,
        );
        assert_eq!((full.stop_grace, full.init), (Duration::from_secs(7), true));
        assert_eq!((full.stop_signal.as_deref(), full.resources.memory_bytes), (Some("SIGINT"), Some(64)));
        for bare in [
            r#"{"Config":{},"HostConfig":{}}"#,
            r#"{"Config":{"StopSignal":"","StopTimeout":-1},"HostConfig":{"Init":null,"Memory":0}}"#,
        ] {
            let bare = spec(bare);
            assert_eq!((bare.stop_grace, bare.init), (STOP_GRACE, false));
            assert_eq!((bare.stop_signal, bare.resources.memory_bytes), (None, None));
        }
    }
}
