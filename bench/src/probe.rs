//! Processor time and memory of processes, as the kernel counts them.

use anyhow::Context as _;

/// Processor time that a process and its threads have used so far, user and system, in microseconds; children that ended not counted.
pub(crate) fn cpu_us(pid: u32) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("cannot read processor time")?;
    // The second field is the program's name in parentheses and may hold anything; the 14th and 15th are the times.
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: Vec<f64> =
        after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    let [user, system] = ticks[..] else { anyhow::bail!("/proc/{pid}/stat has another shape than expected") };
    Ok((user + system) * 1e6 / rustix::param::clock_ticks_per_second() as f64)
}

/// Memory of a process that is its own (neither files nor shared), in bytes.
pub(crate) fn memory_bytes(pid: u32) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).context("cannot read memory")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .context("/proc/…/status has no RssAnon")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("RssAnon is no number")?;
    Ok(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_uses_time_and_memory() {
        let pid = std::process::id();
        let before = cpu_us(pid).unwrap();
        let mut sum = 0_u64;
        while cpu_us(pid).unwrap() == before {
            sum = (0..1_000_000_u64).fold(sum, u64::wrapping_add);
        }
        assert!(memory_bytes(pid).unwrap() > 100_000, "{sum}");
    }
}
