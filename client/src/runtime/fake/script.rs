//! The variables of a job that say what seems to happen.

use std::time::Duration;

use protocol::Token;
use protocol::Uptime;
use protocol::report::{OutputLengths, Stream};
use worker::input::StartFailure;
use worker::step::Launch;

use super::EXIT_SIGKILL;
use crate::logs::Logs;

/// The simulated behaviour of an attempt.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Script {
    exit: Option<i32>,
    pub(super) sleep: Option<Duration>,
    stdout: Option<String>,
    stderr: Option<String>,
    output_bytes: u64,
    stamp: bool,
    pub(super) result: Option<String>,
    pub(super) oom: bool,
    pub(super) fail: Option<StartFailure>,
    pub(super) deaf: bool,
}

impl Script {
    /// Reads the definition's environment, then the job's over it.
    pub(super) fn read(launch: &Launch) -> Result<Self, String> {
        let mut script = Self::default();
        let job = launch.overrides.iter().flat_map(|overrides| &overrides.environment);
        for (name, value) in launch.spec.environment.iter().chain(job) {
            if let Some(what) = name.strip_prefix("FAKE_") {
                script.learn(what, value).map_err(|wanted| format!("{name}: {wanted}"))?;
            }
        }
        Ok(script)
    }

    fn learn(&mut self, what: &str, value: &str) -> Result<(), &'static str> {
        match what {
            "EXIT" => self.exit = Some(value.parse().map_err(|_| "not an exit code")?),
            "SLEEP" => self.sleep = Some(duration(value).ok_or("not a duration like 50ms, 2s or 1m")?),
            "STDOUT" => self.stdout = Some(value.to_owned()),
            "STDERR" => self.stderr = Some(value.to_owned()),
            "OUTPUT_BYTES" => self.output_bytes = value.parse().map_err(|_| "not a number of bytes")?,
            "STAMP" => self.stamp = true,
            "RESULT" => self.result = Some(value.to_owned()),
            "OOM" => self.oom = true,
            "DEAF" => self.deaf = true,
            "FAIL" => {
                self.fail = Some(match value {
                    "pull" => StartFailure::Pull,
                    "start" => StartFailure::Definition,
                    "host" => StartFailure::Host,
                    _ => return Err("not one of pull, start, host"),
                });
            }
            _ => return Err("no such variable of the fake runtime"),
        }
        Ok(())
    }

    pub(super) fn exit_code(&self) -> i32 {
        self.exit.unwrap_or(if self.oom { EXIT_SIGKILL } else { 0 })
    }

    pub(super) fn write(&self, token: Token, started: Uptime, logs: &Logs) -> OutputLengths {
        let mut output = OutputLengths::default();
        if self.stamp {
            output.stdout += say(token, Stream::Stdout, &started.0.to_string(), logs);
        }
        if let Some(text) = &self.stdout {
            output.stdout += say(token, Stream::Stdout, text, logs);
        }
        if let Some(text) = &self.stderr {
            output.stderr += say(token, Stream::Stderr, text, logs);
        }
        let mut left = self.output_bytes;
        while left > 0 {
            let piece = PIECE.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            logs.push(token, Stream::Stdout, &PIECE[..piece]);
            left -= piece as u64;
        }
        output.stdout += self.output_bytes;
        output
    }
}

fn say(token: Token, stream: Stream, text: &str, logs: &Logs) -> u64 {
    let line = format!("{text}\n");
    logs.push(token, stream, line.as_bytes());
    line.len() as u64
}

/// Parses a number with a unit; a bare number is in seconds.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let number: f64 = digits.parse().ok()?;
    let unit = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * unit).ok()
}

/// Lines of 64 bytes that fill a frame.
static PIECE: [u8; 16 << 10] = {
    let mut piece = [b'.'; 16 << 10];
    let mut at = 63;
    while at < piece.len() {
        piece[at] = b'\n';
        at += 64;
    }
    piece
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(duration("50ms"), Some(Duration::from_millis(50)));
        assert_eq!(duration("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(duration("2"), Some(Duration::from_secs(2)));
        assert_eq!(duration("-1s"), None);
        assert_eq!(duration("inf"), None);
        assert_eq!(duration("ms"), None);
    }
}
