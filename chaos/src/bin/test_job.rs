//! The program that chaos jobs run: it appends its start, signs of life and end to a file that Longshore does not know.
//!
//! It uses the standard library only, so that it links statically and is the whole image. Each mark is one line, appended with one write.
//! Starts and stops are synced before the program continues. Signs of life show how long a killed job ran at least. The exit code
//! usually differs between attempts, so an outcome that is stored for the wrong attempt is found.
#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let (Some(job), Some(fence)) = (number("LONGSHORE_JOB"), number("LONGSHORE_ATTEMPT")) else {
        eprintln!("LONGSHORE_JOB or LONGSHORE_ATTEMPT is not set: this program runs as a Longshore job only");
        return ExitCode::FAILURE;
    };
    let path = std::env::var_os("MARKS_FILE").unwrap_or_else(|| "/marks/marks.jsonl".into());
    let marks = match OpenOptions::new().append(true).create(true).open(&path) {
        Ok(marks) => marks,
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            return ExitCode::from(MARK_NOT_WRITTEN);
        }
    };
    let code = (fence % CODES) as u8;
    mark(&marks, job, fence, "start", None);
    println!("attempt {fence}");
    run_for(Duration::from_millis(number("RUN_MS").unwrap_or(0)), &marks, job, fence);
    println!("attempt {fence} ends");
    mark(&marks, job, fence, "stop", Some(code));
    ExitCode::from(code)
}

fn run_for(mut left: Duration, marks: &File, job: u64, fence: u64) {
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
        eprintln!("cannot write a mark: {error}");
        std::process::exit(MARK_NOT_WRITTEN.into());
    }
}

/// Milliseconds since boot. Containers share this clock.
fn up_ms() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split_whitespace().next().and_then(|it| it.parse::<f64>().ok()).unwrap_or_default();
    (seconds * 1_000.0) as u64
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Interval between two signs of life.
const ALIVE_EVERY: Duration = Duration::from_millis(500);
/// Exit codes are 0 to 49, the attempt's fence modulo 50.
const CODES: u64 = 50;
/// A mark could not be written: the round proves nothing.
const MARK_NOT_WRITTEN: u8 = 99;
