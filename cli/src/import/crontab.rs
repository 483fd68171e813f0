//! Crontabs: a line is empty, a comment, a variable for the lines below it, or a rule with a command for the shell.
//!
//! The form has no library of its own among our dependencies, and is small enough to be read by hand.

mod input;
mod ssh;
mod surroundings;

use super::cron::{self, NoRule};
use super::draft::{Draft, Imported, Note, Rule};
use super::host::{Host, Runtime};
use super::names;
use super::source::{Fault, Faults, Source};
use super::yaml::Yaml;
use input::{cut_input, with_input};
use ssh::{RemoteCommand, Ssh};

/// Says as who the commands of a crontab ran.
#[derive(Debug)]
pub(super) enum Users {
    /// Each entry has a column for its user.
    Column,
    /// All entries ran as the owner of the crontab, if the caller knows it.
    Owner(Option<String>),
}

/// Reads crontabs. With `replaces_ssh`, a command that only calls ssh becomes a job of the worker that has the name of the host.
///
/// # Errors
/// A line is none of a crontab.
pub(super) fn import(
    sources: &[Source],
    host: &Host,
    users: &Users,
    replaces_ssh: bool,
) -> Result<Imported, Faults> {
    let mut imported = Imported::default();
    let mut faults = Vec::new();
    for source in sources {
        let mut reader = Reader {
            source,
            host,
            users,
            replaces_ssh,
            settings: Settings::default(),
            comments: Vec::new(),
            imported: &mut imported,
        };
        let (mut wrong, mut right) = (Vec::new(), 0);
        for (number, line) in (1..).zip(source.text.lines()) {
            match reader.take(number, line.trim()) {
                Ok(is_entry) => right += usize::from(is_entry),
                Err(text) => wrong.push(source.fault(number, text)),
            }
        }
        if right == 0 {
            wrong = vec![not_a_crontab(source, wrong.first())];
        }
        faults.extend(wrong);
    }
    if !faults.is_empty() {
        return Err(Faults(faults));
    }
    if users.are_unknown(host) {
        imported.note(Note::NotTranslated(NO_OWNER.to_owned()));
    }
    Ok(imported)
}

fn not_a_crontab(source: &Source, first: Option<&Fault>) -> Fault {
    match first {
        Some(first) => source.fault(0, format!("not a crontab; no line has a rule and a command ({first})")),
        None => source.fault(0, "not a crontab; no line has a rule and a command, such as 0 2 * * * backup"),
    }
}

impl Users {
    /// True if plain processes would run as the worker's user without anybody having decided that.
    pub(super) fn are_unknown(&self, host: &Host) -> bool {
        host.runtime == Runtime::Process && matches!(self, Self::Owner(None))
    }
}

const NO_OWNER: &str = "the owner of the crontab, who is not known: a plain process runs as the worker's user, often root, so all entries \
     are disabled; --user NAME names the owner, and --user root leaves them enabled";

/// The variables that lines above have set.
#[derive(Clone, Debug, Default)]
struct Settings {
    shell: Option<String>,
    zone: Option<String>,
    delay_minutes: Option<u64>,
    environment: Vec<(String, String)>,
}

struct Reader<'a> {
    source: &'a Source,
    host: &'a Host,
    users: &'a Users,
    /// Commands that only call ssh become jobs of the worker with the host's name.
    replaces_ssh: bool,
    settings: Settings,
    /// Of the lines right above.
    comments: Vec<String>,
    imported: &'a mut Imported,
}

