//! Numbered pages of a list that is whole in memory.

/// A page of a list, from 1, and its neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageLinks {
    /// Entries of the whole list.
    pub(crate) count: usize,
    /// The page before.
    pub(crate) newer: Option<usize>,
    /// The page behind.
    pub(crate) older: Option<usize>,
}

impl PageLinks {
    /// Cuts a list down to this page of `size` entries.
    pub(crate) fn cut<T>(list: &mut Vec<T>, page: Option<u64>, size: usize) -> Self {
        let page = usize::try_from(page.unwrap_or(1)).unwrap_or(usize::MAX).max(1);
        let (count, start) = (list.len(), (page - 1).saturating_mul(size));
        list.drain(..start.min(count));
        list.truncate(size);
        let has_more = start.saturating_add(size) < count;
        Self { count, newer: (page > 1).then(|| page - 1), older: has_more.then(|| page + 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_into_pages() {
        let cut = |page| {
            let mut list: Vec<u8> = (0..7).collect();
            let links = PageLinks::cut(&mut list, page, 3);
            (list, links.newer, links.older)
        };
        assert_eq!(cut(None), (vec![0, 1, 2], None, Some(2)));
        assert_eq!(cut(Some(0)), cut(None));
        assert_eq!(cut(Some(2)), (vec![3, 4, 5], Some(1), Some(3)));
        assert_eq!(cut(Some(3)), (vec![6], Some(2), None));
        assert_eq!(cut(Some(u64::MAX)).0, Vec::<u8>::new());
    }
}
