//! Commands that only call ssh: `ssh deploy@web1 /opt/clean-up.sh`.
//!
//! A worker on that machine runs the same command without ssh. Only a command whose words the shell here leaves as they are is taken apart, because
//! everything else would mean something different on the other machine.

use super::super::admit;

/// How a command of a crontab uses ssh.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ssh {
    /// Not at all.
    Unused,
    /// It does nothing else than run a command on another machine.
    Only(RemoteCommand),
    /// It cannot be replaced, for this reason.
    Kept(String),
}

/// A command of another machine.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RemoteCommand {
    /// The machine, as ssh names it. A worker can have this name.
    pub(super) host: String,
    /// The user there, if ssh names one.
    pub(super) user: Option<String>,
    /// For the shell there.
    pub(super) command: String,
    /// The local redirections of ssh's output.
    pub(super) redirections: Option<String>,
}

/// Finds out how a command uses ssh.
pub(super) fn read(command: &str) -> Ssh {
    if !command.split(|c: char| c.is_whitespace() || ";|&(`".contains(c)).any(is_ssh) {
        return Ssh::Unused;
    }
    match remote_command(command) {
        Ok(remote) => Ssh::Only(remote),
        Err(why) => Ssh::Kept(why),
    }
}

fn remote_command(command: &str) -> Result<RemoteCommand, String> {
    let (call, redirections) = cut_redirections(command)?;
    let words = shell_words::split(call).map_err(|_| "a quote is not closed".to_owned())?;
    let mut words = words.into_iter();
    if !words.next().is_some_and(|word| is_ssh(&word)) {
        return Err("it does more than call ssh".to_owned());
    }
    let (mut user, mut destination, mut rest) = (None, None, Vec::new());
    // Options may also stand behind the host. The command begins with the first other word, or behind two dashes.
    while let Some(word) = words.next() {
        match word.strip_prefix('-') {
            Some("-") => break,
            Some(options) => user = take_options(options, &mut words)?.or(user),
            None if destination.is_none() => destination = Some(word),
            None => {
                rest.push(word);
                break;
            }
        }
    }
    rest.extend(words);
    let destination = destination.or_else(|| (!rest.is_empty()).then(|| rest.remove(0)));
    let Some(destination) = destination else { return Err("ssh has no host".to_owned()) };
    if destination.contains("://") {
        return Err("its host is an address with a scheme".to_owned());
    }
    let (named, host) = match destination.rsplit_once('@') {
        Some((user, host)) => (Some(user.to_owned()), host.to_owned()),
        None => (None, destination),
    };
    admit::parse_worker(&host).map_err(|why| format!("no worker can have the name of this host: {why}"))?;
    if rest.is_empty() {
        return Err("ssh has no command".to_owned());
    }
    Ok(RemoteCommand { host, user: named.or(user), command: rest.join(" "), redirections })
}

/// Reads one word of options, with the value of the last one; the user of `-l` and `-o User=`.
fn take_options(options: &str, words: &mut impl Iterator<Item = String>) -> Result<Option<String>, String> {
    for (at, option) in options.char_indices() {
        if OF_CONNECTION.contains(option) {
            continue;
        }
        if !OF_CONNECTION_WITH_VALUE.contains(option) {
            return Err(format!("its option -{option} does more than run a command"));
        }
        let glued = &options[at + option.len_utf8()..];
        let value = if glued.is_empty() { words.next() } else { Some(glued.to_owned()) };
        let Some(value) = value else { return Err(format!("its option -{option} has no value")) };
        return match option {
            'l' => Ok(Some(value)),
            'o' => setting(&value),
            _ => Ok(None),
        };
    }
    Ok(None)
}

/// Reads the value of `-o`; the user that it names.
fn setting(text: &str) -> Result<Option<String>, String> {
    let end = text.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(text.len());
    let (name, value) = (&text[..end], text[end..].trim_start_matches(['=', ' ']));
    if name.eq_ignore_ascii_case("User") {
        return Ok(Some(value.to_owned()));
    }
    match SETTINGS_OF_CONNECTION.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        true => Ok(None),
        false => Err(format!("its option -o {name} may do more than run a command")),
    }
}

