//! The order of Longshore's versions.

use std::cmp::Ordering;

/// Compares versions by their numbers: 0.10.0 is newer than 0.9.0. `None` if one has a part that is not a number.
pub(crate) fn compare(left: &str, right: &str) -> Option<Ordering> {
    Some(numbers(left)?.cmp(&numbers(right)?))
}

fn numbers(version: &str) -> Option<Vec<u64>> {
    version.split('.').map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(compare("0.10.0", "0.9.0"), Some(Ordering::Greater));
        assert_eq!(compare("0.1.9", "0.2.0"), Some(Ordering::Less));
        assert_eq!(compare("1.0.0", "1.0.0"), Some(Ordering::Equal));
        assert_eq!(compare("1.0.0", "banana"), None);
        assert_eq!(compare("1.0.0-rc1", "1.0.0"), None);
    }
}
