//! What lies outside the packet: the rows of the maps, and the trait through which the logic asks
//! for them. Rows are `repr(C)` without padding, so that user space and `bpftool` read them alike.

use crate::packet::Packet;
use crate::verdict::{NextHop, ReasonCounters};
use crate::wire::link::LinkLayer;
use crate::wire::{Address, Header};

/// Names of the maps and of the program, in the object and in `bpftool`. The kernel keeps 15
/// characters.
pub mod names {
    /// [`super::Port`] by interface index.
    pub const PORTS: &str = "ipoib_ports";
    /// [`super::CachedPort`] by [`super::CachedPort::row`].
    pub const PORT_CACHE: &str = "ipoib_portcache";
    /// [`super::LocalAddress`], a set.
    pub const ADDRESSES: &str = "ipoib_addresses";
    /// [`super::Host`], one row.
    pub const HOST: &str = "ipoib_host";
    /// [`super::PortCounters`] by slot, per CPU.
    pub const COUNTERS: &str = "ipoib_counters";
    /// The program on a port's ingress.
    pub const INGRESS: &str = "ipoib_ingress";
}

/// Ports that one datapath can have; row 0 of the counters is not a port (see [`NO_PORT`]).
pub const MAX_PORTS: u32 = 256;
/// Counter row of frames whose interface has no port row.
pub const NO_PORT: u32 = 0;
/// Addresses of this host that the datapath can know.
pub const MAX_LOCAL_ADDRESSES: u32 = 4096;

/// A port, keyed by interface index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Port {
    /// Row of the port's counters, from 1.
    pub slot: u32,
    /// [`LinkLayer`] as a number: 0 none, 1 Ethernet, 2 IPoIB.
    pub link_layer: u8,
    /// How IPv4 sources are checked: as `rp_filter`, 0 not, 1 strict (reached through this port),
    /// 2 loose (reached at all).
    pub rp_filter: u8,
    /// 1 where IPv6 is off on the port (`net.ipv6.conf.PORT.disable_ipv6`).
    pub ipv6_off: u8,
    /// Not used.
    pub reserved: u8,
}

/// A port where it is found without hashing: in the row that the low bits of its interface index
/// name. A row holds one port, the first that came, for as long as the datapath runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CachedPort {
    /// The port's interface index; 0 in a free row.
    pub ifindex: u32,
    /// Not used.
    pub reserved: u32,
    /// The port.
    pub port: Port,
}

impl CachedPort {
    /// Rows, a power of two.
    pub const ROWS: u32 = 64;

    /// The row of an interface.
    #[inline(always)]
    pub const fn row(ifindex: u32) -> u32 {
        ifindex % Self::ROWS
    }
}

/// An address of this host, the key of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct LocalAddress {
    /// `AF_INET` or `AF_INET6`.
    pub family: u32,
    /// The address.
    pub address: Address,
}

impl LocalAddress {
    /// The address's bit in [`Host::own`].
    #[inline(always)]
    pub fn bit(&self) -> u64 {
        let [a, b, c, d] = self.address.words;
        // Fibonacci hashing: the upper bits of a product with 2^32 / the golden ratio.
        1 << ((a ^ b ^ c ^ d).wrapping_mul(0x9e37_79b9) >> 26)
    }
}

/// Facts of the host that every packet needs; one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Host {
    /// Smallest `mtu` that a route carries without a lock, or `u32::MAX`: the kernel's forwarding
    /// honours it, `bpf_fib_lookup` does not (`ip_mtu_from_fib_result()`, `ip6_mtu_from_fib6()`).
    pub smallest_route_mtu: u32,
    /// 1 where `net.ipv6.conf.all.forwarding` is on: the kernel asks it for every packet, whatever
    /// the port's own setting (`ip6_forward()`).
    pub ipv6_forwarding: u32,
    /// 1 where forwarded IPv4 packets get their queueing priority from the type of service
    /// (`net.ipv4.ip_forward_update_priority`).
    pub update_priority: u32,
    /// 1 while everything is handed up: the host has something that the fast path would pass by.
    pub held: u32,
    /// A bit for each of the host's addresses ([`LocalAddress::bit`]): one whose bit is 0 is none of
    /// them, and need not be looked up.
    pub own: u64,
}

impl Default for Host {
    fn default() -> Self {
        Host {
            smallest_route_mtu: u32::MAX,
            ipv6_forwarding: 1,
            update_priority: 1,
            held: 0,
            own: u64::MAX,
        }
    }
}

