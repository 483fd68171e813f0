//! The curves of a running attempt: CPU and memory over time, as lines in SVG with a table behind them. Geometry only.

use std::time::Duration;

use super::format::{self, Moment};
use crate::http::present::shapes::{JobUsage, Usage, UsagePoint};

/// The curves of one attempt.
pub(crate) struct Curves {
    /// The number of the attempt.
    pub(crate) attempt: u32,
    pub(crate) lines: Vec<Line>,
    /// The samples, the newest first.
    pub(crate) rows: Vec<Row>,
}

/// A curve from 0 to its highest value.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    /// Its highest value, with the unit.
    pub(crate) highest: String,
    /// Its last value, with the unit.
    pub(crate) last: String,
    /// The attribute `points` of a polyline.
    pub(crate) points: String,
}

/// A sample as people read it.
pub(crate) struct Row {
    pub(crate) at: Moment,
    pub(crate) cores: String,
    pub(crate) memory: String,
}

/// The curves; `None` with fewer than two samples, which make no line.
pub(crate) fn curves(usage: &JobUsage) -> Option<Curves> {
    let points = &usage.points;
    if points.len() < 2 {
        return None;
    }
    let cores: Vec<Option<f64>> =
        std::iter::once(None).chain(points.windows(2).map(|pair| cores(pair[0], pair[1]))).collect();
    // Memory above nine petabytes would lose a byte.
    let memory: Vec<Option<f64>> =
        points.iter().map(|it| it.memory_bytes.map(|bytes| bytes as f64)).collect();
    let lines = [
        line("CPU", points, &cores, |cores| format!("{cores:.2} cores")),
        line("Memory", points, &memory, |bytes| format::bytes(bytes as u64)),
    ];
    let row = |(point, cores): (&UsagePoint, &Option<f64>)| Row {
        at: format::moment(point.at),
        cores: cores.map(|it| format!("{it:.2}")).unwrap_or_default(),
        memory: point.memory_bytes.map(format::bytes).unwrap_or_default(),
    };
    Some(Curves {
        attempt: usage.attempt,
        lines: lines.into_iter().flatten().collect(),
        rows: points.iter().zip(&cores).rev().map(row).collect(),
    })
}

/// Cores that were busy between two samples.
fn cores(before: UsagePoint, after: UsagePoint) -> Option<f64> {
    let busy = after.cpu_ms?.saturating_sub(before.cpu_ms?);
    let passed = after.at.0.since(before.at.0).as_millis();
    // Samples that arrive together tell nothing about the time between them.
    (passed > 0).then(|| busy as f64 / passed as f64)
}

fn line(
    name: &'static str,
    points: &[UsagePoint],
    values: &[Option<f64>],
    text: impl Fn(f64) -> String,
) -> Option<Line> {
    let (first, last) = (points.first()?.at.0, points.last()?.at.0);
    let whole = last.since(first).max(Duration::from_millis(1)).as_secs_f64();
    let known = || points.iter().zip(values).filter_map(|(point, value)| Some((point.at.0, (*value)?)));
    let highest = known().map(|(_, value)| value).fold(0.0, f64::max);
    let scale = if highest > 0.0 { f64::from(HEIGHT) / highest } else { 0.0 };
    let place = |(at, value): (protocol::Timestamp, f64)| {
        let x = at.since(first).as_secs_f64() / whole * f64::from(WIDTH);
        format!("{x:.1},{:.1}", f64::from(HEIGHT) - value * scale)
    };
    let (_, latest) = known().next_back()?;
    Some(Line {
        name,
        highest: text(highest),
        last: text(latest),
        points: known().map(place).collect::<Vec<_>>().join(" "),
    })
}

/// Resources of an attempt as names and values; only those that were measured.
pub(crate) fn facts(usage: &Usage) -> Vec<(&'static str, String)> {
    let pair = |a: Option<u64>, b: Option<u64>| {
        let text = |it: Option<u64>| it.map_or("unknown".to_owned(), format::bytes);
        (a.is_some() || b.is_some()).then(|| (text(a), text(b)))
    };
    let network = pair(usage.network_received_bytes, usage.network_sent_bytes);
    let disk = pair(usage.disk_read_bytes, usage.disk_written_bytes);
    [
        usage.cpu_ms.map(|ms| ("CPU time", format::span_ms(ms))),
        usage.memory_peak_bytes.map(|bytes| ("Memory at most", format::bytes(bytes))),
        network.map(|(received, sent)| ("Network", format!("{received} received, {sent} sent"))),
        disk.map(|(read, written)| ("Disk", format!("{read} read, {written} written"))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Size of a chart in its own units; the style sheet stretches it.
pub(crate) const WIDTH: u32 = 600;
pub(crate) const HEIGHT: u32 = 60;

#[cfg(test)]
mod tests {
    use protocol::Timestamp;

    use super::*;
    use crate::http::present::shapes::Time;

    fn point(second: i64, cpu_ms: Option<u64>, memory_bytes: Option<u64>) -> UsagePoint {
        UsagePoint { at: Time(Timestamp(second * 1_000)), cpu_ms, memory_bytes }
    }

    fn drawn(points: Vec<UsagePoint>) -> Option<Curves> {
        curves(&JobUsage { attempt: 1, points })
    }

    #[test]
    fn cpu_is_drawn_as_busy_cores_and_memory_as_it_is() {
        let points = vec![
            point(0, Some(0), Some(10)),
            point(2, Some(1_000), Some(20)),
            point(4, Some(5_000), Some(0)),
        ];
        let curves = drawn(points).unwrap();
        let [cpu, memory] = &curves.lines[..] else { panic!("{}", curves.lines.len()) };
        assert_eq!((cpu.points.as_str(), cpu.highest.as_str()), ("300.0,45.0 600.0,0.0", "2.00 cores"));
        assert_eq!(memory.points, "0.0,30.0 300.0,0.0 600.0,60.0");
        assert_eq!((curves.rows.len(), curves.rows[0].cores.as_str()), (3, "2.00"));
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        assert!(drawn(vec![point(0, Some(1), None)]).is_none());
        let curves = drawn(vec![point(0, None, Some(5)), point(1, None, Some(5))]).unwrap();
        assert_eq!(curves.lines.iter().map(|it| it.name).collect::<Vec<_>>(), ["Memory"]);
        let idle =
            drawn(vec![point(0, Some(0), None), point(0, Some(0), None), point(1, Some(0), None)]).unwrap();
        assert_eq!(idle.lines[0].points, "600.0,60.0", "two samples of one instant tell no speed");
    }

    #[test]
    fn facts_name_what_is_known() {
        assert_eq!(facts(&Usage::default()), []);
        let usage = Usage { cpu_ms: Some(1_500), disk_read_bytes: Some(0), ..Usage::default() };
        let facts = facts(&usage);
        assert_eq!(facts[0], ("CPU time", "1.50s".to_owned()));
        assert!(facts[1].1.ends_with("read, unknown written"), "{facts:?}");
    }
}
