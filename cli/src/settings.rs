//! Where the settings of `server` and `worker` come from: flags, then `LONGSHORE_*` variables, then a file.
//!
//! The keys of the file are the long flags with underscores. There is no second list of them: the parser of the command line knows its
//! flags and what they take, so what the file says, and nobody else, is put in front of the command line as arguments.

mod file;

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory as _, FromArgMatches as _};

use crate::failure::{Exit, Failure};
use crate::screen::Format;
use crate::{Program, screen};
use file::{Fault, Setting, Value, fault};

/// The settings file.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Settings {
    /// A YAML file with settings: what neither a flag nor a variable says. Its keys are the long flags, with underscores.
    #[arg(long, env = "LONGSHORE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Settings {
    /// Says in the log that there is a file.
    pub(crate) fn tell(&self) {
        if let Some(file) = &self.config {
            tracing::info!("settings that no flag and no variable gives are from {}", file.display());
        }
    }
}

/// The command line cannot be followed.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// It is wrong itself, or asks for help.
    Words(clap::Error),
    /// The settings file is.
    File(Failure),
}

impl From<clap::Error> for Wrong {
    fn from(error: clap::Error) -> Self {
        Self::Words(error)
    }
}

/// Where values come from that are not on the command line: flags, each with its variable or its line.
#[derive(Debug, Default)]
pub(crate) struct Origins(Vec<(String, String)>);

impl Origins {
    /// The origin of the value that an error is about, if its text begins with a flag and does not name the origin itself.
    pub(crate) fn of(&self, error: &str) -> Option<&str> {
        let flag = error.strip_prefix("--")?.split([':', ' ']).next()?;
        let origin = self.0.iter().find(|(known, _)| known == flag).map(|(_, origin)| origin.as_str());
        let name = |origin: &str| origin.rsplit(' ').next().unwrap_or_default().to_owned();
        origin.filter(|origin| !error.contains(&name(origin)))
    }
}

/// What a command line asks for.
pub(crate) struct Asked {
    /// Which verb, with its flags.
    pub(crate) program: Program,
    /// Where the values come from that are not on it.
    pub(crate) origins: Origins,
    /// How the verb writes, be it what went wrong.
    pub(crate) format: Format,
}

/// Reads a command line, and the settings file that it names.
///
/// # Errors
/// See [`Wrong`].
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Asked, Wrong> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let known = Program::command();
    let known = without_variables(&known, &is_empty);
    let mut command = without_variables(&known, &is_switched_off);
    let mut matches = command.clone().try_get_matches_from(&words)?;
    if shows_output(&matches) {
        // What follows is the output itself: a variable for all verbs does not mean this one.
        command = without_variables(&command, &|argument| argument.get_id() == "format");
        matches = command.clone().try_get_matches_from(&words)?;
    }
    let mut origins = Origins::default();
    if let Some((verb, given)) = matches.subcommand()
        && let Some(verb) = known.find_subcommand(verb)
    {
        origins = variables(verb, given);
        if let Some(path) = path(given) {
            let found = Found { program: &known, verb, given, path }.read()?;
            origins.0.extend(found.origins);
            // Behind the names of the program and of the verb.
            words.splice(2..2, found.words);
            matches = command.try_get_matches_from(&words)?;
        }
    }
    let format = matches.subcommand().and_then(|(_, given)| given.try_get_one("format").ok().flatten());
    let format = format.copied().unwrap_or_default();
    Ok(Asked { program: Program::from_arg_matches(&matches)?, origins, format })
}

fn path(given: &ArgMatches) -> Option<&PathBuf> {
    given.try_get_one("config").ok().flatten()
}

/// The flags that variables have given.
fn variables(verb: &Command, given: &ArgMatches) -> Origins {
    let of_variable = |argument: &Arg| {
        let is = given.value_source(argument.get_id().as_str()) == Some(ValueSource::EnvVariable);
        let origin = format!("the environment variable {}", argument.get_env()?.to_string_lossy());
        is.then_some((argument.get_long()?.to_owned(), origin))
    };
    Origins(verb.get_arguments().filter_map(of_variable).collect())
}

