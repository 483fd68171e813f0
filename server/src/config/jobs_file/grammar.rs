//! What single values must look like: pure functions from text to a value, or to what is wrong with it.

use std::time::Duration;

use jiff::SpanRelativeTo;
use jiff::fmt::friendly::SpanParser;

use super::fault::{Code, quoted};

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct Wrong {
    pub(in crate::config) code: Code,
    /// The input as it is to be shown before the text, if it is.
    pub(in crate::config) input: Option<String>,
    pub(in crate::config) text: String,
}

impl Wrong {
    pub(super) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, input: None, text: text.into() }
    }

    /// The text goes on after the quoted input: `"x"` … `is not y`.
    pub(super) fn input(code: Code, input: &str, text: impl Into<String>) -> Self {
        Self { code, input: Some(input.to_owned()), text: text.into() }
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.input {
            Some(input) => write!(f, "{} {}", quoted(input), self.text),
            None => f.write_str(&self.text),
        }
    }
}

type Checked<T> = Result<T, Wrong>;

/// The name of a job.
pub(super) fn job_name(text: &str) -> Checked<()> {
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let rest = bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte));
    if first && rest && text.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    Err(Wrong::input(Code::InvalidName, text, "is not a job name: [a-z0-9][a-z0-9._-]{0,62}"))
}

/// The name of a variable that a job may be given.
pub(super) fn env_name(text: &str) -> Checked<()> {
    if !is_variable_name(text) {
        let form = "is not a name for a variable: [A-Za-z_][A-Za-z0-9_]{0,127}";
        return Err(Wrong::input(Code::InvalidEnvName, text, form));
    }
    if text.starts_with("LONGSHORE_") {
        let reason = "is reserved: Longshore sets the variables LONGSHORE_* itself";
        return Err(Wrong::input(Code::ReservedName, text, reason));
    }
    Ok(())
}

/// The value of such a variable. The message never repeats it.
pub(super) fn env_value(text: &str) -> Checked<()> {
    if text.contains(['\n', '\r']) {
        let text = "a value must not contain a line break; mount a file, or encode the value as base64";
        return Err(Wrong::new(Code::EnvNewlineUnsupported, text));
    }
    at_most(text, ENV_VALUE_BYTES_MAX)
}

pub(super) fn is_variable_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && text.len() <= 128
}

pub(super) fn at_most(text: &str, bytes_max: usize) -> Checked<()> {
    if text.len() <= bytes_max {
        return Ok(());
    }
    Err(Wrong::new(Code::TooLong, format!("{} bytes are too long (max {bytes_max})", text.len())))
}

/// An image reference: `[registry[:port]/]name[:tag][@digest]`.
pub(super) fn image(text: &str) -> Checked<()> {
    let wrong = |reason: &str| Err(Wrong::input(Code::InvalidImage, text, reason));
    if text.starts_with('-') {
        return wrong("must not start with \"-\"");
    }
    if text.chars().count() > IMAGE_CHARS_MAX {
        return Err(Wrong::new(
            Code::TooLong,
            format!("the image reference is too long (max {IMAGE_CHARS_MAX})"),
        ));
    }
    if is_image(text) {
        return Ok(());
    }
    wrong("is not [registry[:port]/]name[:tag][@digest] with a name in lower case")
}

fn is_image(text: &str) -> bool {
    let (text, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
    let last_part = text.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match text[last_part..].find(':') {
        Some(colon) => (&text[..last_part + colon], Some(&text[last_part + colon + 1..])),
        None => (text, None),
    };
    let path = match name.split_once('/') {
        Some((registry, path))
            if registry == "localhost" || registry.contains(['.', ':']) || has_upper(registry) =>
        {
            if !is_registry(registry) {
                return false;
            }
            path
        }
        _ => name,
    };
    path.split('/').all(is_image_part) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)
}

