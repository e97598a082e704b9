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
    /// 0.0.0.0 or ::.
    pub const UNSPECIFIED: Address = Address { words: [0; 4] };

    /// From the four bytes of an IPv4 address.
    #[inline(always)]
    pub const fn v4(bytes: [u8; 4]) -> Self {
        Address {
            words: [u32::from_ne_bytes(bytes), 0, 0, 0],
        }
    }

    /// From the sixteen bytes of an IPv6 address.
    #[inline(always)]
    pub fn v6(bytes: &[u8; 16]) -> Self {
        Address {
            words: [
                word(bytes, 0),
                word(bytes, 4),
                word(bytes, 8),
                word(bytes, 12),
            ],
        }
    }
}

/// `M` bytes of a header. Copied as one piece, and not byte by byte, so that the program loads a
/// field with one instruction.
#[inline(always)]
pub fn field<const M: usize, const N: usize>(header: &[u8; N], at: usize) -> [u8; M] {
    let mut field = [0; M];
    field.copy_from_slice(&header[at..at + M]);
    field
}

/// Four bytes as they lie in memory, which is network byte order.
#[inline(always)]
pub fn word<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes(field(header, at))
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
