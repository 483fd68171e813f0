//! Figures that are compared with each other are taken in turns, so that a machine that becomes slower or faster meanwhile changes all of
//! them.

/// How often each kind is measured.
pub(crate) const TURNS: usize = 3;

/// The medians of the figures of each kind. In each turn every kind is measured once, in this order.
pub(crate) async fn medians<K: Copy, const KINDS: usize, const FIGURES: usize>(
    kinds: [K; KINDS],
    mut measure: impl AsyncFnMut(K) -> anyhow::Result<[f64; FIGURES]>,
) -> anyhow::Result<[[f64; FIGURES]; KINDS]> {
    let mut taken = kinds.map(|_| [const { Vec::new() }; FIGURES]);
    for _ in 0..TURNS {
        for (kind, taken) in kinds.into_iter().zip(&mut taken) {
            for (figure, taken) in measure(kind).await?.into_iter().zip(taken) {
                taken.push(figure);
            }
        }
    }
    Ok(taken.map(|figures| figures.map(median)))
}

/// The middle one of some figures.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn kinds_take_turns_and_each_figure_has_its_own_median() {
        let mut order = Vec::new();
        let figures = [[9.0, 1.0], [1.0, 3.0], [5.0, 2.0]];
        let medians = medians(["a", "b"], async |kind| {
            order.push(kind);
            let [first, second] = figures[(order.len() - 1) / 2];
            Ok(if kind == "a" { [first, second] } else { [-first, -second] })
        });
        assert_eq!(medians.await.unwrap(), [[5.0, 2.0], [-5.0, -2.0]]);
        assert_eq!(order, ["a", "b", "a", "b", "a", "b"]);
    }
}
