//! The IPv4 header (RFC 791), read as a router has to (RFC 1812 section 5.2.2).

use super::checksum;
use super::{Address, Family, Header};
use crate::verdict::Reason;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
const MORE_FRAGMENTS_AND_OFFSET: u16 = 0x3fff;

/// Reads a header. Errors are the reasons for which the kernel gets the packet.
#[inline(always)]
pub fn read(header: &[u8; HEADER_LEN]) -> Result<Header, Reason> {
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
    let total_len = u16::from_be_bytes([header[2], header[3]]) as usize;
    if total_len < HEADER_LEN {
        return Err(Reason::Malformed);
    }
    if u16::from_be_bytes([header[6], header[7]]) & MORE_FRAGMENTS_AND_OFFSET != 0 {
        return Err(Reason::Fragment);
    }
    let source = [header[12], header[13], header[14], header[15]];
    let destination = [header[16], header[17], header[18], header[19]];
    if is_martian(source) || is_multicast(source) || is_martian(destination) {
        return Err(Reason::Martian);
    }
    if is_multicast(destination) {
        return Err(Reason::Multicast);
    }
    Ok(Header {
        family: Family::Ipv4,
        header_len: HEADER_LEN,
        total_len,
        hop_limit: header[8],
        protocol: header[9],
        tos: header[1],
        flow_info: 0,
        source: Address::v4(source),
        destination: Address::v4(destination),
    })
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
fn is_martian(a: [u8; 4]) -> bool {
    a[0] == 0 || a[0] == 127
}

/// Multicast 224/4 and the limited broadcast address.
#[inline(always)]
fn is_multicast(a: [u8; 4]) -> bool {
    a[0] & 0xf0 == 0xe0 || (a[0] & a[1] & a[2] & a[3]) == 0xff
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
        read(&header)
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
        assert_eq!(read(&bad), Err(Reason::Malformed));
    }
}
