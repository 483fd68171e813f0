//! Settings of `server` and `worker`: flags first, then `LONGSHORE_*` variables, then a settings file.
//!
//! The keys of the file are the long flags with underscores. The command line parser knows the flags, so there is no second list: each
//! setting that is not given elsewhere is inserted into the command line as an argument.

mod file;
mod variables;

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Parser};

use crate::failure::{Exit, Failure};
use crate::screen::Format;
use file::{Fault, Setting, Value, fault};
use variables::{checks_service, is_empty, is_switched_off, shows_output, without_variables};

/// The settings file.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Settings {
    /// YAML file with settings for what neither a flag nor a variable gives. Its keys are the long flags, with underscores.
    #[arg(long, env = "LONGSHORE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[arg(skip)]
    overridden: Vec<Overridden>,
}

impl Settings {
    /// Logs the path of the settings file, and which of its settings have no effect.
    pub(crate) fn log_source(&self) {
        if let Some(file) = &self.config {
            tracing::info!(file = %file.display(), "settings file in use; flags and variables override it");
        }
        for Overridden { at, setting, by } in &self.overridden {
            tracing::warn!(
                %at, %setting, %by,
                "a setting of the file has no effect, because a flag or variable overrides it; flags of a unit are changed by systemctl edit"
            );
        }
    }

    /// Keeps the settings that have no effect for [`Self::log_source`].
    pub(crate) fn set_overridden(&mut self, overridden: Vec<Overridden>) {
        self.overridden = overridden;
    }
}

/// A setting of the file to which a flag or a variable gives another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overridden {
    /// File and line.
    at: String,
    setting: String,
    /// The flag or the variable with its value.
    by: String,
}

/// The command line cannot be parsed.
#[derive(Debug)]
pub(crate) enum ParseError {
    /// The command line itself is wrong, or asks for help.
    CommandLine(clap::Error),
    /// The settings file is wrong.
    File(Failure),
}

impl From<clap::Error> for ParseError {
    fn from(error: clap::Error) -> Self {
        Self::CommandLine(error)
    }
}

/// Flags whose values are not from the command line, each with its variable or its line in the file.
#[derive(Debug, Default)]
pub(crate) struct ValueOrigins(Vec<(String, String)>);

impl ValueOrigins {
    /// The origin of the value that an error is about, if the error begins with a flag and does not name the origin.
    pub(crate) fn of(&self, error: &str) -> Option<&str> {
        let flag = error.strip_prefix("--")?.split([':', ' ']).next()?;
        let origin = self.0.iter().find(|(known, _)| known == flag).map(|(_, origin)| origin.as_str());
        let name = |origin: &str| origin.rsplit(' ').next().unwrap_or_default().to_owned();
        origin.filter(|origin| !error.contains(&name(origin)))
    }
}

/// A parsed command line.
pub(crate) struct Invocation<P> {
    /// The verb with its flags.
    pub(crate) program: P,
    /// The origins of values that are not from the command line.
    pub(crate) origins: ValueOrigins,
    /// Settings of the file that have no effect.
    pub(crate) overridden: Vec<Overridden>,
    /// Output format of the verb, also for its error.
    pub(crate) format: Format,
}

/// Parses a command line, and the settings file that it names.
///
/// # Errors
/// See [`ParseError`].
pub(crate) fn parse<P: Parser>(
    words: impl IntoIterator<Item = OsString>,
) -> Result<Invocation<P>, ParseError> {
    parse_as(without_variables(&P::command(), &is_empty), words)
}

/// As [`parse`], as if no variable were set: a service does not have those of the shell.
///
/// # Errors
/// See [`ParseError`].
pub(crate) fn parse_without_variables<P: Parser>(
    words: impl IntoIterator<Item = OsString>,
) -> Result<Invocation<P>, ParseError> {
    parse_as(without_variables(&P::command(), &|_| true), words)
}