impl Reader<'_> {
    /// Takes a line; whether it is an entry or a variable, which other files do not have.
    fn take(&mut self, number: usize, line: &str) -> Result<bool, String> {
        if line.is_empty() {
            self.comments.clear();
            return Ok(false);
        }
        if let Some(comment) = line.strip_prefix('#') {
            self.take_comment(number, comment.trim_start_matches('#').trim());
            return Ok(false);
        }
        if let Some((name, value)) = variable(line) {
            self.comments.clear();
            self.take_variable(number, name, value)?;
            return Ok(true);
        }
        let comments = std::mem::take(&mut self.comments);
        let draft = self.entry(number, line, &comments)?;
        self.imported.drafts.push(draft);
        Ok(true)
    }

    fn take_comment(&mut self, number: usize, comment: &str) {
        if self.split(comment).is_ok_and(|entry| !matches!(entry.rule, Err(NoRule::Wrong(_)))) {
            let text =
                format!("{}, line {number}: an entry that is switched off by a comment", self.source.name);
            self.imported.note(Note::NotTranslated(text));
        } else if is_legend(comment) {
            // The text that cron puts above its own legend explains crontabs, not the entry below.
            self.comments.clear();
        } else if !comment.is_empty() {
            self.comments.push(comment.to_owned());
        }
    }

    fn take_variable(&mut self, number: usize, name: &str, value: &str) -> Result<(), String> {
        let settings = &mut self.settings;
        match name {
            "SHELL" => settings.shell = Some(value.to_owned()),
            "CRON_TZ" => settings.zone = Some(value.to_owned()).filter(|zone| !zone.is_empty()),
            // An empty address means that no mail is sent, and none is.
            "MAILTO" | "MAILFROM" if value.is_empty() => {}
            "MAILTO" | "MAILFROM" => {
                let text = format!(
                    "{name}={value}: output is kept with its job; \"notify\" sends mail about failures"
                );
                let text = format!("{}, line {number}: {text}", self.source.name);
                self.imported.note(Note::NotTranslated(text));
            }
            "RANDOM_DELAY" => {
                let minutes = value
                    .parse()
                    .map_err(|_| format!("RANDOM_DELAY is a number of minutes, and not \"{value}\""))?;
                settings.delay_minutes = Some(minutes);
            }
            _ => {
                settings.environment.retain(|(known, _)| known != name);
                settings.environment.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(())
    }

    fn entry(&self, number: usize, line: &str, comments: &[String]) -> Result<Draft, String> {
        let Entry { rule, user, command } = self.split(line)?;
        let (command, input) = cut_input(command);
        let remote = self.remote_command(&command);
        let command = remote.as_ref().map_or(&command, |remote| &remote.command);
        let program = names::of_command(command);
        // Crontabs that use ssh have the same command for many machines.
        let name = remote.as_ref().map_or(program.clone(), |remote| format!("{program}-{}", remote.host));
        let mut draft = Draft::new(name, self.source, number);
        if !comments.is_empty() {
            draft.set_text("description", comments.join("\n"));
        }
        self.host.begin(&mut draft);
        match rule {
            Ok(_) if needs_both_days(line) => draft.lose_rule(
                "cron fires only on days that fit both its day of the month and its day of the week; a rule here fires on days that fit one",
            ),
            Ok(rule) => draft.fire(rule.in_zone(self.settings.zone.clone())),
            Err(NoRule::NotByClock(text)) => draft.lose_rule(text),
            Err(NoRule::OnRequest) => draft.remark("it has no schedule; \"longshore run\" runs it"),
            Err(NoRule::Wrong(_)) if is_random(line) => {
                draft.lose_rule("a field with ~ is a random value; a rule with \"jitter\" comes near it");
            }
            Err(NoRule::Wrong(text)) => return Err(text),
        }
        draft.zone(self.host.zone());
        draft.set_text("overlap", "allow");
        draft.set_text("catch_up", "none");
        // A delay that is too long for a number of milliseconds is as well too long for a jitter, which the draft says.
        draft.jitter(self.settings.delay_minutes.unwrap_or(0).saturating_mul(60_000));
        match &remote {
            Some(remote) => self.add_remote_command(remote, &input, &mut draft),
            None => self.add_command(command, &input, &mut draft),
        }
        let user = remote.as_ref().and_then(|remote| remote.user.as_deref()).or(user);
        match (user, self.users) {
            (Some(user), _) => self.host.add_user(user, &mut draft),
            (None, Users::Owner(Some(owner))) => self.host.add_user(owner, &mut draft),
            (None, users) if users.are_unknown(self.host) => draft.set_plain("enabled", false),
            (None, _) => {}
        }
        Ok(draft)
    }

    /// The command of another machine, if it is to become one of that machine's worker.
    fn remote_command(&self, command: &str) -> Option<RemoteCommand> {
        match ssh::read(command) {
            Ssh::Only(remote) if self.replaces_ssh => Some(remote),
            Ssh::Only(_) | Ssh::Kept(_) | Ssh::Unused => None,
        }
    }

    fn add_command(&self, command: &str, input: &[String], draft: &mut Draft) {
        match ssh::read(command) {
            Ssh::Only(remote) => draft.remark(format!(
                "it runs on {host} by ssh; with --replace-ssh it becomes a job of the worker {host}",
                host = remote.host
            )),
            Ssh::Kept(why) if self.replaces_ssh => draft.remark(format!("ssh is kept: {why}")),
            Ssh::Kept(_) | Ssh::Unused => {}
        }
        let shell = self.settings.shell.as_deref().unwrap_or("sh");
        let is_other = !["sh", "/bin/sh"].contains(&shell);
        if is_other && self.host.runtime == Runtime::Docker {
            draft.remark(format!("the image must have {shell}, which SHELL asks for"));
        }
        let shell = if is_other { shell } else { "sh" };
        draft.set("command", Yaml::texts([shell, "-c", &with_input(command, input)]));
        surroundings::note(command, &self.settings.environment, self.host.runtime, draft);
        for (name, value) in &self.settings.environment {
            if name == "HOME" {
                draft.set_text("working_dir", value);
            }
            draft.insert("environment", name, Yaml::text(value));
        }
    }

    /// Without the variables of the crontab and its shell: ssh passes neither on.
    fn add_remote_command(&self, remote: &RemoteCommand, input: &[String], draft: &mut Draft) {
        draft.set("workers", Yaml::texts([&remote.host]));
        if let Some(redirections) = &remote.redirections {
            draft.remark(format!(
                "{redirections}: output is kept with its job and goes nowhere on the old machine"
            ));
        }
        if ["source ", "[[", "<("].iter().any(|of_bash| remote.command.contains(of_bash)) {
            draft.remark(
                "ssh runs the login shell of the user, and the job sh, which may not know all of this",
            );
        }
        draft.set("command", Yaml::texts(["sh", "-c", &with_input(&remote.command, input)]));
        surroundings::note(&remote.command, &[], self.host.runtime, draft);
    }

    /// Cuts a line into its parts.
    fn split<'l>(&self, line: &'l str) -> Result<Entry<'l>, String> {
        // SUSE's cron takes a dash before the fields, so that the command is not logged.
        let line = line.strip_prefix('-').unwrap_or(line);
        let fields_count = if line.starts_with('@') { 1 } else { 5 };
        let (fields, rest) = cut(line, fields_count).ok_or(
            "a line has five fields of time (or @daily and the like) and a command, or is NAME=value",
        )?;
        let rule = match line.strip_prefix('@') {
            Some(_) => cron::named(fields[0].trim_start_matches('@')),
            None => cron::of_fields(&fields),
        };
        if matches!(self.users, Users::Owner(_)) {
            return if rest.is_empty() {
                Err("the command is missing after the fields of time".to_owned())
            } else if cut(rest, 1).is_some_and(|(user, command)| user == ["root"] && is_command(command)) {
                Err("the user root stands before the command, as in /etc/crontab: add --system".to_owned())
            } else {
                Ok(Entry { rule, user: None, command: uncommented(rest) })
            };
        }
        let (user, command) = cut(rest, 1)
            .filter(|(_, command)| !command.is_empty())
            .ok_or("with --system, a user stands between the fields of time and the command")?;
        Ok(Entry { rule, user: Some(user[0]), command: uncommented(command) })
    }
}

