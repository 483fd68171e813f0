//! One result: a line of JSON with every parameter that it depends on.

use serde_json::{Map, Value, json};

/// A result in the making.
#[derive(Debug)]
pub(crate) struct Record(Map<String, Value>);

impl Record {
    /// A result of this measurement, on this machine.
    pub(crate) fn new(what: &str) -> Self {
        let mut record = Self(Map::new());
        record.set("bench", what);
        record.set("cores", std::thread::available_parallelism().map_or(0, std::num::NonZero::get));
        record.set("version", env!("CARGO_PKG_VERSION"));
        record
    }

    /// Adds a parameter or a figure.
    pub(crate) fn set(&mut self, key: &str, value: impl serde::Serialize) {
        self.0.insert(key.to_owned(), json!(value));
    }

    /// Adds a figure: whole from 100 on, below that with three decimals.
    pub(crate) fn figure(&mut self, key: &str, value: f64) {
        let factor = if value.abs() >= 100.0 { 1.0 } else { 1_000.0 };
        self.set(key, (value * factor).round() / factor);
    }

    /// Adds the quantiles of some times, in milliseconds.
    pub(crate) fn quantiles(&mut self, key: &str, times_ms: &mut [f64]) {
        times_ms.sort_by(f64::total_cmp);
        for (name, share) in [("p50", 0.50), ("p90", 0.90), ("p99", 0.99), ("max", 1.0)] {
            // The smallest time that at least this share does not exceed.
            let rank = (share * times_ms.len() as f64).ceil() as usize;
            if let Some(time) = times_ms.get(rank.saturating_sub(1)) {
                self.figure(&format!("{key}_{name}_ms"), *time);
            }
        }
    }

    /// Prints it.
    pub(crate) fn print(self) {
        println!("{}", Value::Object(self.0));
    }
}

/// Prints the progress of the bench to standard error: standard output has the results only.
pub(crate) fn log_progress(text: &str) {
    eprintln!("bench: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let mut record = Record::new("x");
        record.quantiles("t", &mut (1..=1_000).rev().map(f64::from).collect::<Vec<_>>());
        assert_eq!(
            (&record.0["t_p50_ms"], &record.0["t_p99_ms"], &record.0["t_max_ms"]),
            (&json!(500.0), &json!(990.0), &json!(1_000.0))
        );
    }
}