/// Packets and bytes. A GSO superpacket is one packet; bytes are the frame's, link header included,
/// as it was when it arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Counter {
    /// Counts one packet.
    #[inline(always)]
    pub fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }
}

/// What a port has seen; one row a port and CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PortCounters {
    /// Every frame that arrived.
    pub received: Counter,
    /// IPv4 packets that arrived here and were forwarded on the fast path.
    pub forwarded_ipv4: Counter,
    /// IPv6 packets that arrived here and were forwarded on the fast path.
    pub forwarded_ipv6: Counter,
    /// IPv4 packets that the fast path sent out here.
    pub sent_ipv4: Counter,
    /// IPv6 packets that the fast path sent out here.
    pub sent_ipv6: Counter,
    /// Packets handed to the kernel, by reason.
    pub handed_up: ReasonCounters,
    /// Packets dropped, by reason.
    pub dropped: ReasonCounters,
}

/// Counters in a [`PortCounters`].
const COUNTERS: usize = size_of::<PortCounters>() / size_of::<Counter>();

impl PortCounters {
    /// Every counter of the row in its order, to sum rows.
    pub fn as_array(&self) -> &[Counter; COUNTERS] {
        // SAFETY: the struct is `repr(C)` and holds counters and nothing else (asserted below).
        unsafe { &*(&raw const *self).cast() }
    }

    /// The same, to write.
    pub fn as_array_mut(&mut self) -> &mut [Counter; COUNTERS] {
        // SAFETY: as above.
        unsafe { &mut *(&raw mut *self).cast() }
    }
}

const _: () = {
    assert!(size_of::<Port>() == 8);
    assert!(size_of::<CachedPort>() == 16);
    assert!(size_of::<Host>() == 24);
    assert!(size_of::<Counter>() == 16);
    assert!(size_of::<Address>() == 16);
    assert!(size_of::<NextHop>() == 20);
    assert!(size_of::<LocalAddress>() == 20);
    assert!(size_of::<PortCounters>() == 5 * 16 + 2 * size_of::<ReasonCounters>());
};

/// A question to the kernel's routing, for a packet that arrived on `ifindex`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteQuery {
    /// The packet's header.
    pub header: Header,
    /// Port that the packet arrived on.
    pub ifindex: u32,
    /// Source port, network byte order, or 0.
    pub source_port: u16,
    /// Destination port, network byte order, or 0.
    pub destination_port: u16,
    /// Bytes of the IP packet, or of one segment of a superpacket.
    pub segment_len: u16,
}

/// The kernel's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Out through `ifindex` to `next_hop`.
    Via {
        /// Interface index.
        ifindex: u32,
        /// Gateway, or the destination itself.
        next_hop: NextHop,
        /// Whether the kernel knows the neighbour's link-layer address.
        resolved: bool,
    },
    /// No route that forwards: none at all, or local or broadcast delivery.
    NotForwarded,
    /// Blackhole, unreachable or prohibit.
    Refused,
    /// Forwarding is off on the incoming port.
    ForwardingOff,
    /// Larger than the MTU of the route or of its interface.
    TooBig,
    /// Encapsulation, or an error.
    Unsupported,
}

/// Everything that the logic needs beyond the packet itself.
pub trait Tables<P: Packet> {
    /// The port of an interface.
    fn port(&self, ifindex: u32) -> Option<Port>;
    /// The host's row.
    fn host(&self) -> Host;
    /// Whether an address is this host's.
    fn is_local(&self, address: &LocalAddress) -> bool;
    /// Where the kernel would send the packet.
    fn route(&self, packet: &P, query: &RouteQuery) -> Route;
    /// The interface through which the kernel would reach `query`'s *source*, or `None`.
    fn reverse_route(&self, packet: &P, query: &RouteQuery) -> Option<u32>;
    /// Whether each segment of a superpacket fits the interface's MTU.
    fn segments_fit(&self, packet: &P, ifindex: u32) -> bool;
    /// Changes the counters of a row.
    fn count(&self, slot: u32, change: impl FnOnce(&mut PortCounters));
}

/// The link layer of a port row; a number from a newer version reads as `None`.
#[inline(always)]
pub fn link_layer(port: &Port) -> Option<LinkLayer> {
    LinkLayer::from_number(port.link_layer)
}