fn parse_as<P: Parser>(
    known: Command,
    words: impl IntoIterator<Item = OsString>,
) -> Result<Invocation<P>, ParseError> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let mut command = without_variables(&known, &is_switched_off);
    let mut matches = command.clone().try_get_matches_from(&words)?;
    if shows_output(&matches) {
        // `--follow` prints job output, so the variable for the output format does not apply.
        command = without_variables(&command, &|argument| argument.get_id() == "format");
        matches = command.clone().try_get_matches_from(&words)?;
    }
    if checks_service(&matches) {
        command = without_variables(&command, &|argument| argument.get_id() != "format");
        matches = command.clone().try_get_matches_from(&words)?;
    }
    let mut origins = ValueOrigins::default();
    let mut overridden = Vec::new();
    if let Some((verb, given)) = matches.subcommand()
        && let Some(verb) = known.find_subcommand(verb)
    {
        origins = variables(verb, given, Vec::new());
        // The settings are those of `worker`, not of `worker join`.
        if let Some(path) = path(given).filter(|_| given.subcommand().is_none()) {
            let found = Found { program: &known, verb, given, path }.read()?;
            origins.0.extend(found.origins);
            overridden = found.overridden;
            // After the names of the program and of the verb.
            words.splice(2..2, found.words);
            matches = command.try_get_matches_from(&words)?;
        }
    }
    let format = matches.subcommand().map(|(_, given)| format(given)).unwrap_or_default();
    Ok(Invocation { program: P::from_arg_matches(&matches)?, origins, overridden, format })
}

/// The format of errors, by the format that was asked for: of `token` or of `token ls`.
fn format(given: &ArgMatches) -> Format {
    // A verb without this flag is no error.
    let own = given.try_get_one("format").ok().flatten().copied();
    own.or_else(|| given.subcommand().map(|(_, inner)| format(inner))).unwrap_or_default()
}

fn path(given: &ArgMatches) -> Option<&PathBuf> {
    given.try_get_one("config").ok().flatten()
}

/// The flags whose values come from variables, also those of a verb within this one.
fn variables(verb: &Command, given: &ArgMatches, outer: Vec<(String, String)>) -> ValueOrigins {
    let of_variable = |argument: &Arg| {
        let is = given.value_source(argument.get_id().as_str()) == Some(ValueSource::EnvVariable);
        let origin = format!("the environment variable {}", argument.get_env()?.to_string_lossy());
        is.then_some((argument.get_long()?.to_owned(), origin))
    };
    let all = outer.into_iter().chain(verb.get_arguments().filter_map(of_variable)).collect();
    match given.subcommand().and_then(|(name, inner)| Some((verb.find_subcommand(name)?, inner))) {
        Some((verb, inner)) => variables(verb, inner, all),
        None => ValueOrigins(all),
    }
}

/// A settings file, and the command line that names it.
struct Found<'c> {
    program: &'c Command,
    verb: &'c Command,
    given: &'c ArgMatches,
    path: &'c Path,
}

/// The arguments and origins that a file adds.
#[derive(Default)]
struct FileArguments {
    words: Vec<OsString>,
    origins: Vec<(String, String)>,
    overridden: Vec<Overridden>,
}

