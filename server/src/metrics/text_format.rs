//! The text format 0.0.4 of Prometheus. The registry writes OpenMetrics 1.0, whose samples are the same. The descriptions differ: the older
//! format describes a counter by the name of its samples, knows no `info` and no unit, and has no end mark.

use std::fmt::Write as _;

/// Rewrites metrics in OpenMetrics as the text format 0.0.4.
pub(super) fn from_open_metrics(text: &str) -> String {
    // The suffixes of counters make it a little longer.
    let mut plain = String::with_capacity(text.len() + text.len() / 16);
    let mut help = "";
    for line in text.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            plain.push_str(line);
            plain.push('\n');
            continue;
        };
        let Some((keyword, (name, value))) =
            comment.split_once(' ').and_then(|(keyword, rest)| Some((keyword, rest.split_once(' ')?)))
        else {
            continue;
        };
        match keyword {
            // It is written with the type, which decides the name.
            "HELP" => help = value,
            "TYPE" => {
                let (suffix, kind) = match value {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    other => ("", other),
                };
                // Writing to a string does not fail.
                let _ = write!(plain, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n");
            }
            _ => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_have_the_names_of_their_samples() {
        let open = "# HELP a_build The version.\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
            # HELP a_jobs Ended jobs.\n# TYPE a_jobs counter\na_jobs_total{name=\"# HELP\"} 3\n\
            # HELP a_wait_seconds Waits.\n# TYPE a_wait_seconds histogram\n# UNIT a_wait_seconds seconds\n\
            a_wait_seconds_sum 2.0\na_wait_seconds_count 1\na_wait_seconds_bucket{le=\"+Inf\"} 1\n\
            # HELP a_thing A thing.\n# TYPE a_thing unknown\na_thing 1\n# EOF\n";
        let plain = "# HELP a_build_info The version.\n# TYPE a_build_info gauge\na_build_info{version=\"1\"} 1\n\
            # HELP a_jobs_total Ended jobs.\n# TYPE a_jobs_total counter\na_jobs_total{name=\"# HELP\"} 3\n\
            # HELP a_wait_seconds Waits.\n# TYPE a_wait_seconds histogram\n\
            a_wait_seconds_sum 2.0\na_wait_seconds_count 1\na_wait_seconds_bucket{le=\"+Inf\"} 1\n\
            # HELP a_thing A thing.\n# TYPE a_thing untyped\na_thing 1\n";
        assert_eq!(from_open_metrics(open), plain);
    }
}
