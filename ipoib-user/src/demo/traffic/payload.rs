//! What the flows carry: numbered units whose every byte follows from the flow and the number, so
//! that a receiver knows what should have come without having been told.

/// Bytes of a datagram's header: flow and number.
pub const HEADER: usize = 16;

/// Fills a unit's content.
pub fn fill(flow: u32, number: u64, content: &mut [u8]) {
    let mut words = Words::new(flow, number);
    let mut chunks = content.chunks_exact_mut(8);
    for chunk in &mut chunks {
        chunk.copy_from_slice(&words.next().to_le_bytes());
    }
    let rest = chunks.into_remainder();
    rest.copy_from_slice(&words.next().to_le_bytes()[..rest.len()]);
}

/// Whether that is a unit's content, byte for byte.
pub fn matches(flow: u32, number: u64, content: &[u8]) -> bool {
    let mut words = Words::new(flow, number);
    let mut chunks = content.chunks_exact(8);
    let whole = chunks.all(|chunk| chunk == words.next().to_le_bytes());
    let rest = chunks.remainder();
    whole && *rest == words.next().to_le_bytes()[..rest.len()]
}

/// Writes a datagram: header and content.
pub fn write(flow: u32, number: u64, datagram: &mut [u8]) {
    let (header, content) = datagram.split_at_mut(HEADER);
    header[..8].copy_from_slice(&u64::from(flow).to_be_bytes());
    header[8..].copy_from_slice(&number.to_be_bytes());
    fill(flow, number, content);
}

/// The number of a datagram of this flow, or `None` for one that is not as it was written.
/// `len_of` says how long the datagram of a number is.
pub fn read(flow: u32, datagram: &[u8], len_of: impl Fn(u64) -> usize) -> Option<u64> {
    let (header, content) = datagram.split_at_checked(HEADER)?;
    let word = |at: usize| header[at..at + 8].try_into().map(u64::from_be_bytes).ok();
    let number = word(8)?;
    let ours = word(0)? == u64::from(flow)
        && datagram.len() == len_of(number)
        && matches(flow, number, content);
    ours.then_some(number)
}

/// An endless sequence of words: Weyl's sequence, mixed (`SplitMix64`, Steele et al., 2014).
struct Words(u64);

impl Words {
    fn new(flow: u32, number: u64) -> Words {
        let mut seed = Words(u64::from(flow));
        Words(seed.next() ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(flow: u32, number: u64, len: usize) -> Vec<u8> {
        let mut datagram = vec![0; len];
        write(flow, number, &mut datagram);
        datagram
    }

    #[test]
    fn what_was_written_is_read_back() {
        for len in HEADER..HEADER + 20 {
            assert_eq!(
                read(3, &datagram(3, 7, len), |_| len),
                Some(7),
                "{len} bytes"
            );
        }
    }

    #[test]
    fn another_flow_or_length_is_not_taken() {
        assert_eq!(read(4, &datagram(3, 7, 64), |_| 64), None);
        assert_eq!(read(3, &datagram(3, 7, 64), |_| 65), None);
        assert_eq!(
            read(3, &datagram(3, 7, 64)[..HEADER - 1], |_| HEADER - 1),
            None
        );
        assert_eq!(read(3, &[], |_| 0), None);
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let good = datagram(3, 7, 61);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_eq!(read(3, &bad, |_| 61), None, "byte {at}");
        }
    }

    #[test]
    fn units_differ_from_each_other() {
        let (mut a, mut b) = ([0; 64], [0; 64]);
        fill(1, 1, &mut a);
        fill(1, 2, &mut b);
        assert_ne!(a, b);
        assert!(matches(1, 1, &a) && !matches(1, 1, &b) && !matches(2, 1, &a));
    }
}
