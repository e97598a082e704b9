//! Which numbers of a sequence have arrived. Memory grows with the gaps, not with the length.

use std::collections::BTreeMap;

/// Numbers from 0 on, each of which should arrive once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// One more than the highest number that has arrived.
    next: u64,
    /// Ranges below `next` that have not arrived: first number to one past the last.
    missing: BTreeMap<u64, u64>,
}

impl Sequence {
    /// Notes an arrival; returns whether it is the number's first.
    pub fn arrive(&mut self, number: u64) -> bool {
        if number >= self.next {
            if number > self.next {
                self.missing.insert(self.next, number);
            }
            self.next = number + 1;
            return true;
        }
        let gap = self
            .missing
            .range(..=number)
            .next_back()
            .map(|(&start, &end)| (start, end));
        let Some((start, end)) = gap.filter(|(_, end)| number < *end) else {
            return false;
        };
        self.missing.remove(&start);
        if start < number {
            self.missing.insert(start, number);
        }
        if number + 1 < end {
            self.missing.insert(number + 1, end);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `arrivals` are firsts, which is what a flow counts as received.
    fn received(arrivals: &[u64]) -> usize {
        let mut sequence = Sequence::default();
        arrivals
            .iter()
            .filter(|&&number| sequence.arrive(number))
            .count()
    }

    #[test]
    fn in_order_everything_counts() {
        assert_eq!(received(&[0, 1, 2, 3]), 4);
    }

    #[test]
    fn duplicates_count_once() {
        assert_eq!(received(&[0, 0, 1, 2, 1, 0, 2]), 3);
    }

    #[test]
    fn a_duplicate_does_not_hide_a_loss() {
        // 0..5 were sent, 3 was lost, 2 came twice.
        assert_eq!(received(&[0, 1, 2, 2, 4]), 4);
    }

    #[test]
    fn the_reordered_are_not_lost() {
        assert_eq!(received(&[4, 2, 0, 3, 1]), 5);
        assert_eq!(received(&[4, 2, 2, 0, 4, 3, 1, 0]), 5);
    }

    #[test]
    fn every_order_with_duplicates_counts_like_a_set() {
        // All sequences of 5 out of the numbers 0..5.
        for code in 0..5u64.pow(5) {
            let arrivals: Vec<u64> = (0..5).map(|digit| code / 5u64.pow(digit) % 5).collect();
            let set: std::collections::BTreeSet<_> = arrivals.iter().collect();
            assert_eq!(received(&arrivals), set.len(), "{arrivals:?}");
        }
    }

    #[test]
    fn a_long_gap_is_one_range() {
        let mut sequence = Sequence::default();
        assert!(sequence.arrive(u64::from(u32::MAX)));
        assert_eq!(sequence.missing.len(), 1);
        assert!(sequence.arrive(1_000_000));
        assert_eq!(sequence.missing.len(), 2);
        assert!(!sequence.arrive(1_000_000));
    }
}
