//! Calendar rules of systemd as rules of jobs.yaml, if both mean exactly the same.

use super::super::draft::Rule;

/// The same rule in the form of jobs.yaml.
///
/// # Errors
/// There is no such rule, or the text is none; the error says why.
pub(super) fn translate(rule: &str) -> Result<Rule, String> {
    let (rule, zone) = translate_in_zone(rule)?;
    Ok(rule.in_zone(zone))
}

/// The rule, and the time zone if the text names one.
fn translate_in_zone(rule: &str) -> Result<(Rule, Option<String>), String> {
    let mut parts: Vec<&str> = rule.split_whitespace().collect();
    let zone = parts.pop_if(|last| is_zone(last)).map(str::to_owned);
    if let [word] = parts[..]
        && let Some((_, cron)) = SHORT.iter().find(|(short, _)| word.eq_ignore_ascii_case(short))
    {
        return Ok((Rule::cron(*cron), zone));
    }
    let days = take(&mut parts, |part| part.starts_with(|c: char| c.is_ascii_alphabetic()));
    let date = take(&mut parts, |part| !part.contains(':'));
    let time = take(&mut parts, |_| true);
    if !parts.is_empty() || (days, date, time) == (None, None, None) {
        return Err("a rule is days of the week, a date and a time, such as Mon *-*-* 02:00:00".to_owned());
    }
    if let Some(instant) = date.filter(|_| days.is_none()).and_then(|date| instant(date, time)) {
        return Ok((Rule::at(instant), zone));
    }
    let (month, day) = date.map_or(Ok(("*".to_owned(), Day::Any)), self::date)?;
    let weekdays = days.map_or(Ok(Vec::new()), self::weekdays)?;
    let (day, weekday) = join_days(&day, &weekdays)?;
    let time = time.map_or(Ok("0 0".to_owned()), self::time)?;
    Ok((Rule::cron(format!("{time} {day} {month} {weekday}")), zone))
}

fn take<'p>(parts: &mut Vec<&'p str>, is_it: impl Fn(&str) -> bool) -> Option<&'p str> {
    parts.first().is_some_and(|part| is_it(part)).then(|| parts.remove(0))
}

/// A date with a year and its time, if both name one instant alone.
fn instant(date: &str, time: Option<&str>) -> Option<String> {
    let numbers = |text: &str, separator: char, digits: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        let is_number = |(part, digits): (&&str, &usize)| {
            (1..=*digits).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        (parts.len() == digits.len() && parts.iter().zip(digits).all(is_number)).then(|| {
            let padded = parts.iter().zip(digits).map(|(part, digits)| format!("{part:0>digits$}"));
            padded.collect::<Vec<_>>()
        })
    };
    let date = numbers(date, '-', &[4, 2, 2])?.join("-");
    let time = time.unwrap_or("00:00:00");
    let time = numbers(time, ':', &[2, 2, 2]).or_else(|| numbers(&format!("{time}:00"), ':', &[2, 2, 2]))?;
    Some(format!("{date}T{}", time.join(":")))
}

/// `UTC`, `CET`, `Europe/Berlin`.
fn is_zone(part: &str) -> bool {
    let is_name = part.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_short = part.len() >= 3 && part.chars().all(|c| c.is_ascii_uppercase()) && weekday(part).is_none();
    is_name && (is_short || part.contains('/'))
}

/// The days of a month that are meant.
enum Day {
    Any,
    /// As cron writes them.
    These(String),
    /// Counted from the end: 1 is the last one.
    FromEnd(String),
}

/// `Y-M-D` or `M-D`; a tilde counts days from the end of the month.
fn date(text: &str) -> Result<(String, Day), String> {
    let (head, day) = match text.split_once('~') {
        Some((head, day)) => (head, Day::FromEnd(day.to_owned())),
        None => {
            let (head, day) = text.rsplit_once('-').ok_or("a date is YEAR-MONTH-DAY, such as *-*-01")?;
            let day = component(day, 1, 31)?;
            (head, if day == "*" { Day::Any } else { Day::These(day) })
        }
    };
    let (year, month) = head.rsplit_once('-').unwrap_or(("*", head));
    if year != "*" {
        return Err(format!("cron knows no years, here {year}; \"start_at\" and \"end_at\" limit a rule"));
    }
    Ok((component(month, 1, 12)?, day))
}

