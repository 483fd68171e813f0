//! Positions of members in their batch: `3`, `3-9` or `3,7-9`, as the API and the command line take them.

/// Positions in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// The first one; a batch begins with 0.
    pub first: u32,
    /// The last one, not below the first.
    pub last: u32,
}

impl Positions {
    /// Reads positions and ranges of them, separated by commas.
    ///
    /// # Errors
    /// The text is not of this form, or has too many parts. The error says what is expected.
    pub fn read(text: &str) -> Result<Vec<Self>, String> {
        let form = || "positions in a batch are written 3, 3-9 or 3,7, counted from 0".to_owned();
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_number)
        };
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Self { first, last })
        };
        let read: Vec<Self> = text.split(',').map(range).collect::<Option<_>>().ok_or_else(form)?;
        if read.len() > PARTS_MAX {
            return Err(format!(
                "{} positions and ranges are too many at once (max {PARTS_MAX})",
                read.len()
            ));
        }
        Ok(read)
    }
}

/// Positions and ranges of one list. Each is a search of its own.
const PARTS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::Positions;

    fn range(first: u32, last: u32) -> Positions {
        Positions { first, last }
    }

    #[test]
    fn positions_are_numbers_and_ranges() {
        assert_eq!(Positions::read("3"), Ok(vec![range(3, 3)]));
        assert_eq!(Positions::read("3,0-9,7"), Ok(vec![range(3, 3), range(0, 9), range(7, 7)]));
        for bad in ["", ",", "3,", "-3", "3-", "9-3", "+3", "a", "3 ", "1-2-3", "99999999999"] {
            assert!(Positions::read(bad).is_err(), "{bad}");
        }
        let many = vec!["1"; 1_001].join(",");
        assert!(Positions::read(&many).unwrap_err().contains("max 1000"));
    }
}