impl Found<'_> {
    /// Reads the file. The error has all its faults.
    fn read(&self) -> Result<FileArguments, ParseError> {
        let shown = self.path.display();
        let text = content(self.path).map_err(|why| {
            let text = format!("cannot read the settings file {shown}: {why}");
            ParseError::File(Failure::new(Exit::Usage, text).hint("check --config or LONGSHORE_CONFIG"))
        })?;
        let mut added = FileArguments::default();
        let file::Parsed { settings, mut faults } = file::read(&text);
        for setting in settings {
            match self.words(&setting) {
                Ok((argument, words)) => {
                    let origin = format!("{shown}:{}", setting.at.line);
                    if self.is_overruled(argument) {
                        added.overridden.extend(self.overridden(argument, &setting, origin));
                    } else {
                        added.origins.extend(argument.get_long().map(|it| (it.to_owned(), origin)));
                        added.words.extend(words.into_iter().map(OsString::from));
                    }
                }
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() {
            return Ok(added);
        }
        faults.sort_by_key(|fault| fault.at);
        let count = if faults.len() == 1 { "a fault".to_owned() } else { format!("{} faults", faults.len()) };
        let hint = format!("see 'longshore {} --help'", self.verb.get_name());
        let failure = Failure::new(Exit::Usage, format!("the settings file has {count}")).hint(hint);
        let line = |Fault { at, code, text }: &Fault| format!("{shown}:{at}: {code}: {text}");
        Err(ParseError::File(failure.with_faults(faults.iter().map(line).collect())))
    }

    /// The flag of a setting, and the arguments that it stands for.
    fn words(&self, setting: &Setting) -> Result<(&Arg, Vec<String>), Fault> {
        let Some(argument) = settable(self.verb).find(|argument| key_of(argument) == setting.key) else {
            return Err(fault(setting.at, "unknown_field", self.unknown(&setting.key)));
        };
        let flag = format!("--{}", argument.get_long().unwrap_or_default());
        let words = match (argument.get_action(), &setting.value) {
            (ArgAction::SetTrue, Value::Scalar(word)) if word == "true" => vec![flag],
            (ArgAction::SetTrue, Value::Scalar(word)) if word == "false" => Vec::new(),
            (ArgAction::SetTrue, _) => {
                return Err(fault(setting.value_at, "invalid_value", "must be true or false"));
            }
            (_, Value::Scalar(word)) => vec![format!("{flag}={word}")],
            (ArgAction::Append, Value::List(list)) => list.iter().map(|it| format!("{flag}={it}")).collect(),
            (_, Value::List(_)) => {
                return Err(fault(setting.value_at, "invalid_value", "must be a single value, not a list"));
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

    /// Checks that the command line parser accepts these arguments.
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

    /// Returns true if a flag or variable gives the setting, or one that conflicts with it.
    fn is_overruled(&self, argument: &Arg) -> bool {
        self.is_given(argument) || self.rival(argument).is_some()
    }

    /// A given flag or variable that conflicts with the setting.
    fn rival(&self, argument: &Arg) -> Option<&Arg> {
        let contradicts = |one: &Arg, other: &Arg| {
            self.verb.get_arg_conflicts_with(one).iter().any(|it| it.get_id() == other.get_id())
        };
        self.verb
            .get_arguments()
            .find(|other| self.is_on(other) && (contradicts(argument, other) || contradicts(other, argument)))
    }

    /// The setting with what is used in its place; `None` if both are the same.
    fn overridden(&self, argument: &Arg, setting: &Setting, at: String) -> Option<Overridden> {
        let is_given = self.is_given(argument);
        let by = if is_given { argument } else { self.rival(argument)? };
        let wanted = setting.value.to_string();
        let used = self.used(by);
        let is_off = matches!(argument.get_action(), ArgAction::SetTrue) && wanted == "false";
        if !is_given && is_off {
            return None;
        }
        (!is_given || used != wanted).then(|| Overridden {
            at,
            setting: format!("{}: {wanted}", setting.key),
            by: match by.get_env().filter(|_| !self.is_of_flag(by)) {
                Some(variable) => format!("{}={used}", variable.to_string_lossy()),
                None if matches!(by.get_action(), ArgAction::SetTrue) => {
                    format!("--{}", by.get_long().unwrap_or_default())
                }
                None => format!("--{}={used}", by.get_long().unwrap_or_default()),
            },
        })
    }

    /// The text that a flag or variable gives.
    fn used(&self, argument: &Arg) -> String {
        if is_switched_off(argument) && !self.is_on(argument) {
            return "false".to_owned();
        }
        let values = self.given.get_raw(argument.get_id().as_str()).into_iter().flatten();
        values.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(",")
    }

    fn is_of_flag(&self, argument: &Arg) -> bool {
        self.given.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine)
    }

    /// Returns true if a flag or variable gives it, including a switch that is set to false.
    fn is_given(&self, argument: &Arg) -> bool {
        self.is_on(argument) || is_switched_off(argument)
    }

    fn is_on(&self, argument: &Arg) -> bool {
        let source = self.given.value_source(argument.get_id().as_str());
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    }
}

/// The flags that a file may set.
fn settable(verb: &Command) -> impl Iterator<Item = &Arg> {
    verb.get_arguments().filter(|argument| argument.get_long().is_some() && argument.get_id() != "config")
}

/// The key of a flag in the file.
fn key_of(argument: &Arg) -> String {
    argument.get_long().unwrap_or_default().replace('-', "_")
}

fn content(path: &Path) -> Result<String, String> {
    // Opening a pipe would wait for its writer.
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

/// A settings file has a few lines.
const BYTES_MAX: u64 = 64 << 10;
/// Less similar names are not suggested.
const LIKENESS_MIN: f64 = 0.75;
const SHOWN_CHARS_MAX: usize = 80;