fn has_upper(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn is_registry(text: &str) -> bool {
    let (host, port) = text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.split('.').all(label)
        && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

/// Words of lower-case letters and digits, joined by one dot, one or two underscores, or hyphens.
fn is_image_part(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let framed = bytes.first().copied().is_some_and(is_word) && bytes.last().copied().is_some_and(is_word);
    framed
        && text
            .split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            .all(|joint| matches!(joint, "" | "." | "_" | "__") || joint.bytes().all(|byte| byte == b'-'))
}

fn is_tag(text: &str) -> bool {
    text.len() <= 128
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let is_algorithm = !algorithm.is_empty()
        && algorithm.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && algorithm.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+._-".contains(&byte));
    is_algorithm && hex.len() >= 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A duration between two limits, in whole milliseconds: `90s`, `1h30m`, `2 days`.
pub(in crate::config) fn duration(text: &str, from: Duration, to: Duration) -> Checked<Duration> {
    let limits = || format!("{} to {}", Shown(from), Shown(to));
    let wrong = || {
        let hint = if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
            "give it a unit, such as 90s"
        } else {
            "write 90s, 1h30m or 2 days"
        };
        Wrong::input(Code::InvalidDuration, text, format!("is not a duration from {}; {hint}", limits()))
    };
    let span = SpanParser::new().parse_span(text).map_err(|_| wrong())?;
    let exact = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    let duration = Duration::try_from(exact).map_err(|_| wrong())?;
    if duration < from || duration > to {
        return Err(Wrong::input(Code::InvalidDuration, text, format!("is not within {}", limits())));
    }
    Ok(Duration::new(duration.as_secs(), duration.subsec_millis() * 1_000_000))
}

/// A size in bytes, not below `from` and not above `to`: `512m`, `1g`, `1048576`. A kibibyte is `k`, `kb` or `kib`.
pub(super) fn size(text: &str, from: u64, to: u64) -> Checked<u64> {
    let wrong = || {
        let limits = format!("(min {}, max {})", bytes(from), bytes(to));
        Wrong::input(Code::InvalidSize, text, format!("is not a size such as 512m or 2g {limits}"))
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let amount: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = text[digits..].trim_start().to_ascii_lowercase();
    let power = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        _ => return Err(wrong()),
    };
    amount.checked_mul(1024_u64.pow(power)).filter(|size| (from..=to).contains(size)).ok_or_else(wrong)
}

/// A size as it is written in the file.
pub(super) fn bytes(size: u64) -> String {
    let units = [(1_u64 << 40, "t"), (1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")];
    match units.iter().find(|(unit, _)| size >= *unit && size.is_multiple_of(*unit)) {
        Some((unit, letter)) => format!("{}{letter}", size / unit),
        None => size.to_string(),
    }
}

/// A decimal number as thousandths: `0.5` is 500. At most three decimals.
pub(super) fn thousandths(text: &str, from: u32, to: u32) -> Checked<u32> {
    let wrong = || {
        let (from, to) = (f64::from(from) / 1000.0, f64::from(to) / 1000.0);
        let form = format!("is not a number from {from} to {to} with at most three decimals");
        Wrong::input(Code::OutOfRange, text, form)
    };
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty()
        || !is_digits(whole)
        || !is_digits(decimals)
        || decimals.len() > 3
        || text.ends_with('.')
    {
        return Err(wrong());
    }
    let amount = format!("{whole}{decimals:0<3}").parse().map_err(|_| wrong())?;
    if (from..=to).contains(&amount) { Ok(amount) } else { Err(wrong()) }
}

/// Words as a shell would see them. Nothing is expanded, and no shell ever runs.
pub(super) fn words(text: &str) -> Checked<Vec<String>> {
    shell_words::split(text).map_err(|_| {
        let text = match open_quote(text) {
            Some((quote, offset)) => format!("the quote {quote} at character {} is never closed", offset + 1),
            None => "a backslash at the end has nothing to escape".to_owned(),
        };
        Wrong::new(Code::BadQuoting, text)
    })
}

/// The quote that is open at the end, and at which character it was opened.
fn open_quote(text: &str) -> Option<(char, usize)> {
    let mut open = None;
    let mut escaped = false;
    for (offset, c) in text.chars().enumerate() {
        match (open, c) {
            _ if escaped => escaped = false,
            (None | Some(('"', _)), '\\') => escaped = true,
            (None, '"' | '\'') => open = Some((c, offset)),
            (Some((quote, _)), _) if quote == c => open = None,
            _ => {}
        }
    }
    open
}

/// `user[:group]`, by name or number.
pub(super) fn user(text: &str) -> Checked<()> {
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with(['-', '.'])
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    matches_form(
        text,
        text.split(':').count() <= 2 && text.split(':').all(is_name),
        "user or user:group, by name or number",
    )
}

/// An absolute path inside of a container.
pub(super) fn path(text: &str) -> Checked<()> {
    let fits = text.starts_with('/') && !text.chars().any(char::is_control) && text.len() <= PATH_BYTES_MAX;
    matches_form(text, fits, "an absolute path, such as /srv/data")
}

/// The name of a network.
pub(super) fn network(text: &str) -> Checked<()> {
    matches_form(text, is_docker_name(text), "the name of a network, such as bridge, none or host")
}

/// `os/arch[/variant]`.
pub(super) fn platform(text: &str) -> Checked<()> {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let fits = (2..=3).contains(&text.split('/').count()) && text.split('/').all(is_part) && text.len() <= 64;
    matches_form(text, fits, "os/arch or os/arch/variant, such as linux/arm64")
}

/// `SIGTERM`, `TERM`, `SIGRTMIN+3` or a number.
pub(super) fn signal(text: &str) -> Checked<()> {
    let by_number = text.parse::<u8>().is_ok_and(|number| (1..=64).contains(&number));
    let by_name = text.bytes().next().is_some_and(|byte| byte.is_ascii_uppercase())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"+-".contains(&byte))
        && text.len() <= 16;
    matches_form(text, by_number || by_name, "a signal, such as SIGINT or 2")
}

/// A capability, as Docker names it: without `CAP_`.
pub(super) fn capability(text: &str) -> Checked<String> {
    let name = text.strip_prefix("CAP_").unwrap_or(text);
    let fits = !name.is_empty()
        && name.len() <= 32
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    matches_form(text, fits, "a capability in capitals, such as NET_BIND_SERVICE or ALL")?;
    Ok(name.to_owned())
}

/// A path and, after a colon, options for a memory file system.
pub(super) fn tmpfs(text: &str) -> Checked<()> {
    let (mount, options) = text.split_once(':').unwrap_or((text, ""));
    path(mount)?;
    let fits = options.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"=,.%_-".contains(&byte));
    matches_form(text, fits, "a path with options, such as /tmp:size=64m,mode=1777")
}

pub(super) fn is_docker_name(text: &str) -> bool {
    text.len() <= 255
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Whether a literal looks like a key or a token of a well-known service.
pub(super) fn looks_like_secret(text: &str) -> bool {
    let long_enough = text.len() >= 20 && !text.contains(char::is_whitespace);
    long_enough && SECRET_PREFIXES.iter().any(|prefix| text.starts_with(prefix))
}

fn matches_form(text: &str, fits: bool, form: &str) -> Checked<()> {
    if fits { Ok(()) } else { Err(Wrong::input(Code::InvalidValue, text, format!("is not {form}"))) }
}

/// A duration as it is written in the file.
pub(super) struct Shown(pub(super) Duration);

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            0 => write!(f, "{}ms", self.0.as_millis()),
            _ if seconds.is_multiple_of(86_400) => write!(f, "{}d", seconds / 86_400),
            _ if seconds.is_multiple_of(3_600) => write!(f, "{}h", seconds / 3_600),
            _ if seconds.is_multiple_of(60) => write!(f, "{}m", seconds / 60),
            _ => write!(f, "{seconds}s"),
        }
    }
}

