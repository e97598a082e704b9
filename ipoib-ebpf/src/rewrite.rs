//! Changes to a packet that is going to be forwarded: TTL or hop limit, padding, link header.
//! Every check has been made before; what still fails here is said exactly.

use crate::packet::{Packet, ResizeError};
use crate::verdict::{Reason, Refusal};
use crate::wire::checksum;
use crate::wire::link::{ETHERNET_LEN, LinkHeader, LinkLayer, ethertype};
use crate::wire::{Family, Header, field, ipv4, ipv6};

/// Cuts link-layer padding, makes room for the outgoing link header and steps the hop limit down.
///
/// `Err` is what becomes of the packet instead.
#[inline(always)]
pub fn for_egress<I: LinkHeader, P: Packet>(
    packet: &mut P,
    header: &Header,
    out: LinkLayer,
    update_priority: bool,
) -> Result<(), Refusal> {
    if packet.len() > I::LEN + header.total_len {
        packet.trim(I::LEN + header.total_len).map_err(refused)?;
    }
    let ip_at = match (I::LAYER, out) {
        (LinkLayer::Ipoib, LinkLayer::Ethernet) => {
            packet.ipoib_to_ethernet().map_err(refused)?;
            write_ethernet_header(packet, header.family)?;
            ETHERNET_LEN
        }
        (LinkLayer::None, LinkLayer::Ethernet | LinkLayer::Ipoib) => {
            packet.push_ethernet().map_err(refused)?;
            write_ethernet_header(packet, header.family)?;
            ETHERNET_LEN
        }
        _ => I::LEN,
    };
    decrement_hop_limit(packet, ip_at, header.family)
        .ok_or(Refusal::Drop(Reason::RewriteFailed))?;
    if header.family == Family::Ipv4 && update_priority {
        packet.set_priority(ipv4::priority(header.tos));
    }
    Ok(())
}

#[inline(always)]
fn refused(error: ResizeError) -> Refusal {
    match error {
        ResizeError::Unchanged => Refusal::HandUp(Reason::ResizeRefused),
        ResizeError::Broken => Refusal::Drop(Reason::RewriteFailed),
    }
}

/// Zero addresses, which the kernel's neighbour code replaces, and the ethertype.
#[inline(always)]
fn write_ethernet_header<P: Packet>(packet: &mut P, family: Family) -> Result<(), Refusal> {
    let ethertype = match family {
        Family::Ipv4 => ethertype::IPV4,
        Family::Ipv6 => ethertype::IPV6,
    };
    let [high, low] = ethertype.to_be_bytes();
    let bytes = packet
        .bytes_mut::<ETHERNET_LEN>(0)
        .ok_or(Refusal::Drop(Reason::RewriteFailed))?;
    *bytes = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low];
    Ok(())
}

/// Steps TTL or hop limit down by one; the caller has seen that it is above 1.
///
/// IPv4: the header's checksum changes with it, so their sum, and a checksum that the device
/// computed over the packet, stay the same. IPv6 has no such balance: the kernel must be told.
#[inline(always)]
fn decrement_hop_limit<P: Packet>(packet: &mut P, ip_at: usize, family: Family) -> Option<()> {
    match family {
        Family::Ipv4 => {
            let header = packet.bytes_mut::<{ ipv4::HEADER_LEN }>(ip_at)?;
            header[8] = header[8].wrapping_sub(1);
            let checksum = checksum::after_ttl_decrement(field(header, 10));
            header[10..12].copy_from_slice(&checksum);
        }
        Family::Ipv6 => {
            let header = packet.bytes_mut::<{ ipv6::HEADER_LEN }>(ip_at)?;
            let old = field(header, 6);
            let new = [old[0], old[1].wrapping_sub(1)];
            header[7] = new[1];
            packet.word_changed(old, new);
        }
    }
    Some(())
}
