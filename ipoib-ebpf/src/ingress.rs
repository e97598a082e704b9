//! The road of a packet that arrives on a port: read it, ask the kernel's routing, check everything
//! that could forbid forwarding, and only then change it.
//!
//! When in doubt the kernel gets the packet, untouched.

use crate::packet::Packet;
use crate::rewrite;
use crate::tables::{Host, NO_PORT, Port, Route, RouteQuery, Tables, link_layer};
use crate::verdict::{Forward, NextHop, Reason, Refusal, Verdict};
use crate::wire::link::{Ethernet, Ipoib, LinkHeader, LinkLayer, NoLink, ethertype};
use crate::wire::{Family, Header, field, ipv4, ipv6, protocol};

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
        return refuse(tables, NO_PORT, Reason::UnknownPort.into(), bytes);
    };
    // Written through a reference, not returned: joined with the refusals' ways, its words would
    // have no value there, and the compiler saves such words to the stack all the same.
    let mut forward = Forward::NOWHERE;
    let outcome = match link_layer(&port) {
        Some(LinkLayer::Ethernet) => decide::<Ethernet, P, T>(packet, tables, &port, &mut forward),
        Some(LinkLayer::Ipoib) => decide::<Ipoib, P, T>(packet, tables, &port, &mut forward),
        Some(LinkLayer::None) => decide::<NoLink, P, T>(packet, tables, &port, &mut forward),
        None => Err(Reason::UnknownPort.into()),
    };
    match outcome {
        Ok(()) => Verdict::Forward(forward),
        Err(refusal) => refuse(tables, port.slot, refusal, bytes),
    }
}

/// Counts a packet that is not forwarded.
#[inline(always)]
fn refuse<P: Packet, T: Tables<P>>(tables: &T, slot: u32, refusal: Refusal, bytes: u64) -> Verdict {
    tables.count(slot, |row| {
        row.received.add(bytes);
        match refusal {
            Refusal::HandUp(reason) => row.handed_up.of(reason).add(bytes),
            Refusal::Drop(reason) => row.dropped.of(reason).add(bytes),
        }
    });
    refusal.into()
}

/// Counts a packet that came in by one port and leaves by another.
#[inline(always)]
fn count_forwarded<P: Packet, T: Tables<P>>(
    tables: &T,
    family: Family,
    from: u32,
    to: u32,
    bytes: u64,
) {
    tables.count(from, |row| {
        row.received.add(bytes);
        match family {
            Family::Ipv4 => row.forwarded_ipv4.add(bytes),
            Family::Ipv6 => row.forwarded_ipv6.add(bytes),
        }
    });
    tables.count(to, |row| match family {
        Family::Ipv4 => row.sent_ipv4.add(bytes),
        Family::Ipv6 => row.sent_ipv6.add(bytes),
    });
}

#[inline(always)]
fn decide<I: LinkHeader, P: Packet, T: Tables<P>>(
    packet: &mut P,
    tables: &T,
    port: &Port,
    forward: &mut Forward,
) -> Result<(), Refusal> {
    let host = tables.host();
    if host.held != 0 {
        return Err(Reason::Held.into());
    }
    let bytes = packet.len() as u64;
    let query = query::<I, P>(packet)?;
    let exit = route::<I, P, T>(packet, tables, &host, port, &query)?;
    let update_priority = host.update_priority != 0;
    rewrite::for_egress::<I, P>(packet, &query.header, exit.link_layer, update_priority)?;
    count_forwarded(tables, query.header.family, port.slot, exit.slot, bytes);
    *forward = exit.forward;
    Ok(())
}

