//! What the jobs of the harness run: it writes down that it started, that it goes on, and that it stops, in a file that Longshore knows nothing of.
//!
//! Nothing but the standard library, so that it can be linked statically and be all that an image has. Each mark is one line, appended
//! at once; starts and stops are synced, so that they are there if the next thing has happened. Signs of life are for those that never
//! get to their stop: they ran at least until the last one. The exit code tells which attempt this was, so that an outcome that
//! is believed of another attempt shows.
#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let (Some(job), Some(fence)) = (number("LONGSHORE_JOB"), number("LONGSHORE_ATTEMPT")) else {
        eprintln!("this is no job of Longshore");
        return ExitCode::FAILURE;
    };
    let path = std::env::var_os("TRUTH").unwrap_or_else(|| "/truth/marks".into());
    let marks = match OpenOptions::new().append(true).create(true).open(&path) {
        Ok(marks) => marks,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            return ExitCode::from(NOT_WITNESSED);
        }
    };
    let code = (fence % CODES) as u8;
    mark(&marks, job, fence, "start", None);
    println!("attempt {fence}");
    nap(Duration::from_millis(number("NAP_MS").unwrap_or(0)), &marks, job, fence);
    println!("attempt {fence} is over");
    mark(&marks, job, fence, "stop", Some(code));
    ExitCode::from(code)
}

fn nap(mut left: Duration, marks: &File, job: u64, fence: u64) {
    while left > ALIVE_EVERY {
        std::thread::sleep(ALIVE_EVERY);
        left -= ALIVE_EVERY;
        mark(marks, job, fence, "alive", None);
    }
    std::thread::sleep(left);
}

fn mark(mut marks: &File, job: u64, fence: u64, what: &str, code: Option<u8>) {
    let (pid, up_ms) = (std::process::id(), up_ms());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let code = code.map_or("null".to_owned(), |code| code.to_string());
    let line = format!(
        "{{\"job\":{job},\"fence\":{fence},\"mark\":\"{what}\",\"code\":{code},\"host\":\"{}\",\"pid\":{pid},\"up_ms\":{up_ms}}}\n",
        host.trim()
    );
    let is_synced = what != "alive";
    let written = marks.write_all(line.as_bytes());
    let written = written.and_then(|()| if is_synced { marks.sync_data() } else { Ok(()) });
    if let Err(error) = written {
        eprintln!("no mark: {error}");
        std::process::exit(NOT_WITNESSED.into());
    }
}

/// The machine's own clock, which containers share: milliseconds since it booted.
fn up_ms() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split_whitespace().next().and_then(|it| it.parse::<f64>().ok()).unwrap_or_default();
    (seconds * 1_000.0) as u64
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// How often one that naps says that it is there.
const ALIVE_EVERY: Duration = Duration::from_millis(500);
/// Exit codes from 0 to below this tell attempts of a job apart.
const CODES: u64 = 50;
/// The truth could not be written down: the run proves nothing.
const NOT_WITNESSED: u8 = 99;
