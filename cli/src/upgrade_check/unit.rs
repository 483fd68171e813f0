//! Units of systemd: whether this program understands the command line and the settings file that a unit starts it with.

use std::path::Path;

use server::doctor::Finding;

use crate::server::CheckedFiles;

/// Parses a command line of this program: the files of a server, or nothing for another verb.
pub(super) type ParseWords = fn(&[String]) -> Result<Option<CheckedFiles>, String>;

/// Checks each start of a unit, and returns the files of a server.
pub(super) fn check(file: &Path, parse: ParseWords) -> (Vec<Finding>, Vec<CheckedFiles>) {
    let shown = file.display();
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            return (vec![Finding::fail("unit", format!("{shown}: {error}"), "check --unit")], Vec::new());
        }
    };
    let starts = starts(&text);
    if starts.is_empty() {
        let next =
            "give the unit of a server or a worker; drop-ins of 'systemctl edit' are files of their own";
        return (vec![Finding::warn("unit", format!("{shown} does not start longshore"), next)], Vec::new());
    }
    let (mut findings, mut servers) = (Vec::new(), Vec::new());
    for start in starts {
        match start.and_then(|words| parse(&words)) {
            Ok(files) => {
                servers.extend(files);
                findings.push(Finding::ok("unit", format!("{shown}: all flags and settings are known")));
            }
            Err(why) => findings.push(Finding::fail(
                "unit",
                format!("{shown}: {why}"),
                "change the unit or its settings file before the upgrade",
            )),
        }
    }
    (findings, servers)
}

/// The command lines that start this program.
fn starts(text: &str) -> Vec<Result<Vec<String>, String>> {
    let joined = text.replace("\\\n", " ");
    let commands = joined.lines().filter_map(|line| line.trim_start().strip_prefix("ExecStart="));
    let split = |command: &str| {
        // Characters such as - and + in front change how systemd runs the command.
        let command = command.trim_start_matches(['-', '+', '!', ':', '@']);
        shell_words::split(command).map_err(|error| format!("ExecStart: {error}"))
    };
    let is_ours = |words: &Result<Vec<String>, String>| {
        words.as_ref().map_or(true, |words| {
            words
                .first()
                .is_some_and(|program| Path::new(program).file_name().is_some_and(|it| it == "longshore"))
        })
    };
    commands.map(split).filter(is_ours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_of_this_program_are_found() {
        let unit = "[Service]\nExecStartPre=/bin/true\nExecStart=-/usr/bin/longshore server \\\n  --data '/srv/a b'\nExecStart=/bin/other --data x\n";
        let expected: Vec<String> =
            ["/usr/bin/longshore", "server", "--data", "/srv/a b"].map(str::to_owned).into();
        assert_eq!(starts(unit), [Ok(expected)]);
        assert_eq!(starts("ExecStart=\n"), []);
        assert!(starts("ExecStart=/usr/bin/longshore 'x\n")[0].is_err());
    }
}
