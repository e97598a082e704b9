//! The IPv4 header (RFC 791), read as a router has to (RFC 1812 section 5.2.2).

use super::checksum;
use super::{Address, Family, Header, field, word};
use crate::verdict::Reason;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
const MORE_FRAGMENTS_AND_OFFSET: u16 = 0x3fff;

/// Refuses a header for which the kernel must get the packet.
#[inline(always)]
pub fn check(header: &[u8; HEADER_LEN]) -> Result<(), Reason> {
    if header[0] >> 4 != 4 {
        return Err(Reason::Malformed);
    }
    match header[0] & 0xf {
        0..5 => return Err(Reason::Malformed),
        5 => {}
        _ => return Err(Reason::IpOptions),
    }
    if !checksum::ipv4_header_is_valid(header) {
        return Err(Reason::Malformed);
    }
    if read(header).total_len < HEADER_LEN {
        return Err(Reason::Malformed);
    }
    if u16::from_be_bytes(field(header, 6)) & MORE_FRAGMENTS_AND_OFFSET != 0 {
        return Err(Reason::Fragment);
    }
    let (source, destination) = (word(header, 12), word(header, 16));
    if is_martian(source) || is_multicast(source) || is_martian(destination) {
        return Err(Reason::Martian);
    }
    if is_multicast(destination) {
        return Err(Reason::Multicast);
    }
    Ok(())
}

/// Reads a header that has passed [`check`].
#[inline(always)]
pub fn read(header: &[u8; HEADER_LEN]) -> Header {
    Header {
        family: Family::Ipv4,
        header_len: HEADER_LEN,
        total_len: u16::from_be_bytes(field(header, 2)) as usize,
        hop_limit: header[8],
        protocol: header[9],
        tos: header[1],
        flow_info: 0,
        source: Address::v4(field(header, 12)),
        destination: Address::v4(field(header, 16)),
    }
}

/// The queueing priority that the kernel's forwarding gives a packet (`rt_tos2priority()`): by the
/// two upper bits of the four that RFC 1349 called type of service.
#[inline(always)]
pub fn priority(tos: u8) -> u32 {
    // TC_PRIO_BESTEFFORT, _BULK, _INTERACTIVE, _INTERACTIVE_BULK of linux/pkt_sched.h.
    match tos >> 3 & 3 {
        0 => 0,
        1 => 2,
        2 => 6,
        _ => 4,
    }
}

/// "This network" 0/8 and loopback 127/8: never on a wire (RFC 1122 section 3.2.1.3).
#[inline(always)]
fn is_martian(address: u32) -> bool {
    let network = u32::from_be(address) >> 24;
    network == 0 || network == 127
}

/// Multicast 224/4 and the limited broadcast address.
#[inline(always)]
fn is_multicast(address: u32) -> bool {
    u32::from_be(address) >> 28 == 0xe || address == u32::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [u8; 20] = [
        0x45, 0x08, 0x00, 0x54, 0x12, 0x34, 0x40, 0x00, 0x40, 0x01, 0x13, 0x66, 10, 0, 0, 1, 10, 0,
        1, 2,
    ];

    fn with(at: usize, value: &[u8]) -> Result<Header, Reason> {
        let mut header = GOOD;
        header[at..at + value.len()].copy_from_slice(value);
        (header[10], header[11]) = (0, 0);
        let mut sum: u32 = header
            .chunks(2)
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
            .sum();
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        [header[10], header[11]] = (!(sum as u16)).to_be_bytes();
        check(&header).map(|()| read(&header))
    }

    #[test]
    fn a_plain_header_is_read_field_by_field() {
        let header = with(0, &[]).unwrap();
        assert_eq!(
            (
                header.total_len,
                header.hop_limit,
                header.protocol,
                header.tos
            ),
            (84, 64, 1, 8)
        );
        assert_eq!(header.source, Address::v4([10, 0, 0, 1]));
        assert_eq!(header.destination, Address::v4([10, 0, 1, 2]));
    }

    #[test]
    fn what_must_not_be_forwarded_is_named() {
        assert_eq!(with(0, &[0x65]), Err(Reason::Malformed));
        assert_eq!(with(0, &[0x44]), Err(Reason::Malformed));
        assert_eq!(with(0, &[0x46]), Err(Reason::IpOptions));
        assert_eq!(with(2, &[0, 19]), Err(Reason::Malformed));
        assert_eq!(with(6, &[0x20, 0]), Err(Reason::Fragment));
        assert_eq!(with(6, &[0, 1]), Err(Reason::Fragment));
        assert_eq!(with(12, &[0, 1, 2, 3]), Err(Reason::Martian));
        assert_eq!(with(12, &[127, 0, 0, 1]), Err(Reason::Martian));
        assert_eq!(with(12, &[224, 0, 0, 1]), Err(Reason::Martian));
        assert_eq!(with(12, &[255, 255, 255, 255]), Err(Reason::Martian));
        assert_eq!(with(16, &[127, 0, 0, 1]), Err(Reason::Martian));
        assert_eq!(with(16, &[239, 1, 2, 3]), Err(Reason::Multicast));
        assert_eq!(with(16, &[255, 255, 255, 255]), Err(Reason::Multicast));
        let mut bad = GOOD;
        bad[10] ^= 1;
        assert_eq!(check(&bad), Err(Reason::Malformed));
    }
}