/// A settings file, and the command line that names it.
struct Found<'c> {
    program: &'c Command,
    verb: &'c Command,
    given: &'c ArgMatches,
    path: &'c Path,
}

/// What a file has to add.
#[derive(Default)]
struct Added {
    words: Vec<OsString>,
    origins: Vec<(String, String)>,
}

impl Found<'_> {
    /// Reads the file; tells all of its faults.
    fn read(&self) -> Result<Added, Wrong> {
        let shown = self.path.display();
        let text = content(self.path).map_err(|why| {
            let text = format!("cannot read the settings file {shown}: {why}");
            Wrong::File(Failure::new(Exit::Usage, text).hint("check --config or LONGSHORE_CONFIG"))
        })?;
        let mut added = Added::default();
        let mut faults = Vec::new();
        match file::read(&text) {
            Ok(settings) => {
                for setting in settings {
                    match self.words(&setting) {
                        Ok((argument, words)) => {
                            if !self.is_overruled(argument) {
                                let origin = format!("{shown}:{}", setting.at.line);
                                added.origins.extend(argument.get_long().map(|it| (it.to_owned(), origin)));
                                added.words.extend(words.into_iter().map(OsString::from));
                            }
                        }
                        Err(fault) => faults.push(fault),
                    }
                }
            }
            Err(fault) => faults.push(fault),
        }
        if faults.is_empty() {
            return Ok(added);
        }
        for Fault { at, code, text } in &faults {
            screen::paragraph(&format!("{shown}:{at}: {code}: {text}"));
        }
        let count = if faults.len() == 1 { "a fault".to_owned() } else { format!("{} faults", faults.len()) };
        let hint = format!("see 'longshore {} --help'", self.verb.get_name());
        Err(Wrong::File(Failure::new(Exit::Usage, format!("the settings file has {count}")).hint(hint)))
    }

    /// The flag that a setting stands for, and what would be written on a command line for it.
    fn words(&self, setting: &Setting) -> Result<(&Arg, Vec<String>), Fault> {
        let Some(argument) = settable(self.verb).find(|argument| key_of(argument) == setting.key) else {
            return Err(fault(setting.at, "unknown_field", self.unknown(&setting.key)));
        };
        let flag = format!("--{}", argument.get_long().unwrap_or_default());
        let words = match (argument.get_action(), &setting.value) {
            (ArgAction::SetTrue, Value::Word(word)) if word == "true" => vec![flag],
            (ArgAction::SetTrue, Value::Word(word)) if word == "false" => Vec::new(),
            (ArgAction::SetTrue, _) => {
                return Err(fault(setting.value_at, "invalid_value", "it is true or false"));
            }
            (_, Value::Word(word)) => vec![format!("{flag}={word}")],
            (ArgAction::Append, Value::List(list)) => list.iter().map(|it| format!("{flag}={it}")).collect(),
            (_, Value::List(_)) => {
                return Err(fault(setting.value_at, "invalid_value", "it is one word, no list"));
            }
        };
        self.check(&words).map_err(|why| fault(setting.value_at, "invalid_value", why))?;
        Ok((argument, words))
    }

    fn unknown(&self, key: &str) -> String {
        let keys = settable(self.verb).map(key_of);
        let near = keys
            .map(|known| (strsim::jaro_winkler(key, &known), known))
            .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
            .max_by(|one, other| one.0.total_cmp(&other.0));
        let hint = near.map_or_else(String::new, |(_, known)| format!("; did you mean \"{known}\"?"));
        let key: String = key.escape_debug().take(SHOWN_CHARS_MAX).collect();
        format!("there is no setting \"{key}\"{hint}")
    }

    /// Whether a command line takes this, and nothing else.
    fn check(&self, words: &[String]) -> Result<(), String> {
        let without_variables = |verb: Command| verb.mut_args(|argument| argument.env(Resettable::Reset));
        let program = self.program.clone().mut_subcommand(self.verb.get_name(), without_variables);
        let line = [self.program.get_name(), self.verb.get_name()].into_iter();
        let error = match program.try_get_matches_from(line.chain(words.iter().map(String::as_str))) {
            Ok(_) => return Ok(()),
            Err(error) => error.to_string(),
        };
        let told = error.lines().map(str::trim).filter(|line| !line.is_empty());
        let told: Vec<&str> = told.take_while(|line| !line.starts_with("For more information")).collect();
        Err(told.join("; ").trim_start_matches("error: ").to_owned())
    }

    /// Whether a flag or a variable says this already, or something that cannot go with it.
    fn is_overruled(&self, argument: &Arg) -> bool {
        let contradicts = |one: &Arg, other: &Arg| {
            self.verb.get_arg_conflicts_with(one).iter().any(|it| it.get_id() == other.get_id())
        };
        self.is_given(argument)
            || self.verb.get_arguments().any(|other| {
                self.is_on(other) && (contradicts(argument, other) || contradicts(other, argument))
            })
    }

    /// Whether a flag or a variable gives it, be it as a switch that is off.
    fn is_given(&self, argument: &Arg) -> bool {
        self.is_on(argument) || is_switched_off(argument)
    }

    fn is_on(&self, argument: &Arg) -> bool {
        let source = self.given.value_source(argument.get_id().as_str());
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    }
}