/// Hours, minutes, and seconds if they are not zero, in the order of cron.
fn time(text: &str) -> Result<String, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let (hours, minutes, seconds) = match parts[..] {
        [hours, minutes] => (hours, minutes, "0"),
        [hours, minutes, seconds] => (hours, minutes, seconds),
        _ => return Err("a time is HOUR:MINUTE:SECOND, such as 02:00:00".to_owned()),
    };
    let (hours, minutes) = (component(hours, 0, 23)?, component(minutes, 0, 59)?);
    match component(seconds, 0, 59)?.as_str() {
        "0" => Ok(format!("{minutes} {hours}")),
        seconds => Ok(format!("{seconds} {minutes} {hours}")),
    }
}

/// Numbers, ranges and repetitions of one part of a date or a time.
fn component(text: &str, from: u32, to: u32) -> Result<String, String> {
    let number = |text: &str| match text.parse::<u32>() {
        Ok(number) if (from..=to).contains(&number) => Ok(number),
        _ => Err(format!("\"{text}\" is not a whole number from {from} to {to}")),
    };
    let part = |part: &str| {
        let (values, step) = match part.split_once('/') {
            Some((values, step)) => {
                let step = step.parse::<u32>().ok().filter(|step| *step > 0);
                (values, Some(step.ok_or_else(|| format!("\"{part}\" has no whole number after /"))?))
            }
            None => (part, None),
        };
        let range = match (values.split_once(".."), step) {
            (Some((first, last)), _) => format!("{}-{}", number(first)?, number(last)?),
            (None, _) if values == "*" => "*".to_owned(),
            (None, Some(_)) if number(values)? == from => "*".to_owned(),
            (None, Some(_)) => format!("{}-{to}", number(values)?),
            (None, None) => number(values)?.to_string(),
        };
        Ok(step.map_or(range.clone(), |step| format!("{range}/{step}")))
    };
    let parts: Vec<String> = text.split(',').map(part).collect::<Result<_, String>>()?;
    Ok(parts.join(","))
}

/// The days of a list such as `Mon..Wed,Fri`; 0 is Monday.
fn weekdays(text: &str) -> Result<Vec<usize>, String> {
    let day =
        |text: &str| weekday(text).ok_or_else(|| format!("\"{text}\" is not a day of the week, such as Mon"));
    let mut days = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        match part.split_once("..").or_else(|| part.split_once('-')) {
            Some((first, last)) => {
                let (first, last) = (day(first)?, day(last)?);
                let length = (last + 7 - first) % 7;
                days.extend((0..=length).map(|offset| (first + offset) % 7));
            }
            None => days.push(day(part)?),
        }
    }
    days.sort_unstable();
    days.dedup();
    Ok(days)
}

fn weekday(text: &str) -> Option<usize> {
    let long = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let text = text.to_ascii_lowercase();
    long.iter().position(|day| *day == text || day[..3] == text)
}

/// Both fields of cron for days. Systemd wants both kinds of days to fit, cron one of them, so only some pairs can be written.
fn join_days(day: &Day, weekdays: &[usize]) -> Result<(String, String), String> {
    let is_every = weekdays.is_empty() || weekdays.len() == 7;
    match (day, weekdays) {
        (Day::Any, _) if is_every => Ok(("*".into(), "*".into())),
        (Day::Any, days) => Ok(("*".into(), shown(days))),
        (Day::These(days), _) if is_every => Ok((days.clone(), "*".into())),
        (Day::FromEnd(last), _) if is_every => match last.trim_start_matches('0') {
            "1" => Ok(("L".into(), "*".into())),
            _ => Err("cron counts no days from the end of a month, but the last one".into()),
        },
        (Day::These(days), [weekday]) => {
            let weeks = ["1-7", "8-14", "15-21", "22-28"];
            let week = weeks.iter().position(|week| week == days).ok_or(NOT_BOTH)?;
            Ok(("*".into(), format!("{}#{}", NAMES[*weekday], week + 1)))
        }
        (Day::FromEnd(last), [weekday]) if last.trim_start_matches('0') == "7/1" => {
            // Sunday is 0 in cron.
            Ok(("*".into(), format!("{}L", (weekday + 1) % 7)))
        }
        _ => Err(NOT_BOTH.into()),
    }
}

