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
    status_bytes(pid, "RssAnon:")
}

/// The most memory that a process has had so far, files included, in bytes.
pub(crate) fn peak_memory_bytes(pid: u32) -> anyhow::Result<u64> {
    status_bytes(pid, "VmHWM:")
}

fn status_bytes(pid: u32, field: &str) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).context("cannot read memory")?;
    let value = text.lines().find_map(|line| line.strip_prefix(field));
    let value = value.with_context(|| format!("/proc/…/status has no {field}"))?;
    let kib: u64 =
        value.trim().trim_end_matches(" kB").parse().with_context(|| format!("{field} is no number"))?;
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
        assert!(peak_memory_bytes(pid).unwrap() >= memory_bytes(pid).unwrap());
    }
}