const NAME_BYTES_MAX: usize = 63;
const IMAGE_CHARS_MAX: usize = 512;
/// A line of Docker's environment file may hold 64 KiB; half of it leaves room for the name and for Docker's changes of mind.
const ENV_VALUE_BYTES_MAX: usize = 32 * 1024;
/// Linux's PATH_MAX.
pub(super) const PATH_BYTES_MAX: usize = 4096;
const SECRET_PREFIXES: [&str; 12] = [
    "AKIA",
    "ASIA",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "sk_live_",
    "npm_",
    "eyJ",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MONTH: Duration = Duration::from_secs(30 * 86_400);

    #[test]
    fn images_follow_the_grammar_of_docker() {
        let digest = format!("busybox@sha256:{}", "a".repeat(64));
        for good in
            ["busybox", "a/b/c:1.0", "localhost:5000/x:y", "ghcr.io/a__b/c-d.e:T_1", "Reg/x", digest.as_str()]
        {
            assert!(image(good).is_ok(), "{good}");
        }
        for bad in
            ["", "UPPER:Case", "a b", "a//b", "/a", "a/", "a:", "a@sha256:12", "a..b", "-a", "a:b:c", "ä"]
        {
            assert_eq!(image(bad).expect_err(bad).code, Code::InvalidImage, "{bad}");
        }
        assert_eq!(image(&"a".repeat(5000)).expect_err("too long").code, Code::TooLong);
    }

    #[test]
    fn durations_need_a_unit_and_stay_within_limits() {
        for (text, seconds) in
            [("90s", 90), ("1h30m", 5400), ("2 days", 172_800), ("30d", 2_592_000), ("1 hour", 3600)]
        {
            assert_eq!(duration(text, SECOND, MONTH), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in
            ["-5s", "0", "0s", "5 parsecs", "1e99h", "31d", "", "90", "1mo", "99999999999999999999h", "500ms"]
        {
            assert_eq!(duration(bad, SECOND, MONTH).expect_err(bad).code, Code::InvalidDuration, "{bad}");
        }
    }

    #[test]
    fn sizes_count_in_powers_of_1024() {
        for (text, size_bytes) in [("6m", 6 << 20), ("1g", 1 << 30), ("1 GiB", 1 << 30), ("6291456", 6 << 20)]
        {
            assert_eq!(size(text, 6 << 20, 1 << 40), Ok(size_bytes), "{text}");
        }
        for bad in
            ["12 potatoes", "1", "", "m", "-1g", "1.5g", "99999999999999999999", "18446744073709551615t"]
        {
            assert_eq!(size(bad, 6 << 20, 1 << 40).expect_err(bad).code, Code::InvalidSize, "{bad}");
        }
    }

    #[test]
    fn thousandths_keep_three_decimals() {
        assert_eq!(thousandths("0.5", 10, 1_000_000), Ok(500));
        assert_eq!(thousandths("2", 10, 1_000_000), Ok(2000));
        assert_eq!(thousandths("1.125", 10, 1_000_000), Ok(1125));
        for bad in ["", ".", "1.", "1.2345", "-1", "1e3", "0", "99999999999"] {
            assert!(thousandths(bad, 10, 1_000_000).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_open_quote_is_found() {
        assert_eq!(words("echo 'a b' \"c\"").map(|words| words.len()), Ok(3));
        let wrong = words("echo \"a b").expect_err("unbalanced");
        assert_eq!(
            (wrong.code, wrong.text.as_str()),
            (Code::BadQuoting, "the quote \" at character 6 is never closed")
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_a_value_panic(text in "\\PC{0,40}") {
            let _ = (job_name(&text), env_name(&text), image(&text), words(&text), user(&text), path(&text));
            let _ = (duration(&text, SECOND, MONTH), size(&text, 1, 1 << 40), thousandths(&text, 1, 5), tmpfs(&text));
            let _ = (platform(&text), signal(&text), capability(&text), network(&text), looks_like_secret(&text));
        }

        #[test]
        fn whole_seconds_survive_being_written(seconds in 1_u64..2_592_000) {
            let written = Shown(Duration::from_secs(seconds)).to_string();
            prop_assert_eq!(duration(&written, SECOND, MONTH), Ok(Duration::from_secs(seconds)));
        }

        #[test]
        fn sizes_survive_being_written(size_bytes in 1_u64..(1 << 50)) {
            prop_assert_eq!(size(&bytes(size_bytes), 1, 1 << 50), Ok(size_bytes));
        }
    }
}
