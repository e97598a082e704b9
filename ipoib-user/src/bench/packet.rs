//! The packets whose forwarding is measured: UDP with 64 bytes of payload, as n1 sends them to the
//! gateway and as they must reach n2. They go to many addresses behind n2, one flow each: a gateway
//! sees no two packets in a row of one flow, and the kernel would look a route up once for them all.

use super::topology::{self, Mac};
use crate::show::Family;
use ipoib_ebpf::wire::link::{ETHERNET_LEN, ethertype};
use ipoib_ebpf::wire::{ipv4, ipv6, protocol};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Bytes behind the UDP header.
const PAYLOAD: usize = 64;
const UDP_LEN: usize = 8;
/// The discard service.
const PORT: u16 = 9;
/// Flows, a power of two: the low bits of the destination address that vary.
pub const FLOWS: u16 = 256;

/// A frame of flow 0, and where the other flows differ from it.
///
/// Flow `n` has `n` in the last two bytes of the destination address, and `!n` as source port and
/// as IPv4 identification: address and complement add up to the same, so the checksums hold for
/// every flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The frame, from the Ethernet header on.
    pub frame: Vec<u8>,
    /// Bytes of it that are headers.
    pub header_len: usize,
    /// Offset of the two bytes that hold the flow's number.
    pub number_at: usize,
    /// Offsets of the pairs of bytes that hold its complement.
    pub complement_at: Vec<usize>,
}

impl Packet {
    /// Whether flows differ in the byte at that offset.
    pub fn varies_at(&self, at: usize) -> bool {
        let starts = self.complement_at.iter().chain([&self.number_at]);
        starts
            .into_iter()
            .any(|&start| (start..start + 2).contains(&at))
    }

    /// The frame of a flow.
    #[cfg(test)]
    pub fn of_flow(&self, number: u16) -> Vec<u8> {
        let mut frame = self.frame.clone();
        frame[self.number_at..][..2].copy_from_slice(&number.to_be_bytes());
        for &at in &self.complement_at {
            frame[at..][..2].copy_from_slice(&(!number).to_be_bytes());
        }
        frame
    }
}

/// What n1 sends to the gateway, with that TTL or hop limit.
pub fn sent(family: Family, hop_limit: u8) -> Packet {
    packet(
        family,
        topology::FABRIC_GATEWAY,
        topology::FABRIC_HOST,
        hop_limit,
    )
}

/// What reaches n2 of a packet that was sent with that TTL or hop limit, above 1.
pub fn forwarded(family: Family, hop_limit: u8) -> Packet {
    packet(
        family,
        topology::ETHERNET_HOST,
        topology::ETHERNET_GATEWAY,
        hop_limit - 1,
    )
}

/// Offset of the TTL or hop limit in a frame.
pub fn hop_limit_at(family: Family) -> usize {
    match family {
        Family::Ipv4 => ETHERNET_LEN + 8,
        Family::Ipv6 => ETHERNET_LEN + 7,
    }
}

fn packet(family: Family, to: Mac, from: Mac, hop_limit: u8) -> Packet {
    let ip_len = match family {
        Family::Ipv4 => ipv4::HEADER_LEN,
        Family::Ipv6 => ipv6::HEADER_LEN,
    };
    let mut frame = vec![0; ETHERNET_LEN + ip_len + UDP_LEN + PAYLOAD];
    let (ethernet, rest) = frame.split_at_mut(ETHERNET_LEN);
    let (ip, udp) = rest.split_at_mut(ip_len);
    ethernet[..6].copy_from_slice(&to);
    ethernet[6..12].copy_from_slice(&from);
    let (kind, addresses_at) = match family {
        Family::Ipv4 => {
            write_ipv4(ip, hop_limit, udp.len());
            (ethertype::IPV4, 12)
        }
        Family::Ipv6 => {
            write_ipv6(ip, hop_limit, udp.len());
            (ethertype::IPV6, 8)
        }
    };
    ethernet[12..].copy_from_slice(&kind.to_be_bytes());
    write_udp(udp, &ip[addresses_at..]);
    let ports_at = ETHERNET_LEN + ip_len;
    Packet {
        frame,
        header_len: ports_at + UDP_LEN,
        number_at: ports_at - 2,
        complement_at: match family {
            Family::Ipv4 => vec![ETHERNET_LEN + 4, ports_at],
            Family::Ipv6 => vec![ports_at],
        },
    }
}

fn write_ipv4(header: &mut [u8], ttl: u8, payload: usize) {
    header[0] = 0x45;
    header[2..4].copy_from_slice(&((ipv4::HEADER_LEN + payload) as u16).to_be_bytes());
    header[4..6].copy_from_slice(&u16::MAX.to_be_bytes());
    header[8] = ttl;
    header[9] = protocol::UDP;
    header[12..16].copy_from_slice(&Ipv4Addr::octets(&topology::SOURCE_IPV4));
    header[16..20].copy_from_slice(&Ipv4Addr::octets(&topology::BEHIND_IPV4));
    let sum = checksum(0, header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn write_ipv6(header: &mut [u8], hop_limit: u8, payload: usize) {
    header[0] = 0x60;
    header[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
    header[6] = protocol::UDP;
    header[7] = hop_limit;
    header[8..24].copy_from_slice(&Ipv6Addr::octets(&topology::SOURCE_IPV6));
    header[24..40].copy_from_slice(&Ipv6Addr::octets(&topology::BEHIND_IPV6));
}

/// Writes the UDP header of flow 0 in front of a payload of zeros.
fn write_udp(udp: &mut [u8], addresses: &[u8]) {
    let len = udp.len() as u16;
    udp[0..2].copy_from_slice(&u16::MAX.to_be_bytes());
    udp[2..4].copy_from_slice(&PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&len.to_be_bytes());
    let pseudo = checksum(u32::from(protocol::UDP) + u32::from(len), addresses);
    let sum = match checksum(u32::from(!pseudo), udp) {
        // 0 says that there is none (RFC 768).
        0 => u16::MAX,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(start: u32, bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum = start + words.sum::<u32>();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_has_right_checksums() {
        for family in Family::ALL {
            let packet = sent(family, 64);
            for number in [0, 1, FLOWS - 1] {
                let frame = packet.of_flow(number);
                let ip = &frame[ETHERNET_LEN..];
                let (udp, addresses) = match family {
                    Family::Ipv4 => {
                        assert_eq!(checksum(0, &ip[..20]), 0, "header of flow {number}");
                        (&ip[20..], &ip[12..20])
                    }
                    Family::Ipv6 => (&ip[40..], &ip[8..40]),
                };
                let pseudo = checksum(17 + udp.len() as u32, addresses);
                assert_eq!(
                    checksum(u32::from(!pseudo), udp),
                    0,
                    "{family:?}, flow {number}"
                );
            }
        }
    }

    #[test]
    fn forwarding_changes_link_header_hop_limit_and_its_checksum() {
        for family in Family::ALL {
            let (sent, forwarded) = (sent(family, 64), forwarded(family, 64));
            let differ: Vec<usize> = (ETHERNET_LEN..sent.frame.len())
                .filter(|&at| sent.frame[at] != forwarded.frame[at])
                .collect();
            let at = hop_limit_at(family);
            match family {
                Family::Ipv4 => assert_eq!(differ, [at, at + 2]),
                Family::Ipv6 => assert_eq!(differ, [at]),
            }
            assert_eq!((sent.frame[at], forwarded.frame[at]), (64, 63));
            assert_eq!(sent.frame.len(), sent.header_len + PAYLOAD);
        }
    }
}
