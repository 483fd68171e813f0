//! Logging of the long-running verbs to standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::failure::{Exit, Failure};

/// The log filter.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoggingArgs {
    /// Log level: error, warn, info, debug or trace; also per module (info,longshore_server=debug).
    #[arg(long, env = "LONGSHORE_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
    /// Form of the log: lines of text for people, or an object of JSON a line for programs
    #[arg(long, env = "LONGSHORE_LOG_FORMAT", value_enum, default_value_t, value_name = "FORMAT")]
    log_format: LogFormat,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    /// Text for people
    #[default]
    Text,
    /// An object of JSON a line: timestamp, level, message, target and the fields of the message
    Json,
}

/// Starts logging to standard error.
pub(crate) fn start(logging: &LoggingArgs) -> anyhow::Result<()> {
    let filter = filter(&logging.log).map_err(|why| {
        Failure::new(Exit::Usage, format!("--log: {why}"))
            .hint("for example info, or info,longshore_server=debug")
    })?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match logging.log_format {
        LogFormat::Text => log
            .with_ansi(crate::screen::stderr_has_colour())
            .with_target(std::io::stderr().is_terminal())
            .try_init(),
        LogFormat::Json => {
            log.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init()
        }
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}

/// Parses the filter. A part without `=` must be a level: the library would take any other word for a module and log nothing else.
fn filter(text: &str) -> Result<EnvFilter, String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return Err("it is empty".to_owned());
    }
    let mut directives = Vec::new();
    for part in parts {
        let directive = match part.rsplit_once('=') {
            // Brackets contain span fields, which have equals signs, too.
            _ if part.contains('[') => part.to_owned(),
            Some((module, level)) => format!("{module}={}", level_of(level)?),
            None => level_of(part)?.to_owned(),
        };
        directives.push(directive);
    }
    EnvFilter::try_new(directives.join(",")).map_err(|error| error.to_string())
}

fn level_of(word: &str) -> Result<&'static str, String> {
    let known = LEVELS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    known
        .map(|(_, level)| *level)
        .ok_or_else(|| format!("{word:?} is not a level: use error, warn, info, debug, trace or off"))
}

/// Accepted names and the library's name of the level.
const LEVELS: [(&str, &str); 7] = [
    ("error", "error"),
    ("warn", "warn"),
    ("warning", "warn"),
    ("info", "info"),
    ("debug", "debug"),
    ("trace", "trace"),
    ("off", "off"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_level_and_a_level_may_be_written_in_full() {
        for (text, expected) in [
            ("info", "info"),
            ("Warning", "warn"),
            ("info, longshore_server=DEBUG", "longshore_server=debug,info"),
            ("warn,longshore_server=warning,", "longshore_server=warn,warn"),
            ("off", "off"),
        ] {
            assert_eq!(filter(text).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn what_would_silence_everything_by_mistake_is_refused() {
        for (text, why) in [
            ("bogus", "\"bogus\" is not a level"),
            ("info,x=loud", "\"loud\""),
            ("", "empty"),
            (" , ", "empty"),
        ] {
            let told = filter(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }
}
