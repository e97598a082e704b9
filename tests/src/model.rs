//! The library's `Tables` on the host: rows, a routing table with the kernel's order of answers,
//! and counters.

use ipoib_ebpf::frame::Frame;
use ipoib_ebpf::packet::Packet;
use ipoib_ebpf::tables::{Host, LocalAddress, Port, PortCounters, Route, RouteQuery, Tables};
use ipoib_ebpf::verdict::NextHop;
use ipoib_ebpf::wire::{Address, Family};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

/// An address as the library holds it.
pub fn address(ip: IpAddr) -> (Family, Address) {
    match ip {
        IpAddr::V4(a) => (Family::Ipv4, Address::v4(a.octets())),
        IpAddr::V6(a) => (Family::Ipv6, Address::v6(&a.octets())),
    }
}

/// A route: `prefix/length`.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Network address.
    pub prefix: IpAddr,
    /// Bits of it that count.
    pub length: u8,
    /// Where it leads.
    pub to: To,
}

/// What a route does.
#[derive(Clone, Debug)]
pub enum To {
    /// Out through an interface, to a gateway or to the destination itself; packets longer than
    /// `mtu` don't fit.
    Via {
        /// Interface index.
        ifindex: u32,
        /// Gateway, of either family.
        gateway: Option<IpAddr>,
        /// Bytes of IP packet that fit.
        mtu: u16,
    },
    /// The same, but with an encapsulation that the lookup does not support.
    Encapsulated {
        /// Bytes of IP packet that fit, encapsulation taken off.
        mtu: u16,
    },
    /// Blackhole, unreachable, prohibit.
    Refused,
    /// Local or broadcast.
    Local,
}

/// A host's tables.
#[derive(Debug, Default)]
pub struct Model {
    /// Ports by interface index.
    pub ports: BTreeMap<u32, Port>,
    /// The host's row.
    pub host: Host,
    /// The host's addresses.
    pub local: HashSet<LocalAddress>,
    /// Routes; the longest prefix wins.
    pub routes: Vec<Entry>,
    /// Interfaces on which forwarding is off.
    pub forwarding_off: HashSet<u32>,
    /// Next hops whose link-layer address is known, or `None` for all.
    pub neighbours: Option<HashSet<NextHop>>,
    /// Point-to-point interfaces: all that is IPv4 is one neighbour there (`arp_constructor()`),
    /// which is known.
    pub point_to_point: HashSet<u32>,
    /// Interface MTU plus link header: a superpacket not longer than this fits as it is.
    pub frame_limits: BTreeMap<u32, usize>,
    /// Counters by slot.
    pub counters: RefCell<BTreeMap<u32, PortCounters>>,
}

impl Model {
    fn lookup(&self, family: Family, destination: Address) -> Option<&To> {
        self.routes
            .iter()
            .filter(|entry| {
                let (entry_family, prefix) = address(entry.prefix);
                entry_family == family && bits_match(prefix, destination, entry.length)
            })
            .max_by_key(|entry| entry.length)
            .map(|entry| &entry.to)
    }
}

fn bits_match(a: Address, b: Address, length: u8) -> bool {
    let bytes = |x: Address| {
        x.words
            .iter()
            .flat_map(|w| w.to_ne_bytes())
            .collect::<Vec<u8>>()
    };
    let (a, b) = (bytes(a), bytes(b));
    (0..usize::from(length)).all(|bit| (a[bit / 8] ^ b[bit / 8]) & 0x80 >> (bit % 8) == 0)
}

impl Tables<Frame<'_>> for Model {
    fn port(&self, ifindex: u32) -> Option<Port> {
        self.ports.get(&ifindex).copied()
    }

    fn host(&self) -> Host {
        self.host
    }

    fn is_local(&self, address: &LocalAddress) -> bool {
        self.local.contains(address)
    }

    fn route(&self, _: &Frame<'_>, query: &RouteQuery) -> Route {
        if self.forwarding_off.contains(&query.ifindex) {
            return Route::ForwardingOff;
        }
        let header = &query.header;
        match self.lookup(header.family, header.destination) {
            None | Some(To::Local) => Route::NotForwarded,
            Some(To::Refused) => Route::Refused,
            Some(To::Via { mtu, .. } | To::Encapsulated { mtu }) if query.segment_len > *mtu => {
                Route::TooBig
            }
            Some(To::Encapsulated { .. }) => Route::Unsupported,
            Some(To::Via {
                ifindex, gateway, ..
            }) => {
                let (family, address) =
                    gateway.map_or((header.family, header.destination), address);
                let next_hop = NextHop {
                    family: family as u32,
                    address,
                };
                let one_for_all = family == Family::Ipv4 && self.point_to_point.contains(ifindex);
                let resolved = one_for_all
                    || self
                        .neighbours
                        .as_ref()
                        .is_none_or(|known| known.contains(&next_hop));
                Route::Via {
                    ifindex: *ifindex,
                    next_hop,
                    resolved,
                }
            }
        }
    }

    fn reverse_route(&self, _: &Frame<'_>, query: &RouteQuery) -> Option<u32> {
        if self.forwarding_off.contains(&query.ifindex) {
            return None;
        }
        match self.lookup(query.header.family, query.header.source)? {
            To::Via { ifindex, .. } => Some(*ifindex),
            _ => None,
        }
    }

    fn segments_fit(&self, packet: &Frame<'_>, ifindex: u32) -> bool {
        self.frame_limits
            .get(&ifindex)
            .is_some_and(|limit| packet.len() <= *limit)
    }

    fn count(&self, slot: u32, change: impl FnOnce(&mut PortCounters)) {
        change(self.counters.borrow_mut().entry(slot).or_default());
    }
}
