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
    /// Reads positions and ranges of them, separated by commas. Returns them in order; those that touch or overlap are one range, because each
    /// range is a search of its own.
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
        let mut read: Vec<Self> = text.split(',').map(range).collect::<Option<_>>().ok_or_else(form)?;
        if read.len() > PARTS_MAX {
            return Err(format!(
                "{} positions and ranges are too many at once (max {PARTS_MAX})",
                read.len()
            ));
        }
        read.sort_unstable_by_key(|it| it.first);
        read.dedup_by(|next, range| {
            let touches = next.first <= range.last.saturating_add(1);
            if touches {
                range.last = range.last.max(next.last);
            }
            touches
        });
        Ok(read)
    }
}

/// Positions and ranges of one list.
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
        assert_eq!(Positions::read("3,0-9,7"), Ok(vec![range(0, 9)]));
        assert_eq!(Positions::read("12,3,4,0-1"), Ok(vec![range(0, 1), range(3, 4), range(12, 12)]));
        assert_eq!(Positions::read(&vec!["0-99999"; 1_000].join(",")), Ok(vec![range(0, 99_999)]));
        for bad in ["", ",", "3,", "-3", "3-", "9-3", "+3", "a", "3 ", "1-2-3", "99999999999"] {
            assert!(Positions::read(bad).is_err(), "{bad}");
        }
        let many = vec!["1"; 1_001].join(",");
        assert!(Positions::read(&many).unwrap_err().contains("max 1000"));
    }
}