/// The parts of a line.
struct Entry<'l> {
    rule: Result<Rule, NoRule>,
    user: Option<&'l str>,
    command: &'l str,
}

/// The first words of a line, and what comes after them.
fn cut(line: &str, count: usize) -> Option<(Vec<&str>, &str)> {
    let mut words = Vec::with_capacity(count);
    let mut rest = line.trim_start();
    for _ in 0..count {
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        if end == 0 {
            return None;
        }
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    Some((words, rest))
}

/// A command and no flag, such as the program `root` takes.
fn is_command(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('-')
}

/// The command without the dash that keeps it out of cron's log.
fn uncommented(command: &str) -> &str {
    command.strip_prefix('-').unwrap_or(command)
}

/// `NAME=value`, with blanks around the sign and quotes around either.
fn variable(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = unquoted(name.trim());
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then(|| (name, unquoted(value.trim())))
}

fn unquoted(text: &str) -> &str {
    let inner = ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
    inner.unwrap_or(text)
}

/// True if the comment names the fields, as in the crontab that cron offers at first.
fn is_legend(comment: &str) -> bool {
    let words: Vec<String> = comment.split_whitespace().map(str::to_lowercase).collect();
    let begins = |forms: &[&str]| {
        words.len() >= 5 && words.iter().zip(forms).all(|(word, form)| word.starts_with(form))
    };
    begins(&["m", "h", "d", "m", "d"]) || comment.starts_with(['.', '|', '*', '-'])
}

/// True if a field has a random value, which some crons write with a tilde.
fn is_random(line: &str) -> bool {
    cut(line, 5).is_some_and(|(fields, _)| fields.iter().any(|field| field.contains('~')))
}

/// True if both kinds of days are limited and one begins with a star: cron then wants both to fit, jobs.yaml one of them.
fn needs_both_days(line: &str) -> bool {
    let Some((fields, _)) = cut(line, 5).filter(|_| !line.starts_with('@')) else { return false };
    let days = [fields[2], fields[4]];
    days.iter().all(|field| !["*", "?"].contains(field)) && days.iter().any(|field| field.starts_with('*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_may_have_quotes_and_blanks() {
        assert_eq!(variable("PATH = \"/bin:/usr/bin\""), Some(("PATH", "/bin:/usr/bin")));
        assert_eq!(variable("MAILTO="), Some(("MAILTO", "")));
        assert_eq!(variable("0 2 * * * A=b c"), None);
    }
}
