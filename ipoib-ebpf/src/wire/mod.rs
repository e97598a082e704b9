//! Wire formats: the link headers, the two IP headers and the Internet checksum.

use crate::tables::LocalAddress;

pub mod checksum;
pub mod ipv4;
pub mod ipv6;
pub mod link;

/// IP protocol numbers that the logic tells apart (IANA "Protocol Numbers").
pub mod protocol {
    /// Transmission Control Protocol.
    pub const TCP: u8 = 6;
    /// User Datagram Protocol.
    pub const UDP: u8 = 17;
}

/// Address families as the kernel numbers them (`AF_INET`, `AF_INET6`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Family {
    /// IPv4.
    Ipv4 = 2,
    /// IPv6.
    Ipv6 = 10,
}

/// An IP address in network byte order; IPv4 uses the first word and leaves the others 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct Address {
    /// The address, 4-byte words in network byte order.
    pub words: [u32; 4],
}

impl Address {
    /// From the four bytes of an IPv4 address.
    #[inline(always)]
    pub const fn v4(bytes: [u8; 4]) -> Self {
        Address {
            words: [u32::from_ne_bytes(bytes), 0, 0, 0],
        }
    }

    /// From the sixteen bytes of an IPv6 address.
    #[inline(always)]
    pub const fn v6(b: &[u8; 16]) -> Self {
        Address {
            words: [
                u32::from_ne_bytes([b[0], b[1], b[2], b[3]]),
                u32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
                u32::from_ne_bytes([b[8], b[9], b[10], b[11]]),
                u32::from_ne_bytes([b[12], b[13], b[14], b[15]]),
            ],
        }
    }
}

impl Header {
    /// One of the packet's addresses as a key of the host's own.
    #[inline(always)]
    pub fn local(&self, address: Address) -> LocalAddress {
        LocalAddress {
            family: self.family as u32,
            address,
        }
    }
}

/// What the logic reads out of an IP packet that it may forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// IPv4 or IPv6.
    pub family: Family,
    /// Bytes of the IP header.
    pub header_len: usize,
    /// Bytes of the IP packet, header included.
    pub total_len: usize,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// IP protocol of the payload.
    pub protocol: u8,
    /// IPv4 type of service, DSCP and ECN bits.
    pub tos: u8,
    /// IPv6 traffic class and flow label as they stand in the header, network byte order.
    pub flow_info: u32,
    /// Source address.
    pub source: Address,
    /// Destination address.
    pub destination: Address,
}
