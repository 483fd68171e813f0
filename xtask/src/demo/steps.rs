//! A whole image in one program, for machines that can neither pull an image nor have a busybox: it follows its arguments.
//!
//! `say:TEXT` prints, `wait:MILLISECONDS` waits, `exit:CODE` ends. Compiled by the demonstration itself, linked statically.

use std::io::Write as _;

fn main() {
    for step in std::env::args().skip(1) {
        match step.split_once(':') {
            Some(("say", text)) => {
                println!("{text}");
                std::io::stdout().flush().expect("standard output is open");
            }
            Some(("wait", time)) => std::thread::sleep(std::time::Duration::from_millis(time.parse().expect("milliseconds"))),
            Some(("exit", code)) => std::process::exit(code.parse().expect("an exit code")),
            _ => panic!("{step}: neither say:TEXT nor wait:MILLISECONDS nor exit:CODE"),
        }
    }
}