/// Reads the packet and refuses what it shows itself must not be fast-forwarded.
#[inline(always)]
fn query<I: LinkHeader, P: Packet>(packet: &mut P) -> Result<RouteQuery, Reason> {
    link::<I, P>(packet)?;
    let header = match family::<I, P>(packet)? {
        Family::Ipv4 => {
            let header = packet.bytes(I::LEN).ok_or(Reason::Malformed)?;
            ipv4::check(header)?;
            ipv4::read(header)
        }
        Family::Ipv6 => {
            let header = packet.bytes(I::LEN).ok_or(Reason::Malformed)?;
            ipv6::check(header)?;
            ipv6::read(header)
        }
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
    let transport = transport::<I, P>(packet, &header)?;
    let segment_len = match packet.gso_size() {
        0 => header.total_len as u32,
        size => header.header_len as u32 + u32::from(transport.len) + size,
    };
    if segment_len > u16::MAX as u32 {
        return Err(Reason::TooBig);
    }
    Ok(RouteQuery {
        header,
        ifindex: packet.ifindex(),
        source_port: transport.source_port,
        destination_port: transport.destination_port,
        segment_len: segment_len as u16,
    })
}

/// Whether the frame is addressed to this host and its headers can be read.
#[inline(always)]
fn link<I: LinkHeader, P: Packet>(packet: &mut P) -> Result<(), Reason> {
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
    Ok(())
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

/// What is read of a transport header; zeros where the protocol has no ports.
struct Transport {
    /// Network byte order, like the other.
    source_port: u16,
    destination_port: u16,
    /// Bytes of the header.
    len: u16,
}

#[inline(always)]
fn transport<I: LinkHeader, P: Packet>(packet: &P, header: &Header) -> Result<Transport, Reason> {
    let at = match header.family {
        Family::Ipv4 => I::LEN + ipv4::HEADER_LEN,
        Family::Ipv6 => I::LEN + ipv6::HEADER_LEN,
    };
    let (ports, len) = match header.protocol {
        protocol::TCP => {
            if header.total_len < header.header_len + 20 {
                return Err(Reason::Malformed);
            }
            let tcp = packet.bytes::<TRANSPORT>(at).ok_or(Reason::Malformed)?;
            (field(tcp, 0), u16::from(tcp[12] >> 4) << 2)
        }
        protocol::UDP => {
            if header.total_len < header.header_len + 8 {
                return Err(Reason::Malformed);
            }
            (*packet.bytes(at).ok_or(Reason::Malformed)?, 8)
        }
        _ => ([0; 4], 0),
    };
    Ok(Transport {
        source_port: u16::from_ne_bytes(field(&ports, 0)),
        destination_port: u16::from_ne_bytes(field(&ports, 2)),
        len,
    })
}

/// Where a packet leaves.
struct Exit {
    forward: Forward,
    link_layer: LinkLayer,
    /// Counter row of the port.
    slot: u32,
}

/// Asks the kernel's routing and checks the answer.
#[inline(always)]
fn route<I: LinkHeader, P: Packet, T: Tables<P>>(
    packet: &P,
    tables: &T,
    host: &Host,
    port: &Port,
    query: &RouteQuery,
) -> Result<Exit, Reason> {
    let header = &query.header;
    let ipv6_off = host.ipv6_forwarding == 0 || port.ipv6_off != 0;
    if header.family == Family::Ipv6 && ipv6_off {
        return Err(Reason::ForwardingOff);
    }
    if query.segment_len as u32 > host.smallest_route_mtu {
        return Err(Reason::TooBig);
    }
    let source = header.local(header.source);
    if host.own & source.bit() != 0 && tables.is_local(&source) {
        return Err(Reason::OwnSource);
    }
    let (ifindex, next_hop, resolved) = match tables.route(packet, query) {
        Route::Via {
            ifindex,
            next_hop,
            resolved,
        } => (ifindex, next_hop, resolved),
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
    let next_hop = match (I::LAYER, out_layer) {
        (LinkLayer::Ipoib, LinkLayer::Ipoib) => return Err(Reason::FabricToFabric),
        (LinkLayer::Ipoib, LinkLayer::Ethernet)
            if header.total_len < header.header_len + TAKEN_FROM_PACKET =>
        {
            return Err(Reason::TooShort);
        }
        (_, LinkLayer::None) => NextHop::NONE,
        // The kernel queues the packet, asks, and tells the sender where nobody answers.
        _ if !resolved => return Err(Reason::Resolving),
        _ => next_hop,
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
    Ok(Exit {
        forward: Forward { ifindex, next_hop },
        link_layer: out_layer,
        slot: out.slot,
    })
}
