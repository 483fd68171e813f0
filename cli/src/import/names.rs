//! Names of definitions, made from what the old file calls things.

use std::collections::HashSet;

/// The names that are taken.
#[derive(Debug, Default)]
pub(super) struct Names(HashSet<String>);

impl Names {
    /// The nearest valid name that is still free.
    pub(super) fn unique(&mut self, wanted: &str) -> String {
        let base = valid(wanted);
        let numbered = (2_u32..).map(|number| {
            let suffix = format!("-{number}");
            format!("{}{suffix}", &base[..base.len().min(NAME_BYTES_MAX - suffix.len())])
        });
        let mut free = std::iter::once(base.clone()).chain(numbered).filter(|name| !self.0.contains(name));
        // The numbers do not end before the names of a file do.
        let name = free.next().unwrap_or(base);
        self.0.insert(name.clone());
        name
    }
}

/// The text with everything replaced that a name cannot hold.
pub(super) fn valid(wanted: &str) -> String {
    let mut name = String::new();
    for c in wanted.chars() {
        match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9' | '.' | '_') => name.push(c),
            _ if name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    name.truncate(NAME_BYTES_MAX);
    let name = name.trim_matches(['-', '.', '_']);
    if name.is_empty() { "job".to_owned() } else { name.to_owned() }
}

/// A name for what a shell command does: the program that matters, after wrappers and preparations.
pub(super) fn of_command(command: &str) -> String {
    let parts = command.split(['\n', ';', '&', '|', '(', ')', '{', '}']);
    let named = parts.filter_map(|part| of_words(&part.split_whitespace().collect::<Vec<_>>())).next();
    named.unwrap_or_else(|| "job".to_owned())
}

/// A name for a program with its arguments; nothing if it only prepares what comes next.
pub(super) fn of_words(words: &[&str]) -> Option<String> {
    let mut words = words.iter().map(|word| word.trim_matches(['"', '\'']));
    let mut name = None;
    while let Some(word) = words.next() {
        let program = word.rsplit('/').next().unwrap_or(word);
        let is_assignment = word
            .split_once('=')
            .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
        let is_number = word.trim_end_matches(['>', '&', '1', '2']).chars().all(|c| c.is_ascii_digit());
        if is_assignment || is_number || program.is_empty() || word.starts_with(['-', '>', '<', '$', '!']) {
            continue;
        }
        if name.is_none() && PREPARATIONS.contains(&program) {
            return None;
        }
        if let Some((_, arguments)) = WRAPPERS.iter().find(|(wrapper, _)| *wrapper == program) {
            name.get_or_insert_with(|| program.to_owned());
            let mut left = *arguments;
            // Options of the wrapper come first, then what it takes itself.
            while left > 0 {
                match words.next() {
                    Some(option) if option.starts_with('-') => {}
                    Some(_) => left -= 1,
                    None => return name,
                }
            }
            continue;
        }
        let stem = SUFFIXES.iter().find_map(|suffix| program.strip_suffix(suffix)).unwrap_or(program);
        return Some(stem.to_owned());
    }
    name
}

/// The longest name that the server takes.
const NAME_BYTES_MAX: usize = 63;
/// Programs that come before the one that matters.
const PREPARATIONS: [&str; 12] =
    ["cd", "test", "[", "[[", "export", "umask", "sleep", "set", "source", ".", "ulimit", "if"];
/// Programs that run others, and how many arguments they take before those.
const WRAPPERS: [(&str, u32); 22] = [
    ("nice", 0),
    ("ionice", 0),
    ("nohup", 0),
    ("sudo", 0),
    ("env", 0),
    ("exec", 0),
    ("time", 0),
    ("chronic", 0),
    ("setsid", 0),
    ("then", 0),
    ("flock", 1),
    ("timeout", 1),
    ("sh", 0),
    ("bash", 0),
    ("zsh", 0),
    ("python", 0),
    ("python3", 0),
    ("php", 0),
    ("perl", 0),
    ("ruby", 0),
    ("node", 0),
    ("run-parts", 0),
];
/// Endings of the names of scripts.
const SUFFIXES: [&str; 8] = [".sh", ".bash", ".py", ".php", ".pl", ".rb", ".js", ".exe"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_named_after_the_program_that_matters() {
        for (command, name) in [
            ("/usr/local/bin/backup.sh --all", "backup"),
            ("cd /srv/app && php artisan schedule:run >> /dev/null 2>&1", "artisan"),
            ("test -x /usr/sbin/anacron || ( cd / && run-parts --report /etc/cron.daily )", "cron.daily"),
            ("nice -n 19 flock -n /tmp/lock timeout 1h rsync -a a b", "rsync"),
            ("LANG=C /opt/x/Report.py", "Report"),
            ("bash", "bash"),
            ("nice -n 19 find /srv 2>&1", "find"),
            ("sleep 30; curl -fsS http://x", "curl"),
            ("", "job"),
        ] {
            assert_eq!(of_command(command), name, "{command}");
        }
    }

    #[test]
    fn names_are_valid_and_unique() {
        let mut names = Names::default();
        let unique = ["Nightly Backup!", "nightly-backup", "..", "ä", &"x".repeat(80), &"x".repeat(80)]
            .map(|wanted| names.unique(wanted));
        let x = "x".repeat(61);
        let expected = ["nightly-backup", "nightly-backup-2", "job", "job-2"].map(str::to_owned);
        assert_eq!(unique[..4], expected);
        assert_eq!(unique[4..], [format!("{x}xx"), format!("{x}-2")]);
    }
}
