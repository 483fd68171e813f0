//! Warnings about commands that are valid and often a mistake: no shell reads a command, unless the command is one.

use scheduler::params::Word;

use super::fault::{FaultCode, Position, quoted};
use super::reader::Reader;
use super::tree::{Node, Value};

/// Warns of the syntax of a shell where no shell reads it, and of words after the script of `sh -c` that the script does not use.
pub(super) fn warn(node: &Node, words: &[(Position, Word)], has_entrypoint: bool, reader: &mut Reader<'_>) {
    let texts: Vec<&str> = words.iter().map(|(_, word)| text_of(word)).collect();
    let advice = match script_of(&texts) {
        Some((script, rest)) if !rest.is_empty() && !uses_arguments(script) => format!(
            "`{} {}` runs only the word after it, and this one does not use the words that follow; write the \
             whole line as one word",
            texts[0], texts[1]
        ),
        // A list has its words one by one, so an operator in it is meant as a word.
        // A variable of the server may be a secret with any characters in it.
        None if matches!(node.value, Value::Scalar(_)) && !has_entrypoint && !node.has_variable() => {
            match shell_syntax(&texts) {
                Some(word) => format!(
                    "{} is an ordinary word here, because no shell reads the command; for a shell write \
                     command: [sh, -c, '…']",
                    quoted(word)
                ),
                None => return,
            }
        }
        _ => return,
    };
    reader.collector.warning(node.at, FaultCode::LooksLikeShell, advice);
}

/// The name of a parameter is no syntax.
fn text_of(word: &Word) -> &str {
    match word {
        Word::Text(text) => text,
        Word::Param(_) => "",
    }
}

/// The script of a shell that is told to run its next word, and the words after it.
fn script_of<'w>(words: &'w [&'w str]) -> Option<(&'w str, &'w [&'w str])> {
    let [program, option, script, rest @ ..] = words else { return None };
    let is_option = option.starts_with('-') && !option.starts_with("--") && option.ends_with('c');
    // The name of a parameter may stand for any script.
    let takes_script =
        is_option && option.len() <= OPTION_BYTES_MAX && is_shell(program) && !script.is_empty();
    takes_script.then_some((*script, rest))
}

fn is_shell(program: &str) -> bool {
    SHELLS.contains(&program.rsplit('/').next().unwrap_or(program))
}

/// `$0`, `$1`, `$@` and the like, also in braces. A script without words of its own runs what it is given.
fn uses_arguments(script: &str) -> bool {
    script.split('$').skip(1).any(|after| {
        after.trim_start_matches('{').starts_with(|c: char| c.is_ascii_digit() || "@*#".contains(c))
    })
}

/// The first word with the syntax of a shell, if the command calls no program that hands its words to a shell.
fn shell_syntax<'w>(words: &[&'w str]) -> Option<&'w str> {
    if words.iter().any(|word| is_shell(word) || HAND_OVER.contains(word)) {
        return None;
    }
    let assignment = words.first().copied().filter(|word| words.len() > 1 && is_assignment(word));
    assignment.or_else(|| words.iter().copied().find(|word| OPERATORS.contains(word) || is_variable(word)))
}

/// `NAME=value`, which a shell takes for a variable of the command after it.
fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// `$NAME`, where a shell would put its value. A word with blanks in it was quoted: a program of its own, such as that of awk.
fn is_variable(word: &str) -> bool {
    !word.contains(char::is_whitespace)
        && word
            .split('$')
            .skip(1)
            .any(|after| after.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
}

const SHELLS: [&str; 7] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "fish"];
/// Programs that give their words to a shell, at times on another machine.
const HAND_OVER: [&str; 5] = ["ssh", "su", "eval", "envsubst", "runuser"];
/// `;` is missing: it ends the words of `find -exec`.
const OPERATORS: [&str; 9] = ["&&", "||", "|", ">", ">>", "<", "&", "2>&1", "2>"];
/// `-c`, `-ec`, `-euxc`; a longer option is a word of its own.
const OPTION_BYTES_MAX: usize = 6;
