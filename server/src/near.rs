//! Similar names, for people who mistyped one.

/// Up to three similar names, the nearest first.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    // Time and memory of the search grow with the length of the name.
    if name.len() > NAME_BYTES_MAX {
        return Vec::new();
    }
    let mut near: Vec<(f64, &str)> = known
        .map(|known| (strsim::jaro_winkler(name, known), known))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    near.into_iter().take(NEAR_MAX).map(|(_, known)| known.to_owned()).collect()
}

/// Less similar names would confuse.
const LIKENESS_MIN: f64 = 0.75;
const NEAR_MAX: usize = 3;
/// Longer than any name of a definition (63 bytes).
const NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_come_nearest_first_and_far_ones_not_at_all() {
        let known = ["resize", "resize-all", "backup", "report"];
        assert_eq!(nearest("resise", known.into_iter()), ["resize", "resize-all"]);
        assert_eq!(nearest("zzz", known.into_iter()), Vec::<String>::new());
        let long = format!("resize{}", "-".repeat(58));
        assert_eq!(nearest(&long, [&*long].into_iter()), [&*long]);
        let longer = format!("{long}-");
        assert_eq!(nearest(&longer, [&*longer].into_iter()), Vec::<String>::new(), "nobody looks for it");
    }
}