/// Takes the variables of these flags away, as if nobody had spoken of them.
fn without_variables(program: &Command, of: &dyn Fn(&Arg) -> bool) -> Command {
    let verbs: Vec<String> = program.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let forget = |argument: Arg| if of(&argument) { argument.env(Resettable::Reset) } else { argument };
    verbs
        .iter()
        .fold(program.clone(), |program, verb| program.mut_subcommand(verb, |verb| verb.mut_args(forget)))
}

/// A variable without a value says nothing: compose passes on so what is not set.
fn is_empty(argument: &Arg) -> bool {
    argument.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty())
}

/// Whether a job is followed by 'longshore run', and only a variable says how results are written.
fn shows_output(matches: &ArgMatches) -> bool {
    matches.subcommand_matches("run").is_some_and(|run| {
        run.get_flag("follow") && run.value_source("format") == Some(ValueSource::EnvVariable)
    })
}

/// A switch that is off contradicts nothing.
fn is_switched_off(argument: &Arg) -> bool {
    let is_switch = matches!(argument.get_action(), ArgAction::SetTrue);
    is_switch && argument.get_env().and_then(std::env::var_os).is_some_and(|value| value == "false")
}

/// The flags that a file may give.
fn settable(verb: &Command) -> impl Iterator<Item = &Arg> {
    verb.get_arguments().filter(|argument| argument.get_long().is_some() && argument.get_id() != "config")
}

/// How a flag is called in the file.
fn key_of(argument: &Arg) -> String {
    argument.get_long().unwrap_or_default().replace('-', "_")
}

fn content(path: &Path) -> Result<String, String> {
    // Opening a pipe would wait for its other end.
    if !std::fs::metadata(path).map_err(|error| error.to_string())?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut text = String::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    let read = file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    match read as u64 > BYTES_MAX {
        true => Err(format!("it is larger than {BYTES_MAX} bytes")),
        false => Ok(text),
    }
}

/// Settings are some lines.
const BYTES_MAX: u64 = 64 << 10;
/// Below it a suggestion confuses more than it helps.
const LIKENESS_MIN: f64 = 0.75;
const SHOWN_CHARS_MAX: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_of_the_server_and_of_the_worker_has_its_variable() {
        let program = Program::command();
        for verb in ["server", "worker"] {
            let verb = program.find_subcommand(verb).unwrap();
            for argument in verb.get_arguments() {
                let variable = argument.get_env().map(|it| it.to_string_lossy().into_owned());
                assert!(variable.is_some_and(|it| it.starts_with("LONGSHORE_")), "{argument}");
            }
        }
    }
}
