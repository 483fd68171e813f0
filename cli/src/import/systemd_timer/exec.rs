//! Commands of a service: `ExecStart=` and its like as the command of a definition.

use crate::quoting;

/// One command of a service.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    words: Vec<Word>,
    ignores_failure: bool,
    /// It ran with the rights of root, whatever the service says.
    pub(super) is_privileged: bool,
}

/// A word of a command.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Literal(String),
    /// In the form of a shell, which replaces its variables.
    Shell(String),
}

/// Reads the value of `ExecStart=`: prefixes, then words; a lone semicolon begins the next command.
///
/// # Errors
/// A quote is open, or there is no program.
pub(super) fn steps(value: &str) -> Result<Vec<Step>, String> {
    let program = value.trim_start_matches(['@', '-', ':', '+', '!', '|']);
    let prefixes = &value[..value.len() - program.len()];
    let mut words = shell_words::split(program).map_err(|_| "a quote is not closed".to_owned())?;
    if prefixes.contains('@') && words.len() > 1 {
        // The second word is only the name that the program sees.
        words.remove(1);
    }
    let commands: Vec<&[String]> =
        words.split(|word| word == ";").filter(|words| !words.is_empty()).collect();
    if commands.is_empty() {
        return Err("the program is missing".to_owned());
    }
    let word = |word: &String| match prefixes.contains(':') {
        true => Word::Literal(word.clone()),
        false => Word::read(word),
    };
    let step = |words: &[String]| Step {
        words: words.iter().map(word).collect(),
        ignores_failure: prefixes.contains('-'),
        is_privileged: prefixes.contains(['+', '!']),
    };
    Ok(commands.into_iter().map(step).collect())
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

/// All commands as one: as it is where there is but one, and otherwise for a shell, which ends with the first that fails.
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
                &["sh", "-c", "set -e\n/bin/a\n/bin/b 'c d' || true\n/bin/e || true"],
            ),
        ] {
            let steps: Vec<Step> = lines.iter().flat_map(|line| steps(line).unwrap()).collect();
            assert_eq!(command(&steps), expected, "{lines:?}");
        }
        assert!(steps("-").is_err() && steps("/bin/a 'b").is_err());
        assert!(steps("+/bin/a").unwrap()[0].is_privileged);
    }
}
