//! The IPv6 header (RFC 8200) and the addresses that a router must not forward (RFC 4291).

use super::{Address, Family, Header, field, word};
use crate::verdict::Reason;

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;
/// The least MTU of a link (RFC 8200 section 5).
pub const MIN_MTU: u16 = 1280;
/// Traffic class and flow label in the first word.
const FLOW_INFO: u32 = 0x0fff_ffff;

/// Refuses a header for which the kernel must get the packet.
#[inline(always)]
pub fn check(header: &[u8; HEADER_LEN]) -> Result<(), Reason> {
    if header[0] >> 4 != 6 {
        return Err(Reason::Malformed);
    }
    match header[6] {
        44 => return Err(Reason::Fragment),
        // Hop-by-hop, routing, authentication, no next header, destination options, mobility, HIP,
        // shim6: something other than a transport follows (IANA "IPv6 Extension Header Types").
        0 | 43 | 51 | 59 | 60 | 135 | 139 | 140 | 253 | 254 => return Err(Reason::ExtensionHeader),
        _ => {}
    }
    let Header {
        source,
        destination,
        ..
    } = read(header);
    if is_multicast(destination) {
        return Err(Reason::Multicast);
    }
    if is_martian(source) || is_multicast(source) || is_martian(destination) {
        return Err(Reason::Martian);
    }
    if is_link_local(source) || is_link_local(destination) {
        return Err(Reason::LinkLocal);
    }
    Ok(())
}

/// Reads a header that has passed [`check`].
#[inline(always)]
pub fn read(header: &[u8; HEADER_LEN]) -> Header {
    Header {
        family: Family::Ipv6,
        header_len: HEADER_LEN,
        total_len: HEADER_LEN + u16::from_be_bytes(field(header, 4)) as usize,
        hop_limit: header[7],
        protocol: header[6],
        tos: 0,
        flow_info: word(header, 0) & FLOW_INFO.to_be(),
        source: Address::v6(&field(header, 8)),
        destination: Address::v6(&field(header, 24)),
    }
}

/// `::`, `::1` and IPv4-mapped addresses: never on a wire (the kernel's `ip6_rcv_core()`).
#[inline(always)]
fn is_martian(address: Address) -> bool {
    let [a, b, c, d] = address.words;
    a | b == 0 && (c == 0 && u32::from_be(d) <= 1 || c == 0xffff_u32.to_be())
}

/// ff00::/8.
#[inline(always)]
fn is_multicast(address: Address) -> bool {
    is_in(address, 0xff00_0000, 0xff00_0000)
}

/// fe80::/10.
#[inline(always)]
fn is_link_local(address: Address) -> bool {
    is_in(address, 0xffc0_0000, 0xfe80_0000)
}

/// Whether the first word, under a mask, is the prefix; both in host order.
#[inline(always)]
fn is_in(address: Address, mask: u32, prefix: u32) -> bool {
    address.words[0] & mask.to_be() == prefix.to_be()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv6Addr;

    fn header(next: u8, source: &str, destination: &str) -> Result<Header, Reason> {
        let mut h = [0u8; 40];
        h[0] = 0x6a;
        h[1] = 0xbc;
        h[3] = 0xde;
        h[5] = 32;
        h[6] = next;
        h[7] = 64;
        h[8..24].copy_from_slice(&source.parse::<Ipv6Addr>().unwrap().octets());
        h[24..].copy_from_slice(&destination.parse::<Ipv6Addr>().unwrap().octets());
        check(&h).map(|()| read(&h))
    }

    #[test]
    fn a_plain_header_is_read_field_by_field() {
        let h = header(17, "fd00:1::2", "fd00:2::3").unwrap();
        assert_eq!((h.total_len, h.hop_limit, h.protocol), (72, 64, 17));
        assert_eq!(h.flow_info.to_ne_bytes(), [0x0a, 0xbc, 0, 0xde]);
        assert_eq!(
            h.source,
            Address::v6(&"fd00:1::2".parse::<Ipv6Addr>().unwrap().octets())
        );
        assert_eq!(
            h.destination,
            Address::v6(&"fd00:2::3".parse::<Ipv6Addr>().unwrap().octets())
        );
    }

    #[test]
    fn what_must_not_be_forwarded_is_named() {
        let to = |d| header(17, "fd00:1::2", d);
        let from = |s| header(17, s, "fd00:2::3");
        assert_eq!(header(44, "fd00:1::2", "fd00:2::3"), Err(Reason::Fragment));
        for extension in [0, 43, 51, 59, 60, 135, 139, 140, 253, 254] {
            assert_eq!(
                header(extension, "fd00:1::2", "fd00:2::3"),
                Err(Reason::ExtensionHeader)
            );
        }
        assert_eq!(to("ff02::1"), Err(Reason::Multicast));
        assert_eq!(to("::1"), Err(Reason::Martian));
        assert_eq!(to("::"), Err(Reason::Martian));
        assert_eq!(to("fe80::1"), Err(Reason::LinkLocal));
        assert_eq!(to("febf::1"), Err(Reason::LinkLocal));
        assert!(to("fec0::1").is_ok());
        assert_eq!(from("::"), Err(Reason::Martian));
        assert_eq!(from("::1"), Err(Reason::Martian));
        assert_eq!(from("::ffff:10.0.0.1"), Err(Reason::Martian));
        assert_eq!(from("ff05::1"), Err(Reason::Martian));
        assert_eq!(from("fe80::2"), Err(Reason::LinkLocal));
        let mut wrong = [0u8; 40];
        wrong[0] = 0x45;
        assert_eq!(check(&wrong), Err(Reason::Malformed));
    }
}
