//! What a handful of noisy rounds can say: a median with an interval that assumes nothing about how
//! the noise is distributed, and a mean that outliers don't move.

/// Rounds below which no interval covers 95 %: with five, even the smallest and the largest value
/// enclose the true median with 93.75 % only.
pub const MIN_ROUNDS: usize = 6;

/// Chance that the true median lies outside the interval, at most.
const MISS: f64 = 0.05;

/// A median and its 95 % interval; both ends are values that were measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The median; of an even number of values, the middle between the two in the middle.
    pub median: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The median of at least [`MIN_ROUNDS`] values, with the narrowest pair of order statistics,
/// equally far from both ends, that encloses the true median with 95 % or more; `None` for fewer.
///
/// Each value is above the true median with probability 1/2, so the number of those below it is
/// binomial: the interval from the r-th smallest to the r-th largest misses it with
/// 2 P(Bin(n, 1/2) < r).
pub fn interval(values: &[f64]) -> Option<Interval> {
    let count = values.len();
    let rank = rank(count)?;
    let sorted = sorted(values);
    Some(Interval {
        median: (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0,
        low: sorted[rank - 1],
        high: sorted[count - rank],
    })
}

/// The median; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = |index: usize| sorted.get(index).copied();
    Some((middle(sorted.len().checked_sub(1)? / 2)? + middle(sorted.len() / 2)?) / 2.0)
}

/// The mean of the half in the middle; `None` of nothing. Unlike a median it resolves less than the
/// unit in which the values were rounded.
pub fn interquartile_mean(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let quarter = sorted.len() / 4;
    let middle = &sorted[quarter..sorted.len() - quarter];
    (!middle.is_empty()).then(|| middle.iter().sum::<f64>() / middle.len() as f64)
}

/// The largest r, from 1, for which the r-th smallest and r-th largest of `count` values miss the
/// true median with at most [`MISS`].
fn rank(count: usize) -> Option<usize> {
    let mut below = 0.0;
    let mut exactly = 0.5f64.powi(i32::try_from(count).ok()?);
    let mut rank = 0;
    while rank < count {
        below += exactly;
        if 2.0 * below > MISS {
            break;
        }
        rank += 1;
        exactly *= (count + 1 - rank) as f64 / rank as f64;
    }
    (rank > 0).then_some(rank)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks as printed in tables of the sign test (two-sided, 5 %).
    #[test]
    fn ranks_are_those_of_the_tables() {
        let tables = [
            (6, 1),
            (7, 1),
            (8, 1),
            (9, 2),
            (11, 2),
            (12, 3),
            (14, 3),
            (15, 4),
            (16, 4),
            (17, 5),
            (20, 6),
            (25, 8),
            (30, 10),
            (50, 18),
            (100, 40),
        ];
        for (count, expected) in tables {
            assert_eq!(rank(count), Some(expected), "{count} values");
        }
    }

    #[test]
    fn too_few_values_have_no_interval() {
        for count in 0..MIN_ROUNDS {
            assert_eq!(interval(&vec![1.0; count]), None);
        }
        assert!(interval(&[1.0; MIN_ROUNDS]).is_some());
    }

    #[test]
    fn fifteen_values_in_any_order() {
        let values = [
            8.0, 15.0, 1.0, 7.0, 3.0, 14.0, 2.0, 13.0, 5.0, 9.0, 4.0, 12.0, 6.0, 11.0, 10.0,
        ];
        let expected = Interval {
            median: 8.0,
            low: 4.0,
            high: 12.0,
        };
        assert_eq!(interval(&values), Some(expected));
    }

    #[test]
    fn an_even_number_has_its_median_between_two() {
        let values = [1.0, 2.0, 3.0, 5.0, 8.0, 13.0];
        let expected = Interval {
            median: 4.0,
            low: 1.0,
            high: 13.0,
        };
        assert_eq!(interval(&values), Some(expected));
        assert_eq!(median(&values), Some(4.0));
        assert_eq!(median(&[2.0, 1.0]), Some(1.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn as_many_rounds_as_the_command_line_takes() {
        assert_eq!(rank(1000), Some(469));
    }

    #[test]
    fn outliers_do_not_move_the_mean() {
        assert_eq!(interquartile_mean(&[20.0, 21.0, 21.0, 9000.0]), Some(21.0));
        assert_eq!(interquartile_mean(&[20.0, 21.0]), Some(20.5));
        assert_eq!(interquartile_mean(&[]), None);
    }
}
