//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).

use super::word;

/// Whether the checksum of a 20-byte IPv4 header is right.
#[inline(always)]
pub fn ipv4_header_is_valid(header: &[u8; 20]) -> bool {
    let mut sum = 0u64;
    let mut at = 0;
    while at < 20 {
        sum += u64::from(word(header, at));
        at += 4;
    }
    fold(sum) == 0xffff
}

/// Folds a sum of 32-bit words to 16 bits with end-around carry.
#[inline(always)]
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

/// The checksum field after the TTL in front of it went down by one: the kernel's
/// `ip_decrease_ttl()`.
#[inline(always)]
pub fn after_ttl_decrement(checksum: [u8; 2]) -> [u8; 2] {
    let sum = u16::from_be_bytes(checksum) as u32 + 0x0100;
    ((sum + (sum >= 0xffff) as u32) as u16).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn full(header: &[u8; 20]) -> u16 {
        let mut sum: u32 = header
            .chunks(2)
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
            .sum();
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    proptest! {
        #[test]
        fn decrementing_keeps_a_right_checksum_right(mut header: [u8; 20], ttl in 1u8..) {
            header[8] = ttl;
            (header[10], header[11]) = (0, 0);
            [header[10], header[11]] = full(&header).to_be_bytes();
            prop_assert!(ipv4_header_is_valid(&header));
            header[8] -= 1;
            [header[10], header[11]] = after_ttl_decrement([header[10], header[11]]);
            prop_assert!(ipv4_header_is_valid(&header));
        }

        #[test]
        fn a_changed_word_is_noticed(mut header: [u8; 20], at in 0usize..10, by in 1u16..0xffff) {
            (header[10], header[11]) = (0, 0);
            [header[10], header[11]] = full(&header).to_be_bytes();
            let word = u16::from_be_bytes([header[2 * at], header[2 * at + 1]]);
            [header[2 * at], header[2 * at + 1]] = word.wrapping_add(by).to_be_bytes();
            // 0x0000 and 0xffff are the same number to a one's complement sum.
            prop_assume!(word % 0xffff != word.wrapping_add(by) % 0xffff);
            prop_assert!(!ipv4_header_is_valid(&header));
        }
    }
}