/// Cuts the redirections off the end of a command that is one call with plain words.
fn cut_redirections(command: &str) -> Result<(&str, Option<String>), String> {
    let Some((at, special)) = first_special(command) else { return Ok((command.trim(), None)) };
    let is_redirection = matches!(special, '<' | '>') || command[at..].starts_with("&>");
    if !is_redirection {
        return Err(match special {
            '$' | '`' | '*' | '?' | '[' | '~' | '{' => {
                format!("the shell of the crontab replaces its {special} before ssh gets it")
            }
            _ => "it does more than call ssh".to_owned(),
        });
    }
    let call = command[..at].trim_end_matches(|c: char| c.is_ascii_digit());
    // A number that belongs to a word, as in `a1 > log`, is none of a redirection.
    let at = if call.ends_with(char::is_whitespace) { call.len() } else { at };
    let (call, tail) = command.split_at(at);
    if !redirects_output_only(tail) {
        return Err("it does more than call ssh".to_owned());
    }
    Ok((call.trim(), Some(tail.trim().to_owned())))
}

/// The first character that the shell treats in a special way, outside of quotes that protect it.
fn first_special(command: &str) -> Option<(usize, char)> {
    let (mut quote, mut is_escaped, mut is_word_start) = (None, false, true);
    for (at, c) in command.char_indices() {
        let is_special = match quote {
            _ if is_escaped => false,
            Some('\'') => false,
            Some(_) => "$`".contains(c),
            None => ";|&()<>$`*?[{\n".contains(c) || (is_word_start && "~#".contains(c)),
        };
        if is_special {
            return Some((at, c));
        }
        is_word_start = quote.is_none() && !is_escaped && c.is_whitespace();
        match (quote, c) {
            _ if is_escaped => is_escaped = false,
            (None | Some('"'), '\\') => is_escaped = true,
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
    }
    None
}

/// True for `>>log 2>&1`, `> /dev/null`, `&>log`, `</dev/null` and the like, and nothing after them.
fn redirects_output_only(tail: &str) -> bool {
    let mut words = tail.split_whitespace();
    while let Some(word) = words.next() {
        let rest = word.trim_start_matches(|c: char| c.is_ascii_digit());
        let rest = rest.strip_prefix('&').unwrap_or(rest);
        let target = rest.trim_start_matches(['<', '>']);
        let operator = &rest[..rest.len() - target.len()];
        let target = if target.is_empty() { words.next().unwrap_or_default() } else { target };
        let is_file = !target.is_empty() && !target.contains(|c: char| ";|&()<>`".contains(c));
        let is_right = match operator {
            ">" | ">>" => is_file || ["&1", "&2", "&-"].contains(&target),
            "<" => target == "/dev/null",
            _ => false,
        };
        if !is_right {
            return false;
        }
    }
    true
}

fn is_ssh(word: &str) -> bool {
    word.rsplit('/').next() == Some("ssh")
}

/// Options of ssh that change how it connects and says so (ssh(1) of OpenSSH 9), not what runs on the other machine.
const OF_CONNECTION: &str = "46aCkqTtnvxy";
/// Likewise, those with a value.
const OF_CONNECTION_WITH_VALUE: &str = "BbcEeIiJlmopS";
/// Likewise, those of `-o`.
const SETTINGS_OF_CONNECTION: [&str; 20] = [
    "AddressFamily",
    "BatchMode",
    "BindAddress",
    "Ciphers",
    "Compression",
    "ConnectTimeout",
    "ConnectionAttempts",
    "ControlMaster",
    "ControlPath",
    "ControlPersist",
    "IdentitiesOnly",
    "IdentityFile",
    "LogLevel",
    "PasswordAuthentication",
    "Port",
    "ProxyJump",
    "ServerAliveCountMax",
    "ServerAliveInterval",
    "StrictHostKeyChecking",
    "UserKnownHostsFile",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn only(command: &str) -> (String, Option<String>, String, Option<String>) {
        match read(command) {
            Ssh::Only(remote) => (remote.host, remote.user, remote.command, remote.redirections),
            other => panic!("{command}: {other:?}"),
        }
    }

    #[test]
    fn a_call_of_ssh_is_taken_apart() {
        for (command, host, user, expected, redirections) in [
            ("ssh web1 /opt/clean-up.sh", "web1", None, "/opt/clean-up.sh", None),
            ("/usr/bin/ssh -q -i /etc/key -p2222 deploy@web1 ls -l", "web1", Some("deploy"), "ls -l", None),
            ("ssh -l deploy -oBatchMode=yes web1 -- ls", "web1", Some("deploy"), "ls", None),
            ("ssh web1 -p 2222 -l deploy uptime -p", "web1", Some("deploy"), "uptime -p", None),
            ("ssh -o User=backup -oPort=22 db1 -- dump", "db1", Some("backup"), "dump", None),
            ("ssh -nq web1 'cd /srv; ls *.gz | wc -l'", "web1", None, "cd /srv; ls *.gz | wc -l", None),
            ("ssh web1 \"df -h\" '$HOME'", "web1", None, "df -h $HOME", None),
            ("ssh web1 echo a\\;b", "web1", None, "echo a;b", None),
            (
                "ssh web1 run1 >> /var/log/run.log 2>&1",
                "web1",
                None,
                "run1",
                Some(">> /var/log/run.log 2>&1"),
            ),
            ("ssh web1 run 2>/dev/null", "web1", None, "run", Some("2>/dev/null")),
            ("ssh web1 run1>/dev/null </dev/null", "web1", None, "run1", Some(">/dev/null </dev/null")),
            ("ssh web1 run &> log", "web1", None, "run", Some("&> log")),
        ] {
            let expected = (
                host.to_owned(),
                user.map(str::to_owned),
                expected.to_owned(),
                redirections.map(str::to_owned),
            );
            assert_eq!(only(command), expected, "{command}");
        }
    }

    #[test]
    fn everything_else_is_kept() {
        for (command, why) in [
            ("ssh web1 ls | mail -s list root", "it does more than call ssh"),
            ("ssh web1 ls; ssh web2 ls", "it does more than call ssh"),
            ("ssh web1 ls &", "it does more than call ssh"),
            ("ssh web1 ls > log; rm log", "it does more than call ssh"),
            ("ssh web1 restore < /srv/dump", "it does more than call ssh"),
            ("timeout 60 ssh web1 ls", "it does more than call ssh"),
            ("pg_dump shop | ssh web1 cat", "it does more than call ssh"),
            ("ssh web1 \"cat $HOME/x\"", "the shell of the crontab replaces its $ before ssh gets it"),
            ("ssh web1 ls *.gz", "the shell of the crontab replaces its * before ssh gets it"),
            ("ssh -f web1 daemon", "its option -f does more than run a command"),
            ("ssh -A web1 git pull", "its option -A does more than run a command"),
            ("ssh -oRemoteCommand=x web1 ls", "its option -o RemoteCommand may do more than run a command"),
            ("ssh -L 80:web2:80 web1 sleep 9", "its option -L does more than run a command"),
            ("ssh -i", "its option -i has no value"),
            ("ssh ssh://deploy@web1:2222 ls", "its host is an address with a scheme"),
            ("ssh web1", "ssh has no command"),
            ("ssh -q", "ssh has no host"),
            ("ssh web1 'ls", "a quote is not closed"),
        ] {
            assert_eq!(read(command), Ssh::Kept(why.to_owned()), "{command}");
        }
        assert!(matches!(read("ssh '' ls"), Ssh::Kept(why) if why.starts_with("no worker can have")));
        for command in ["rsync -a a b", "ssh-keygen -R web1", "echo sshd"] {
            assert_eq!(read(command), Ssh::Unused, "{command}");
        }
    }
}
