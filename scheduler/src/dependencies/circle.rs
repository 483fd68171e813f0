//! Finds jobs of one request that wait for each other.

use alloc::vec::Vec;

/// Finds jobs of a request that wait for each other in a circle: for each job, by its position, the positions that it waits for. Returns
/// the positions of one circle, in the order in which they wait.
#[must_use]
pub fn circle(waits_for: &[Vec<u32>]) -> Option<Vec<u32>> {
    let mut state = alloc::vec![Visit::New; waits_for.len()];
    for start in 0..waits_for.len() {
        let mut path: Vec<(usize, usize)> = alloc::vec![(start, 0)];
        if state[start] != Visit::New {
            continue;
        }
        state[start] = Visit::OnPath;
        while let Some((at, nth)) = path.last_mut() {
            let Some(next) = waits_for[*at].get(*nth).map(|next| *next as usize) else {
                state[*at] = Visit::Done;
                path.pop();
                continue;
            };
            *nth += 1;
            match state.get(next) {
                Some(Visit::New) => {
                    state[next] = Visit::OnPath;
                    path.push((next, 0));
                }
                Some(Visit::OnPath) => {
                    let of_circle = path.iter().skip_while(|(at, _)| *at != next);
                    return Some(of_circle.map(|(at, _)| u32::try_from(*at).unwrap_or(u32::MAX)).collect());
                }
                Some(Visit::Done) | None => {}
            }
        }
    }
    None
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    New,
    OnPath,
    Done,
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn a_circle_is_found_wherever_it_is() {
        assert_eq!(circle(&[vec![], vec![0], vec![0, 1]]), None);
        assert_eq!(circle(&[vec![0]]), Some(vec![0]));
        assert_eq!(circle(&[vec![], vec![0, 3], vec![1], vec![2]]), Some(vec![1, 3, 2]));
        let chain: Vec<Vec<u32>> =
            (0..100_000).map(|at| if at == 0 { vec![] } else { vec![at - 1] }).collect();
        assert_eq!(circle(&chain), None);
    }
}
