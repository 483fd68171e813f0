//! Rules in time of cron and of its relatives: what they may look like, and the rule of jobs.yaml that means the same.
//!
//! Fields are only checked far enough to tell a rule from other text and to name a wrong field. The server's reader judges the result.

use super::draft::Rule;
use super::span;

/// The reason that a text gives no rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoRule {
    /// It is not a rule at all.
    Wrong(String),
    /// It is one, but none that fires by the clock.
    NotByClock(String),
    /// It says that the job runs on request only.
    OnRequest,
}

/// A rule of Go's cron library, which Ofelia, swarm-cronjob and Kubernetes use: five fields, six with seconds first, or a name.
pub(super) fn of_go(text: &str) -> Result<Rule, NoRule> {
    let text = text.trim();
    let zone = ["CRON_TZ=", "TZ="].iter().find_map(|prefix| text.strip_prefix(prefix));
    let (zone, text) = match zone {
        Some(rest) => {
            let (zone, rule) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            (Some(zone.to_owned()), rule.trim())
        }
        None => (None, text),
    };
    if let Some(every) = text.strip_prefix("@every ") {
        let millis = span::of_go(every.trim()).filter(|millis| *millis > 0);
        let wrong =
            || NoRule::Wrong(format!("\"{text}\" is not a rule; write @every with a duration such as 1h30m"));
        return millis.map(Rule::every).ok_or_else(wrong);
    }
    let rule = match text.strip_prefix('@') {
        Some(name) => named(name)?,
        None => of_fields(&text.split_whitespace().collect::<Vec<_>>())?,
    };
    Ok(rule.in_zone(zone))
}

/// The rule after an `@`.
pub(super) fn named(name: &str) -> Result<Rule, NoRule> {
    match name {
        "yearly" | "annually" => Ok(Rule::cron("@yearly")),
        "monthly" | "weekly" | "daily" | "hourly" => Ok(Rule::cron(format!("@{name}"))),
        "midnight" => Ok(Rule::cron("@daily")),
        "every_minute" => Ok(Rule::cron("* * * * *")),
        "every_second" => Ok(Rule::every(1_000)),
        "reboot" => Err(NoRule::NotByClock("@reboot: no rule fires when a machine starts".to_owned())),
        "manual" | "triggered" | "none" => Err(NoRule::OnRequest),
        _ => Err(NoRule::Wrong(format!(
            "\"@{name}\" is not a rule; allowed are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and @reboot"
        ))),
    }
}

/// Five fields, or six with seconds first.
pub(super) fn of_fields(fields: &[&str]) -> Result<Rule, NoRule> {
    let checked = match fields.len() {
        5 => &FIELDS[1..],
        6 => &FIELDS[..],
        count => {
            let text = format!("a rule has five fields, or six with seconds first, and not {count}");
            return Err(NoRule::Wrong(text));
        }
    };
    for (field, known) in fields.iter().zip(checked) {
        known.check(field).map_err(NoRule::Wrong)?;
    }
    // Some cron programs take a question mark for a star; others refuse it.
    let fields: Vec<&str> = fields.iter().map(|field| if *field == "?" { "*" } else { field }).collect();
    Ok(Rule::cron(fields.join(" ")))
}

/// The values that a field may have.
struct Field {
    name: &'static str,
    from: u32,
    to: u32,
    names: &'static [&'static str],
}

impl Field {
    fn check(&self, text: &str) -> Result<(), String> {
        if text.split(',').all(|part| self.is_part(part)) {
            return Ok(());
        }
        let names = match self.names {
            [] => String::new(),
            names => format!(" or {} to {}", names[0], names[names.len() - 1]),
        };
        Err(format!(
            "{} \"{text}\" is not allowed: write *, numbers from {} to {}{names}, ranges such as {}-{}, steps such as */2, joined by commas",
            self.name, self.from, self.to, self.from, self.to
        ))
    }

    /// A value, a range or a star, with a step after it.
    fn is_part(&self, part: &str) -> bool {
        let (values, step) = part.split_once('/').unwrap_or((part, "1"));
        let is_step = step.parse::<u32>().is_ok_and(|step| step > 0);
        let is_values = match values.split_once('-') {
            _ if values == "*" || values == "?" => true,
            Some(("L", days)) => days.parse::<u32>().is_ok(),
            Some((from, to)) => self.is_value(from) && self.is_value(to),
            None => self.is_value(values),
        };
        is_step && is_values
    }

    fn is_value(&self, text: &str) -> bool {
        let is_day = self.name.starts_with("day");
        let (text, _) = text.split_once('#').filter(|_| is_day).unwrap_or((text, ""));
        let text = text.strip_suffix(['L', 'W']).filter(|_| is_day).unwrap_or(text);
        match text.parse::<u32>() {
            Ok(number) => (self.from..=self.to).contains(&number),
            Err(_) => {
                (text.is_empty() && is_day) || self.names.iter().any(|name| name.eq_ignore_ascii_case(text))
            }
        }
    }
}

const FIELDS: [Field; 6] = [
    Field { name: "second", from: 0, to: 59, names: &[] },
    Field { name: "minute", from: 0, to: 59, names: &[] },
    Field { name: "hour", from: 0, to: 23, names: &[] },
    Field { name: "day of the month", from: 1, to: 31, names: &[] },
    Field {
        name: "month",
        from: 1,
        to: 12,
        names: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
    },
    Field {
        name: "day of the week",
        from: 0,
        to: 7,
        names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_go_become_rules_of_jobs_yaml() {
        let zoned = Rule::cron("30 1 * * *").in_zone(Some("Asia/Tokyo".into()));
        for (text, expected) in [
            ("0 0 2 * * *", Rule::cron("0 0 2 * * *")),
            ("*/5 * * * ?", Rule::cron("*/5 * * * *")),
            ("0 9 * jan-MAR mon-fri", Rule::cron("0 9 * jan-MAR mon-fri")),
            ("@every 1h30m", Rule::every(5_400_000)),
            ("@midnight", Rule::cron("@daily")),
            ("CRON_TZ=Asia/Tokyo 30 1 * * *", zoned),
            ("0 0 L * MON#1", Rule::cron("0 0 L * MON#1")),
        ] {
            assert_eq!(of_go(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_wrong_field_is_named() {
        for (text, expected) in [
            ("61 * * * *", "minute \"61\" is not allowed: write *, numbers from 0 to 59"),
            ("* * 0 * *", "day of the month \"0\""),
            ("* * * * MOM", "SUN to SAT"),
            ("*/0 * * * *", "minute \"*/0\""),
            ("* * *", "and not 3"),
            ("@never", "\"@never\" is not a rule"),
            ("@every soon", "a duration such as 1h30m"),
        ] {
            let Err(NoRule::Wrong(said)) = of_go(text) else { panic!("{text} is wrong") };
            assert!(said.contains(expected), "{text}: {said}");
        }
        assert!(matches!(of_go("@reboot"), Err(NoRule::NotByClock(_))));
    }
}
