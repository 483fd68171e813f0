//! Resources that a worker offers: what the machine has, unless its settings say otherwise.

use std::fs;
use std::path::Path;

use protocol::resources::{OfferedResources, RESOURCE_NAME_BYTES_MAX, RESOURCES_MAX, is_resource_name};

/// An invalid resource in the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// The number of cores is out of range, or has more than three decimals.
    #[error("--cpus: `{}` is not a number of cores from 0 to 4000000, with up to three decimals", .0.escape_debug())]
    Cpus(String),
    /// The amount is no size.
    #[error("--memory: `{}` is not a size such as 512m or 16g", .0.escape_debug())]
    Memory(String),
    /// The id has other characters, or is too long.
    #[error(
        "--gpus: `{}` must be 1 to {RESOURCE_NAME_BYTES_MAX} of A-Z a-z 0-9 . _ : - and begin with a letter or a digit",
        .0.escape_debug()
    )]
    Gpu(String),
    /// It is not `NAME=AMOUNT`.
    #[error("--resource: `{}` is not NAME=AMOUNT, such as license=2", .0.escape_debug())]
    Custom(String),
    /// An id or a name is given twice.
    #[error("{0}: `{1}` is given twice")]
    Twice(&'static str, String),
    /// More than a server takes.
    #[error("{0}: there are {1}, at most {RESOURCES_MAX} are allowed")]
    TooMany(&'static str, usize),
}

/// The cores that this process may use, and the memory of the machine or of the control group that limits this process. There are no GPUs and
/// no custom resources until the settings name them.
#[must_use]
pub fn measured() -> OfferedResources {
    let cores = std::thread::available_parallelism().ok().and_then(|cores| u32::try_from(cores.get()).ok());
    OfferedResources {
        cpus_milli: cores.map(|cores| cores.saturating_mul(1_000)),
        memory_bytes: memory(),
        ..OfferedResources::default()
    }
}

fn memory() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(total_of_meminfo);
    let groups = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limits =
        groups.iter().filter_map(|path| fs::read_to_string(Path::new(path)).ok()?.trim().parse().ok());
    limits.chain(machine).min()
}

/// The line is `MemTotal:       16303432 kB`.
fn total_of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

/// Reads a number of cores; 0 means that they are not counted.
///
/// # Errors
/// It is no number, or out of range.
pub fn parse_cpus(text: &str) -> Result<Option<u32>, OfferError> {
    let wrong = || OfferError::Cpus(text.to_owned());
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > 3 {
        return Err(wrong());
    }
    let thousandths: u32 = format!("{decimals:0<3}").parse().map_err(|_| wrong())?;
    let cores: u32 = whole.parse().map_err(|_| wrong())?;
    let milli =
        cores.checked_mul(1_000).and_then(|milli| milli.checked_add(thousandths)).ok_or_else(wrong)?;
    Ok((milli > 0).then_some(milli))
}

/// Reads a size; 0 means that memory is not counted.
///
/// # Errors
/// It is no size.
pub fn parse_memory(text: &str) -> Result<Option<u64>, OfferError> {
    let wrong = || OfferError::Memory(text.to_owned());
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let amount: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let power = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        _ => return Err(wrong()),
    };
    let bytes = amount.checked_mul(1_024_u64.pow(power)).ok_or_else(wrong)?;
    Ok((bytes > 0).then_some(bytes))
}

/// Checks the ids of GPUs.
///
/// # Errors
/// An id is invalid or given twice, or there are too many.
pub fn check_gpus(ids: &[String]) -> Result<(), OfferError> {
    if let Some(wrong) = ids.iter().find(|id| !is_resource_name(id)) {
        return Err(OfferError::Gpu(wrong.clone()));
    }
    check_unique("--gpus", ids.iter())
}

/// Reads custom resources, each `NAME=AMOUNT`.
///
/// # Errors
/// One is not in that form or given twice, or there are too many.
pub fn parse_custom(texts: &[String]) -> Result<Vec<(String, u32)>, OfferError> {
    let read = |text: &String| match text.split_once('=').map(|(name, amount)| (name, amount.parse())) {
        Some((name, Ok(amount))) if is_resource_name(name) => Ok((name.to_owned(), amount)),
        _ => Err(OfferError::Custom(text.clone())),
    };
    let custom: Vec<(String, u32)> = texts.iter().map(read).collect::<Result<_, _>>()?;
    check_unique("--resource", custom.iter().map(|(name, _)| name))?;
    Ok(custom)
}

fn check_unique<'n>(flag: &'static str, names: impl Iterator<Item = &'n String>) -> Result<(), OfferError> {
    let mut seen: Vec<&String> = Vec::new();
    for name in names {
        if seen.contains(&name) {
            return Err(OfferError::Twice(flag, name.clone()));
        }
        seen.push(name);
    }
    if seen.len() > RESOURCES_MAX {
        return Err(OfferError::TooMany(flag, seen.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn amounts_are_read_and_zero_means_that_nothing_is_counted() {
        assert_eq!(parse_cpus("2.5"), Ok(Some(2_500)));
        assert_eq!(parse_cpus("0"), Ok(None));
        assert_eq!(parse_memory("2g"), Ok(Some(2 << 30)));
        assert_eq!(parse_memory("0"), Ok(None));
        assert_eq!(parse_custom(&texts(&["license=2"])), Ok(vec![("license".to_owned(), 2)]));
        assert_eq!(check_gpus(&texts(&["0", "GPU-3a23c669"])), Ok(()));
        assert_eq!(total_of_meminfo("MemTotal:       16 kB\nMemFree: 1 kB\n"), Some(16_384));
    }

    #[test]
    fn each_invalid_resource_names_its_flag() {
        for text in ["", "two", "1.2345", ".5", "-1", "9999999"] {
            assert!(parse_cpus(text).is_err_and(|error| error.to_string().starts_with("--cpus")), "{text}");
        }
        for text in ["", "2x", "99999999999t"] {
            assert!(parse_memory(text).is_err(), "{text}");
        }
        for list in [&["license"][..], &["=1"], &["a=-1"], &["a=1", "a=2"]] {
            assert!(parse_custom(&texts(list)).is_err(), "{list:?}");
        }
        assert!(check_gpus(&texts(&["0", "0"])).is_err());
        assert!(check_gpus(&texts(&[""])).is_err());
    }
}
