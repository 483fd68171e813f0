//! The input of a command: the text after its first `%`.

/// The command, and the lines of its input: these come after the first `%`, and every other `%` ends one.
pub(super) fn cut_input(command: &str) -> (String, Vec<String>) {
    let mut parts = vec![String::new()];
    let mut chars = command.chars().peekable();
    while let Some(c) = chars.next() {
        let last = parts.last_mut();
        match (c, chars.peek(), last) {
            ('\\', Some('%'), Some(last)) => {
                chars.next();
                last.push('%');
            }
            ('%', ..) => parts.push(String::new()),
            (c, _, Some(last)) => last.push(c),
            (_, _, None) => {}
        }
    }
    let command = parts.remove(0).trim_end().to_owned();
    (command, parts)
}

/// The command as the shell gets it, with its input.
pub(super) fn with_input(command: &str, input: &[String]) -> String {
    if input.is_empty() {
        return command.to_owned();
    }
    let lines: Vec<String> = input.iter().map(|line| format!("'{}'", line.replace('\'', r"'\''"))).collect();
    format!("printf '%s\\n' {} | {{\n{command}\n}}", lines.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_a_percent_sign_is_input() {
        for (command, expected) in [
            ("date +\\%F", "date +%F"),
            ("mail -s hi x%Dear x%%it's", "printf '%s\\n' 'Dear x' '' 'it'\\''s' | {\nmail -s hi x\n}"),
        ] {
            let (command, input) = cut_input(command);
            assert_eq!(with_input(&command, &input), expected);
        }
    }
}
