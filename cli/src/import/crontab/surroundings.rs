//! Differences between the surroundings that cron gives to a command and those of a job: the directory and some variables.

use super::super::draft::Draft;
use super::super::host::Runtime;

/// Notes what the command uses and a job does not have, unless the crontab sets it.
pub(super) fn note(command: &str, set: &[(String, String)], runtime: Runtime, draft: &mut Draft) {
    let is_set = |name: &str| set.iter().any(|(known, _)| known == name);
    // HOME of the crontab is the working directory of the job, too.
    if let Some(path) = relative_path(command).filter(|_| !is_set("HOME")) {
        let here = match runtime {
            Runtime::Docker => "the one of the image",
            Runtime::Process => "an empty one",
        };
        draft.remark(format!(
            "{path} is a relative path: cron starts in the home directory of the user, and the job in {here}; \
             name the directory with \"working_dir\""
        ));
    }
    let names: Vec<&str> =
        ["LOGNAME", "USER"].into_iter().filter(|name| !is_set(name) && uses(command, name)).collect();
    if !names.is_empty() {
        draft.remark(format!(
            "cron sets {}, and a job does not have it; set it with \"environment\"",
            names.join(" and ")
        ));
    }
    if stays_behind(command) {
        let text = "the command leaves a program in the background: it ends with the job; \
                    let the job wait for it, or make it a service of the machine";
        draft.remark(text.to_owned());
    }
    if !is_set("HOME") && (uses(command, "HOME") || has_tilde(command)) {
        let here = match runtime {
            Runtime::Docker => "what the image and \"user\" say",
            Runtime::Process => "that of the worker",
        };
        draft.remark(format!(
            "HOME is the home directory of the user to cron, and here it is {here}; set it with \"environment\""
        ));
    }
}

/// True if the command ends while a program that it started goes on.
fn stays_behind(command: &str) -> bool {
    let ends_in_background = command.strip_suffix('&').is_some_and(|rest| !rest.ends_with('&'));
    ends_in_background || command.split([' ', '\t', ';', '(']).any(|word| ["nohup", "setsid"].contains(&word))
}

/// The first word that is a path below the directory in which the command starts. After a `cd` to an absolute path there is none.
fn relative_path(command: &str) -> Option<&str> {
    let mut words = command.split([' ', '\t', ';', '&', '|', '(', ')', '`', '"', '\'', '<', '>']).peekable();
    while let Some(word) = words.next() {
        if word == "cd" && words.peek().is_some_and(|to| to.starts_with(['/', '~', '$'])) {
            return None;
        }
        if is_relative(word) {
            return Some(word);
        }
    }
    None
}

/// Addresses, options, assignments and expressions of sed have slashes, too.
fn is_relative(word: &str) -> bool {
    let begins = word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_');
    let is_path = |c: char| c.is_ascii_alphanumeric() || "._-/*+".contains(c);
    let has_letter =
        word.split('/').next().is_some_and(|first| first == "." || first == ".." || first.len() > 1);
    begins && has_letter && word.contains('/') && word.chars().all(is_path) && !is_date(word)
}

/// True for numbers between slashes, such as `1/2`.
fn is_date(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_digit() || c == '/')
}

/// True if the command has `$NAME` or `${NAME`.
fn uses(command: &str, name: &str) -> bool {
    command.split('$').skip(1).any(|rest| {
        let rest = rest.strip_prefix('{').unwrap_or(rest).strip_prefix(name);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
    })
}

/// True if a word begins with `~`, which the shell replaces by HOME.
fn has_tilde(command: &str) -> bool {
    command
        .split([' ', '\t', '=', ';', '&', '|', '(', '<', '>'])
        .any(|word| word == "~" || word.starts_with("~/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_are_found_and_other_slashes_are_not() {
        for (command, expected) in [
            ("bin/foo --all", Some("bin/foo")),
            ("./collect >>log/out", Some("./collect")),
            ("/bin/foo >>../log/out", Some("../log/out")),
            ("cd /srv/app && bin/foo", None),
            ("cd app && bin/foo", Some("bin/foo")),
            ("cd ~ && bin/foo", None),
            ("/bin/foo /tmp/x $HOME/y ~/z", None),
            ("curl -fsS https://example.org/x", None),
            ("rsync -a web:data/x /srv", None),
            ("sed -i s/a/b/ /etc/x; echo 1/2", None),
        ] {
            assert_eq!(relative_path(command), expected, "{command}");
        }
    }

    #[test]
    fn programs_that_stay_in_the_background_are_found() {
        for command in ["nohup /opt/daemon.sh >/dev/null 2>&1 &", "cd /opt; setsid ./daemon", "sleep 5 &"] {
            assert!(stays_behind(command), "{command}");
        }
        for command in ["a && b", "a & wait", "cp nohup.out /tmp"] {
            assert!(!stays_behind(command), "{command}");
        }
    }

    #[test]
    fn variables_are_found_by_their_whole_name() {
        assert!(uses("echo ${USER}", "USER") && uses("echo a$USER.x", "USER"));
        assert!(!uses("echo $USERS USER", "USER"));
        assert!(has_tilde("ls ~/x") && has_tilde("cd ~") && !has_tilde("ls a~"));
    }
}