fn shown(days: &[usize]) -> String {
    let is_range = days.len() > 2 && days.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    match (days.first(), days.last()) {
        // To some, a week begins with Sunday, and a range cannot end there.
        (Some(first), Some(last)) if is_range && *last < 6 => format!("{}-{}", NAMES[*first], NAMES[*last]),
        _ => days.iter().map(|day| NAMES[*day]).collect::<Vec<_>>().join(","),
    }
}

const NOT_BOTH: &str = "cron fires if one of the days fits, and not only if both do";
const NAMES: [&str; 7] = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"];
/// Rules with a name.
const SHORT: [(&str, &str); 12] = [
    ("minutely", "* * * * *"),
    ("hourly", "0 * * * *"),
    ("daily", "0 0 * * *"),
    ("weekly", "0 0 * * MON"),
    ("monthly", "0 0 1 * *"),
    ("quarterly", "0 0 1 1,4,7,10 *"),
    ("semiannually", "0 0 1 1,7 *"),
    ("semi-annually", "0 0 1 1,7 *"),
    ("biannually", "0 0 1 1,7 *"),
    ("bi-annually", "0 0 1 1,7 *"),
    ("yearly", "0 0 1 1 *"),
    ("annually", "0 0 1 1 *"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_cron_knows_become_its_expressions() {
        for (rule, expected) in [
            ("daily", "0 0 * * *"),
            ("Mon..Fri 09:00", "0 9 * * MON-FRI"),
            ("*-*-* 02:00:00", "0 2 * * *"),
            ("*:0/15", "*/15 * * * *"),
            ("*:5/15", "5-59/15 * * * *"),
            ("*-*-01 00:00", "0 0 1 * *"),
            ("*-*-1,15 6..18/2:30", "30 6-18/2 1,15 * *"),
            ("Sat,Sun *-*-* 10:00", "0 10 * * SAT,SUN"),
            ("Fri..Sun", "0 0 * * FRI,SAT,SUN"),
            ("Mon *-*-1..7 08:00", "0 8 * * MON#1"),
            ("Fri *-*~07/1 17:00", "0 17 * * 5L"),
            ("*-*~01", "0 0 L * *"),
            ("*-1/3-1", "0 0 1 */3 *"),
            ("12-24 18:00:30", "30 0 18 24 12 *"),
            ("*:*:0/10", "*/10 * * * * *"),
        ] {
            assert_eq!(translate(rule), Ok(Rule::cron(expected)), "{rule}");
        }
        assert_eq!(translate("2027-01-01 6:00"), Ok(Rule::at("2027-01-01T06:00:00")));
        let zoned = |rule| translate_in_zone(rule).unwrap().1.unwrap_or_default();
        assert_eq!(zoned("*-*-* 03:00 Europe/Berlin"), "Europe/Berlin");
        assert_eq!(zoned("daily UTC"), "UTC");
        assert_eq!(zoned("MON"), "");
    }

    #[test]
    fn rules_that_cron_does_not_know_say_why() {
        for (rule, expected) in [
            ("2027-*-01 00:00", "knows no years"),
            ("Mon *-*-13", "if one of the days fits"),
            ("*-*~03", "from the end of a month"),
            ("*:*:0.5", "\"0.5\" is not a whole number"),
            ("25:00", "\"25\" is not a whole number from 0 to 23"),
            ("soon", "\"soon\" is not a day"),
            ("", "a rule is days"),
        ] {
            let why = translate(rule).unwrap_err();
            assert!(why.contains(expected), "{rule}: {why}");
        }
    }
}
