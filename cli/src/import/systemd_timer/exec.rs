//! Commands of a service: `ExecStart=` and its like as the command of a definition.

use crate::quoting;

/// One command of a service.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    words: Vec<Word>,
    ignores_failure: bool,
    /// Systemd runs it as root (`+` or `!`), regardless of `User=`.
    pub(super) is_privileged: bool,
}

/// A word of a command.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Literal(String),
    /// Shell source text: the shell expands its variables.
    Shell(String),
}

/// Reads the value of `ExecStart=`: commands between lone semicolons, each with prefixes of its own.
///
/// # Errors
/// A quote is open, or a program is missing.
pub(super) fn steps(value: &str) -> Result<Vec<Step>, String> {
    let commands: Vec<&str> =
        split_commands(value).into_iter().map(str::trim).filter(|command| !command.is_empty()).collect();
    if commands.is_empty() {
        return Err("the program is missing".to_owned());
    }
    commands.into_iter().map(Step::read).collect()
}

/// Cuts a line at each semicolon that is a word of its own. A quoted or escaped one (`\;`) is an argument.
fn split_commands(line: &str) -> Vec<&str> {
    let mut commands = Vec::new();
    let (mut start, mut open_quote, mut is_escaped, mut is_word_start) = (0, None, false, true);
    for (at, c) in line.char_indices() {
        let is_separator = c == ';' && is_word_start && open_quote.is_none();
        if is_separator && line[at + 1..].chars().next().is_none_or(char::is_whitespace) {
            commands.push(&line[start..at]);
            start = at + 1;
        }
        is_word_start = c.is_whitespace() && !is_escaped;
        match (open_quote, c) {
            _ if is_escaped => is_escaped = false,
            (None | Some('"'), '\\') => is_escaped = true,
            (None, '"' | '\'') => open_quote = Some(c),
            (Some(quote), _) if quote == c => open_quote = None,
            _ => {}
        }
    }
    commands.push(&line[start..]);
    commands
}

impl Step {
    /// Reads one command: prefixes, then words.
    fn read(command: &str) -> Result<Self, String> {
        let program = command.trim_start_matches(['@', '-', ':', '+', '!', '|']);
        let prefixes = &command[..command.len() - program.len()];
        let mut words = shell_words::split(program).map_err(|_| "a quote is not closed".to_owned())?;
        if prefixes.contains('@') && words.len() > 1 {
            // The second word is only the name that the program sees.
            words.remove(1);
        }
        if words.is_empty() {
            return Err("the program is missing".to_owned());
        }
        let word = |word: String| match prefixes.contains(':') {
            true => Word::Literal(word),
            false => Word::read(&word),
        };
        Ok(Self {
            words: words.into_iter().map(word).collect(),
            ignores_failure: prefixes.contains('-'),
            is_privileged: prefixes.contains(['+', '!']),
        })
    }
}

impl Word {
    /// Systemd replaces `${NAME}` anywhere, and `$NAME` if it is a word of its own; `$$` is a dollar.
    fn read(word: &str) -> Self {
        let is_name =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if word.strip_prefix('$').is_some_and(is_name) {
            return Self::Shell(word.to_owned());
        }
        let (mut literal, mut quoted, mut has_variable) = (String::new(), String::from("\""), false);
        let mut rest = word;
        while let Some(c) = rest.chars().next() {
            let variable = rest.strip_prefix("${").and_then(|rest| rest.split_once('}'));
            if let Some((name, after)) = variable.filter(|(name, _)| is_name(name)) {
                has_variable = true;
                quoted.push_str(&format!("${{{name}}}"));
                rest = after;
                continue;
            }
            rest = rest.strip_prefix("$$").unwrap_or(&rest[c.len_utf8()..]);
            literal.push(c);
            if matches!(c, '$' | '"' | '\\' | '`') {
                quoted.push('\\');
            }
            quoted.push(c);
        }
        if has_variable { Self::Shell(quoted + "\"") } else { Self::Literal(literal) }
    }

    fn quote(&self) -> String {
        match self {
            Self::Literal(text) => quoting::shell_join([text]),
            Self::Shell(text) => text.clone(),
        }
    }
}

/// Joins the steps: a single plain step stays an argv, all else becomes `sh -c` with `set -e`.
pub(super) fn command(steps: &[Step]) -> Vec<String> {
    let literals = |step: &Step| -> Option<Vec<String>> {
        let literal = |word: &Word| match word {
            Word::Literal(text) => Some(text.clone()),
            Word::Shell(_) => None,
        };
        step.words.iter().map(literal).collect()
    };
    if let [step] = steps
        && let Some(words) = literals(step).filter(|_| !step.ignores_failure)
    {
        return words;
    }
    let line = |step: &Step| {
        let line = step.words.iter().map(Word::quote).collect::<Vec<_>>().join(" ");
        if step.ignores_failure { format!("{line} || true") } else { line }
    };
    let script = match steps {
        [step] if step.ignores_failure => line(step),
        [step] => format!("exec {}", line(step)),
        steps => {
            std::iter::once("set -e".to_owned()).chain(steps.iter().map(line)).collect::<Vec<_>>().join("\n")
        }
    };
    ["sh", "-c", &script].map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_keep_their_words_and_their_prefixes() {
        for (lines, expected) in [
            (
                &["/usr/bin/rsync -a '/srv/my data' /backup"][..],
                &["/usr/bin/rsync", "-a", "/srv/my data", "/backup"][..],
            ),
            (&["/bin/sh -c 'echo $HOME $$x'"], &["/bin/sh", "-c", "echo $HOME $x"]),
            (&["-/bin/a"], &["sh", "-c", "/bin/a || true"]),
            (&["/bin/a ${X}/$$y $Z"], &["sh", "-c", "exec /bin/a \"${X}/\\$y\" $Z"]),
            (&[":/bin/a ${X}"], &["/bin/a", "${X}"]),
            (&["@/bin/a name b"], &["/bin/a", "b"]),
            (
                &["/bin/a", "-/bin/b 'c d' ; /bin/e"],
                &["sh", "-c", "set -e\n/bin/a\n/bin/b 'c d' || true\n/bin/e"],
            ),
            (&["/bin/a ; -/bin/b"], &["sh", "-c", "set -e\n/bin/a\n/bin/b || true"]),
            (&["/bin/a ${X} ; :/bin/b ${X};"], &["sh", "-c", "set -e\n/bin/a \"${X}\"\n/bin/b '${X};'"]),
            (&["@/bin/a name b ; @/bin/c name d"], &["sh", "-c", "set -e\n/bin/a b\n/bin/c d"]),
            (
                &["/bin/find . -exec rm {} \\; -o ';' \"a ; b\""],
                &["/bin/find", ".", "-exec", "rm", "{}", ";", "-o", ";", "a ; b"],
            ),
            (&["/bin/a ;"], &["/bin/a"]),
        ] {
            let steps: Vec<Step> = lines.iter().flat_map(|line| steps(line).unwrap()).collect();
            assert_eq!(command(&steps), expected, "{lines:?}");
        }
        assert!(steps("-").is_err() && steps("/bin/a 'b").is_err());
        assert!(steps("/bin/a ; -").is_err() && steps(" ; ").is_err());
        let privileged =
            |line| steps(line).unwrap().iter().map(|step| step.is_privileged).collect::<Vec<_>>();
        assert_eq!(privileged("+/bin/a ; /bin/b"), [true, false]);
        assert_eq!(privileged("/bin/a ; !/bin/b"), [false, true]);
    }
}
