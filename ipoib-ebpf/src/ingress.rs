//! The road of a packet that arrives on a port: read it, ask the kernel's routing, check everything
//! that could forbid forwarding, and only then change it.
//!
//! When in doubt the kernel gets the packet, untouched.

use crate::packet::Packet;
use crate::rewrite;
use crate::tables::{Host, NO_PORT, Port, Route, RouteQuery, Tables, link_layer};
use crate::verdict::{Forward, Reason, Verdict, Via};
use crate::wire::link::{Ethernet, Ipoib, LinkHeader, LinkLayer, NoLink, ethertype};
use crate::wire::{Family, Header, ipv4, ipv6, protocol};

/// Bytes behind the link header that one look at a packet needs: an IPv6 header and the ports, or
/// the TCP header length.
const LOOK: usize = ipv6::HEADER_LEN + TRANSPORT;
/// Bytes of a transport header that are read.
const TRANSPORT: usize = 14;
/// What `bpf_skb_adjust_room` must leave of the packet beside what it takes (a bare IP header).
const TAKEN_FROM_PACKET: usize = 10;

/// Decides about a packet, changes it where it is forwarded, and counts it.
#[inline(always)]
pub fn ingress<P: Packet, T: Tables<P>>(packet: &mut P, tables: &T) -> Verdict {
    let bytes = packet.len() as u64;
    let Some(port) = tables.port(packet.ifindex()) else {
        let verdict = Verdict::HandUp(Reason::UnknownPort);
        count(tables, NO_PORT, None, verdict, bytes);
        return verdict;
    };
    let outcome = match link_layer(&port) {
        Some(LinkLayer::Ethernet) => decide::<Ethernet, P, T>(packet, tables, &port),
        Some(LinkLayer::Ipoib) => decide::<Ipoib, P, T>(packet, tables, &port),
        Some(LinkLayer::None) => decide::<NoLink, P, T>(packet, tables, &port),
        None => Err(Verdict::HandUp(Reason::UnknownPort)),
    };
    match outcome {
        Ok(sent) => {
            let verdict = Verdict::Forward(sent.forward);
            count(tables, port.slot, Some(sent.family), verdict, bytes);
            tables.count(sent.slot, |row| match sent.family {
                Family::Ipv4 => row.sent_ipv4.add(bytes),
                Family::Ipv6 => row.sent_ipv6.add(bytes),
            });
            verdict
        }
        Err(verdict) => {
            count(tables, port.slot, None, verdict, bytes);
            verdict
        }
    }
}

/// A packet that is ready to leave.
struct Sent {
    forward: Forward,
    family: Family,
    /// Counter row of the port it leaves by.
    slot: u32,
}

#[inline(always)]
fn count<P: Packet, T: Tables<P>>(
    tables: &T,
    slot: u32,
    family: Option<Family>,
    verdict: Verdict,
    bytes: u64,
) {
    tables.count(slot, |row| {
        row.received.add(bytes);
        match verdict {
            Verdict::Forward(_) if family == Some(Family::Ipv6) => row.forwarded_ipv6.add(bytes),
            Verdict::Forward(_) => row.forwarded_ipv4.add(bytes),
            Verdict::HandUp(reason) => row.handed_up.of(reason).add(bytes),
            Verdict::Drop(reason) => row.dropped.of(reason).add(bytes),
        }
    });
}

#[inline(always)]
fn decide<I: LinkHeader, P: Packet, T: Tables<P>>(
    packet: &mut P,
    tables: &T,
    port: &Port,
) -> Result<Sent, Verdict> {
    let host = tables.host();
    if host.held != 0 {
        return Err(Verdict::HandUp(Reason::Held));
    }
    let ifindex = packet.ifindex();
    let query = read::<I, P>(packet, ifindex).map_err(Verdict::HandUp)?;
    let (forward, out, slot) =
        route::<I, P, T>(packet, tables, &host, port, &query).map_err(Verdict::HandUp)?;
    let update_priority = host.update_priority != 0;
    rewrite::for_egress::<I, P>(packet, &query.header, out, update_priority)?;
    Ok(Sent {
        forward,
        family: query.header.family,
        slot,
    })
}

/// Reads the packet and refuses what it shows itself must not be fast-forwarded.
#[inline(always)]
fn read<I: LinkHeader, P: Packet>(packet: &mut P, ifindex: u32) -> Result<RouteQuery, Reason> {
    if !packet.is_for_this_host() {
        return Err(Reason::NotForHost);
    }
    if packet.has_vlan_tag() {
        return Err(Reason::NotCarriedByIpoib);
    }
    // A superpacket may keep all but its link header in page fragments.
    if packet.bytes::<LOOK>(I::LEN).is_none() {
        let enough = packet.len().min(I::LEN + LOOK);
        if !packet.pull(enough) {
            return Err(Reason::Malformed);
        }
    }
    let header = match family::<I, P>(packet)? {
        Family::Ipv4 => ipv4::read(packet.bytes(I::LEN).ok_or(Reason::Malformed)?)?,
        Family::Ipv6 => ipv6::read(packet.bytes(I::LEN).ok_or(Reason::Malformed)?)?,
    };
    // Padding behind the packet is the link layer's; a superpacket has none, and one whose header
    // cannot say its length (BIG TCP) is the kernel's.
    let len = I::LEN + header.total_len;
    if packet.len() < len || packet.gso_size() != 0 && packet.len() != len {
        return Err(Reason::Malformed);
    }
    if header.hop_limit <= 1 {
        return Err(Reason::HopLimit);
    }
    transport::<I, P>(packet, header, ifindex)
}

