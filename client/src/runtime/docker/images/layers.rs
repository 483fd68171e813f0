//! The progress of a pull, by the lines that Docker prints without a terminal. Pure.

use std::collections::HashMap;

/// The layers of an image that is being pulled.
///
/// Only layers that are fetched count. Layers that are here already are listed first, and would make the pull look done at once.
#[derive(Default)]
pub(super) struct Layers {
    steps: HashMap<String, u32>,
    percent: Option<u8>,
}

impl Layers {
    /// Takes a line. Returns the percentage if it has grown; it never shrinks.
    pub(super) fn hear(&mut self, line: &str) -> Option<u8> {
        let (layer, event) = line.trim_end().split_once(": ")?;
        let step = step(event)?;
        let is_full = self.steps.len() >= LAYERS_MAX;
        match self.steps.get_mut(layer) {
            Some(known) => *known = step.max(*known),
            None if event == ALREADY_HERE || is_full => return None,
            None => drop(self.steps.insert(layer.to_owned(), step)),
        }
        let percent = Some(self.percent());
        if percent <= self.percent {
            return None;
        }
        self.percent = percent;
        percent
    }

    fn percent(&self) -> u8 {
        let done = self.steps.values().sum::<u32>() as usize;
        u8::try_from(100 * done / (DONE as usize * self.steps.len().max(1))).unwrap_or(100)
    }
}

/// Number of completed steps of a layer after this event: fetched, then unpacked.
fn step(event: &str) -> Option<u32> {
    match event {
        "Pulling fs layer" => Some(0),
        "Download complete" => Some(1),
        "Pull complete" | ALREADY_HERE => Some(DONE),
        _ => None,
    }
}

const DONE: u32 = 2;

const ALREADY_HERE: &str = "Already exists";

/// Docker's store takes 127 layers. Further ones are pulled and not counted.
const LAYERS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &[&str]) -> Vec<u8> {
        let mut layers = Layers::default();
        lines.iter().filter_map(|line| layers.hear(line)).collect()
    }

    #[test]
    fn layers_that_come_make_up_a_percentage_that_only_grows() {
        let lines = [
            "7-alpine: Pulling from library/redis",
            "2d35ebdb57d9: Already exists",
            "f18232174bc9: Pulling fs layer",
            "5ac44e6d5a2f: Pulling fs layer",
            "f18232174bc9: Waiting",
            "5ac44e6d5a2f: Verifying Checksum",
            "5ac44e6d5a2f: Download complete",
            "f18232174bc9: Download complete",
            "f18232174bc9: Pull complete",
            "5ac44e6d5a2f: Pull complete",
            "Digest: sha256:59b6e694653476de2c992937ebe1c64182af4728e54bb49e9b7a6c26614d8933",
            "Status: Downloaded newer image for redis:7-alpine",
            "docker.io/library/redis:7-alpine",
        ];
        assert_eq!(told(&lines), [0, 25, 50, 75, 100]);
    }

    #[test]
    fn repeated_and_late_lines_do_not_change_the_percentage() {
        let lines = [
            "a: Pulling fs layer",
            "a: Download complete",
            "a: Download complete",
            "a: Pulling fs layer",
            "b: Pulling fs layer",
            "c: Pulling fs layer",
            "c: Already exists",
            "b: Pull complete",
        ];
        assert_eq!(told(&lines), [0, 50, 83]);
    }

    #[test]
    fn without_layers_to_fetch_there_is_no_percentage() {
        let lines = [
            "1: Pulling from app",
            "a: Already exists",
            "b: Already exists",
            "Status: Image is up to date for app:1",
        ];
        assert!(told(&lines).is_empty());
        assert!(told(&["", ": ", "a:", "a: Retrying in 5 seconds", "a: Pull complete?"]).is_empty());
    }

    #[test]
    fn layers_beyond_counting_are_not_counted() {
        let mut layers = Layers::default();
        for number in 0..2 * LAYERS_MAX {
            layers.hear(&format!("{number}: Pulling fs layer"));
        }
        assert_eq!(layers.steps.len(), LAYERS_MAX);
    }
}
