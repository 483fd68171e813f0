//! The variables of OpenTelemetry that a server reads beside those that the library reads itself. A bad value is told in one line; then its
//! default holds, or nothing is exported if the endpoint cannot be used.

use std::time::Duration;

use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};

/// The variables of a server that exports.
#[derive(Debug)]
pub(super) struct Settings {
    /// The endpoint without user, password and query, for the log.
    pub(super) shown_endpoint: String,
    pub(super) sampling: Sampling,
    /// The time for one post.
    pub(super) timeout: Duration,
    /// Ended jobs that may wait for their spans.
    pub(super) jobs_waiting_max: usize,
    /// The wait of the first job for others to be sent with it.
    pub(super) gather: Duration,
    /// Values that are ignored, a sentence each.
    pub(super) warnings: Vec<String>,
}

/// Decides which traces are exported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sampling {
    /// A trace that the submission brought has decided already.
    pub(super) is_parent_based: bool,
    /// The part of all other traces, from 0 to 1.
    pub(super) ratio: f64,
}

/// The reason for which nothing is exported although an endpoint is set.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unusable(pub(super) String);

/// Reads the variables; `None` if no endpoint is set, or traces are switched off.
///
/// # Errors
/// The endpoint or the protocol cannot be used.
pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Settings>, Unusable> {
    let Some((endpoint_variable, endpoint)) = super::endpoint(&variable) else { return Ok(None) };
    let mut warnings = Vec::new();
    match variable("OTEL_SDK_DISABLED").map(|value| value.to_ascii_lowercase()).as_deref() {
        Some("true") => return Ok(None),
        None | Some("false") => {}
        Some(other) => {
            warnings.push(format!("OTEL_SDK_DISABLED is {other:?}: only true switches traces off"))
        }
    }
    if let Some(exporters) = variable("OTEL_TRACES_EXPORTER") {
        if exporters == "none" {
            return Ok(None);
        }
        if exporters.split(',').all(|exporter| exporter.trim() != "otlp") {
            let why = format!("OTEL_TRACES_EXPORTER is {exporters:?}: a server has the exporter otlp only");
            return Err(Unusable(why));
        }
    }
    let either = |name: &str| {
        let names = [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
        names.into_iter().find_map(|name| variable(&name).map(|value| (name, value)))
    };
    if let Some((name, protocol)) = either("PROTOCOL").filter(|(_, protocol)| protocol != "http/protobuf") {
        let why = format!(
            "{name} is {protocol:?}: a server speaks http/protobuf only, at most collectors on port 4318"
        );
        return Err(Unusable(why));
    }
    let url = Url::parse(&endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(url) = url.filter(|url| url.host().is_some()) else {
        return Err(Unusable(format!("{endpoint_variable} is not an http or https URL")));
    };
    if let Some((name, compression)) = either("COMPRESSION").filter(|(_, value)| value != "none") {
        warnings.push(format!("{name} is {compression:?}: spans are sent without compression"));
    }
    let mut number = |given: Option<(String, String)>, default: u64| {
        let Some((name, value)) = given else { return default };
        value.parse().ok().filter(|number| (1..=NUMBER_MAX).contains(number)).unwrap_or_else(|| {
            let wrong = format!("{name} is {value:?}, not a number from 1 to {NUMBER_MAX}");
            warnings.push(format!("{wrong}: {default} is used"));
            default
        })
    };
    let named = |name: &str| variable(name).map(|value| (name.to_owned(), value));
    let timeout = Duration::from_millis(number(either("TIMEOUT"), TIMEOUT_MS));
    let gather = Duration::from_millis(number(named("OTEL_BSP_SCHEDULE_DELAY"), GATHER_MS));
    let jobs_waiting_max = number(named("OTEL_BSP_MAX_QUEUE_SIZE"), JOBS_WAITING_MAX);
    let jobs_waiting_max = usize::try_from(jobs_waiting_max).unwrap_or(usize::MAX);
    if let Some((name, headers)) = either("HEADERS").filter(|(_, headers)| !are_pairs(headers, is_header)) {
        // A header may hold a token: the value is not shown.
        let count = headers.split(',').count();
        warnings.push(format!("{name}: of {count} entries some are no name=value of a header, and left out"));
    }
    if variable(RESOURCE).is_some_and(|attributes| !are_pairs(&attributes, |_, _| true)) {
        warnings.push(format!("{RESOURCE}: entries without = are left out"));
    }
    let sampling = sampling(&variable, &mut warnings);
    let shown_endpoint = shown(&url);
    Ok(Some(Settings { shown_endpoint, sampling, timeout, jobs_waiting_max, gather, warnings }))
}

/// The sampler by its name in the standard.
fn sampling(variable: impl Fn(&str) -> Option<String>, warnings: &mut Vec<String>) -> Sampling {
    let name = variable(SAMPLER).unwrap_or_else(|| DEFAULT_SAMPLER.to_owned());
    let (is_parent_based, root) = match name.strip_prefix("parentbased_") {
        Some(root) => (true, root),
        None => (false, name.as_str()),
    };
    let ratio = match root {
        "always_on" => 1.0,
        "always_off" => 0.0,
        "traceidratio" => {
            let given = variable(SAMPLER_ARG);
            let ratio = given.as_ref().and_then(|ratio| ratio.parse().ok());
            ratio.filter(|ratio| (0.0..=1.0).contains(ratio)).unwrap_or_else(|| {
                let given = given.map_or_else(|| "not set".to_owned(), |given| format!("{given:?}"));
                let wrong = format!("{SAMPLER_ARG} is {given}, not a ratio from 0 to 1");
                warnings.push(format!("{wrong}: all traces are exported"));
                1.0
            })
        }
        _ => {
            let wrong = format!("{SAMPLER} is {name:?}, which a server does not have");
            warnings.push(format!("{wrong}: {DEFAULT_SAMPLER} is used"));
            return Sampling { is_parent_based: true, ratio: 1.0 };
        }
    };
    Sampling { is_parent_based, ratio }
}

/// True if every entry of a list `name=value,name=value` is a pair that fits.
fn are_pairs(list: &str, fits: impl Fn(&str, &str) -> bool) -> bool {
    let mut entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries.all(|entry| entry.split_once('=').is_some_and(|(name, value)| fits(name.trim(), value.trim())))
}

fn is_header(name: &str, value: &str) -> bool {
    HeaderName::try_from(name).is_ok() && HeaderValue::try_from(value).is_ok()
}

/// A URL without what may be secret in it.
fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
const DEFAULT_SAMPLER: &str = "parentbased_always_on";
/// The standard's.
const TIMEOUT_MS: u64 = 10_000;
/// Shorter than the standard's five seconds: people look at a job when it has ended.
const GATHER_MS: u64 = 1_000;
/// At 8 bytes each.
const JOBS_WAITING_MAX: u64 = 100_000;
/// Ten million: above that a queue takes too much memory, and a time is hours.
const NUMBER_MAX: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Result<Option<Settings>, Unusable> {
        let pairs: Vec<_> = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")]
            .iter()
            .chain(pairs)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        read(move |name| pairs.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone()))
    }

    #[test]
    fn without_an_endpoint_or_with_traces_off_there_is_nothing() {
        assert!(matches!(read(|_| None), Ok(None)));
        for off in [("OTEL_SDK_DISABLED", "True"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert!(matches!(settings(&[off]), Ok(None)), "{off:?}");
        }
        let plain = settings(&[]).unwrap().unwrap();
        assert!(plain.warnings.is_empty(), "{plain:?}");
        assert_eq!((plain.timeout, plain.gather), (Duration::from_secs(10), Duration::from_secs(1)));
        assert_eq!(plain.jobs_waiting_max, 100_000);
    }

    #[test]
    fn an_endpoint_that_cannot_be_used_is_told_without_its_value() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "localhost:4318"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://planted"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "planted secret"),
        ] {
            let Unusable(why) = settings(&[(name, value)]).unwrap_err();
            assert!(why.contains(name) && !why.contains("planted"), "{why}");
        }
        for (name, value) in [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_TRACES_EXPORTER", "console")] {
            let Unusable(why) = settings(&[(name, value)]).unwrap_err();
            assert!(why.contains(name) && why.contains(value), "{why}");
        }
        let secret = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://u:planted@c.example/v1?key=planted")];
        assert_eq!(settings(&secret).unwrap().unwrap().shown_endpoint, "https://c.example/v1");
    }

    #[test]
    fn a_bad_value_is_told_and_its_default_holds() {
        for (name, value) in [
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ("OTEL_BSP_SCHEDULE_DELAY", "-1"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b,planted"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment"),
            ("OTEL_SDK_DISABLED", "yes"),
        ] {
            let read = settings(&[(name, value)]).unwrap().unwrap();
            let [warning] = read.warnings.as_slice() else { panic!("{name}: {read:?}") };
            assert!(warning.contains(name) && !warning.contains("planted"), "{warning}");
        }
    }

    #[test]
    fn a_sampler_is_chosen_by_its_name_and_its_ratio() {
        for (name, ratio, expected) in [
            ("always_on", None, (false, 1.0)),
            ("traceidratio", Some("0.25"), (false, 0.25)),
            ("parentbased_traceidratio", Some("0"), (true, 0.0)),
            ("parentbased_always_off", None, (true, 0.0)),
            ("parentbased_always_on", None, (true, 1.0)),
        ] {
            let arg = ("OTEL_TRACES_SAMPLER_ARG", ratio.unwrap_or_default());
            let read = settings(&[("OTEL_TRACES_SAMPLER", name), arg]).unwrap().unwrap();
            assert_eq!((read.sampling.is_parent_based, read.sampling.ratio), expected);
            assert!(read.warnings.is_empty(), "{read:?}");
        }
        for ratio in ["1.5", "half", "NaN"] {
            let pairs = [("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", ratio)];
            let read = settings(&pairs).unwrap().unwrap();
            assert_eq!(read.sampling, Sampling { is_parent_based: false, ratio: 1.0 });
            assert_eq!(read.warnings.len(), 1, "{read:?}");
        }
    }
}