#[inline(always)]
fn family<I: LinkHeader, P: Packet>(packet: &P) -> Result<Family, Reason> {
    let Some(at) = I::ETHERTYPE else {
        // Four bytes for one nibble: the verifier does not follow the comparison that a look at a
        // single byte is compiled to.
        return match packet.bytes::<4>(0).ok_or(Reason::Malformed)?[0] >> 4 {
            4 => Ok(Family::Ipv4),
            6 => Ok(Family::Ipv6),
            _ => Err(Reason::Malformed),
        };
    };
    match u16::from_be_bytes(*packet.bytes::<2>(at).ok_or(Reason::Malformed)?) {
        ethertype::IPV4 => Ok(Family::Ipv4),
        ethertype::IPV6 => Ok(Family::Ipv6),
        ethertype::ARP => Err(Reason::Arp),
        _ => Err(Reason::NotCarriedByIpoib),
    }
}

/// Ports, and the length of one segment where the packet is a superpacket.
#[inline(always)]
fn transport<I: LinkHeader, P: Packet>(
    packet: &P,
    header: Header,
    ifindex: u32,
) -> Result<RouteQuery, Reason> {
    let at = match header.family {
        Family::Ipv4 => I::LEN + ipv4::HEADER_LEN,
        Family::Ipv6 => I::LEN + ipv6::HEADER_LEN,
    };
    let (mut source_port, mut destination_port, mut transport_len) = (0, 0, 0);
    match header.protocol {
        protocol::TCP => {
            if header.total_len < header.header_len + 20 {
                return Err(Reason::Malformed);
            }
            let tcp = packet.bytes::<TRANSPORT>(at).ok_or(Reason::Malformed)?;
            (source_port, destination_port) = ports([tcp[0], tcp[1], tcp[2], tcp[3]]);
            transport_len = (tcp[12] as u32 >> 4) << 2;
        }
        protocol::UDP => {
            if header.total_len < header.header_len + 8 {
                return Err(Reason::Malformed);
            }
            (source_port, destination_port) = ports(*packet.bytes(at).ok_or(Reason::Malformed)?);
            transport_len = 8;
        }
        _ => {}
    }
    let gso_size = packet.gso_size();
    let segment_len = if gso_size == 0 {
        header.total_len as u32
    } else {
        header.header_len as u32 + transport_len + gso_size
    };
    if segment_len > u16::MAX as u32 {
        return Err(Reason::TooBig);
    }
    let segment_len = segment_len as u16;
    Ok(RouteQuery {
        header,
        ifindex,
        source_port,
        destination_port,
        segment_len,
    })
}

/// Source and destination port, left in network byte order.
#[inline(always)]
fn ports(p: [u8; 4]) -> (u16, u16) {
    (
        u16::from_ne_bytes([p[0], p[1]]),
        u16::from_ne_bytes([p[2], p[3]]),
    )
}

/// Asks the kernel's routing and checks the answer: where the packet leaves, over which link
/// layer, and the counter row of that port.
#[inline(always)]
fn route<I: LinkHeader, P: Packet, T: Tables<P>>(
    packet: &P,
    tables: &T,
    host: &Host,
    port: &Port,
    query: &RouteQuery,
) -> Result<(Forward, LinkLayer, u32), Reason> {
    let header = &query.header;
    if header.family == Family::Ipv6 && host.ipv6_forwarding == 0 {
        return Err(Reason::ForwardingOff);
    }
    if query.segment_len as u32 > host.smallest_route_mtu {
        return Err(Reason::TooBig);
    }
    if tables.is_local(&header.local(header.source)) {
        return Err(Reason::OwnSource);
    }
    let (ifindex, next_hop) = match tables.route(packet, query) {
        Route::Via { ifindex, next_hop } => (ifindex, next_hop),
        Route::NotForwarded if tables.is_local(&header.local(header.destination)) => {
            return Err(Reason::ToThisHost);
        }
        Route::NotForwarded => return Err(Reason::NoRoute),
        Route::Refused => return Err(Reason::RouteRefuses),
        Route::ForwardingOff => return Err(Reason::ForwardingOff),
        Route::TooBig => return Err(Reason::TooBig),
        Route::Unsupported => return Err(Reason::RouteUnsupported),
    };
    if ifindex == query.ifindex {
        return Err(Reason::SamePort);
    }
    let out = tables.port(ifindex).ok_or(Reason::NotAPort)?;
    let out_layer = link_layer(&out).ok_or(Reason::NotAPort)?;
    let via = match (I::LAYER, out_layer) {
        (LinkLayer::Ipoib, LinkLayer::Ipoib) => return Err(Reason::FabricToFabric),
        (LinkLayer::Ipoib, LinkLayer::Ethernet)
            if header.total_len < header.header_len + TAKEN_FROM_PACKET =>
        {
            return Err(Reason::TooShort);
        }
        (_, LinkLayer::None) => Via::Bare,
        _ => Via::Neighbour(next_hop),
    };
    if header.family == Family::Ipv4 && port.rp_filter != 0 {
        match tables.reverse_route(packet, query) {
            Some(back) if port.rp_filter != 1 || back == query.ifindex => {}
            _ => return Err(Reason::ReversePath),
        }
    }
    if packet.gso_size() != 0 && !tables.segments_fit(packet, ifindex) {
        return Err(Reason::TooBig);
    }
    Ok((Forward { ifindex, via }, out_layer, out.slot))
}
