//! The maps, and `Tables` over them and over the kernel's routing helpers. `bpftool map dump`
//! prints every row with the names of its fields.

use super::Skb;
use aya_ebpf::bindings::{
    BPF_FIB_LKUP_RET_BLACKHOLE, BPF_FIB_LKUP_RET_FRAG_NEEDED, BPF_FIB_LKUP_RET_FWD_DISABLED,
    BPF_FIB_LKUP_RET_NO_NEIGH, BPF_FIB_LKUP_RET_NOT_FWDED, BPF_FIB_LKUP_RET_PROHIBIT,
    BPF_FIB_LKUP_RET_SUCCESS, BPF_FIB_LKUP_RET_UNREACHABLE, bpf_check_mtu_flags, bpf_fib_lookup,
};
use aya_ebpf::btf_maps::{Array, HashMap, PerCpuArray};
use aya_ebpf::helpers;
use aya_ebpf::macros::btf_map;
use core::mem::offset_of;
use ipoib_ebpf::tables::{
    CachedPort, Host, LocalAddress, MAX_LOCAL_ADDRESSES, MAX_PORTS, Port, PortCounters, Route,
    RouteQuery, Tables,
};
use ipoib_ebpf::verdict::NextHop;
use ipoib_ebpf::wire::{Address, Family, Header, ipv6};

/// Ports by interface index.
#[btf_map(name = "ipoib_ports")]
static PORTS: HashMap<u32, Port, { MAX_PORTS as usize }> = HashMap::new();
/// The same ports, found without hashing.
#[btf_map(name = "ipoib_portcache")]
static PORT_CACHE: Array<CachedPort, { CachedPort::ROWS as usize }> = Array::new();
/// This host's addresses, a set.
#[btf_map(name = "ipoib_addresses")]
static LOCAL_ADDRESSES: HashMap<LocalAddress, u32, { MAX_LOCAL_ADDRESSES as usize }> =
    HashMap::new();
/// Facts of the host; row 0.
#[btf_map(name = "ipoib_host")]
static HOST: Array<Host, 1> = Array::new();
/// Counters by port slot; row 0 counts frames of interfaces that are no ports.
#[btf_map(name = "ipoib_counters")]
static COUNTERS: PerCpuArray<PortCounters, { MAX_PORTS as usize + 1 }> = PerCpuArray::new();

/// The kernel's answers: it has no state of its own.
pub struct Kernel;

impl Tables<Skb> for Kernel {
    #[inline(always)]
    fn port(&self, ifindex: u32) -> Option<Port> {
        if let Some(cached) = PORT_CACHE.get(CachedPort::row(ifindex))
            && cached.ifindex == ifindex
        {
            return Some(cached.port);
        }
        // SAFETY: a row is 8 aligned bytes that user space replaces as a whole; the copy taken here
        // is one load.
        unsafe { PORTS.get(ifindex) }.copied()
    }

    #[inline(always)]
    fn host(&self) -> Host {
        HOST.get(0).copied().unwrap_or_default()
    }

    #[inline(always)]
    fn is_local(&self, address: &LocalAddress) -> bool {
        // SAFETY: only the presence of the key is looked at.
        unsafe { LOCAL_ADDRESSES.get(address) }.is_some()
    }

    #[inline(always)]
    fn route(&self, packet: &Skb, query: &RouteQuery) -> Route {
        let Header {
            source,
            destination,
            ..
        } = query.header;
        let total_len = match query.header.family {
            // Fits everywhere: forwarding takes no smaller MTU (`ip6_forward()`). Length 0 spares the
            // lookup of the path's.
            Family::Ipv6 if query.segment_len <= ipv6::MIN_MTU => 0,
            _ => query.segment_len,
        };
        let mut params = Lookup::new(query, total_len, source, destination);
        match params.ask(packet) {
            Ok(answer @ (BPF_FIB_LKUP_RET_SUCCESS | BPF_FIB_LKUP_RET_NO_NEIGH)) => Route::Via {
                ifindex: params.ifindex,
                next_hop: params.next_hop(),
                resolved: answer == BPF_FIB_LKUP_RET_SUCCESS,
            },
            Ok(BPF_FIB_LKUP_RET_NOT_FWDED) => Route::NotForwarded,
            Ok(
                BPF_FIB_LKUP_RET_BLACKHOLE
                | BPF_FIB_LKUP_RET_UNREACHABLE
                | BPF_FIB_LKUP_RET_PROHIBIT,
            ) => Route::Refused,
            Ok(BPF_FIB_LKUP_RET_FWD_DISABLED) => Route::ForwardingOff,
            Ok(BPF_FIB_LKUP_RET_FRAG_NEEDED) => Route::TooBig,
            _ => Route::Unsupported,
        }
    }

    #[inline(always)]
    fn reverse_route(&self, packet: &Skb, query: &RouteQuery) -> Option<u32> {
        let Header {
            source,
            destination,
            ..
        } = query.header;
        // The packet's own length says nothing about the way back.
        let mut params = Lookup::new(query, 0, destination, source);
        match params.ask(packet) {
            // Nor does the helper's comparison with the device's MTU.
            Ok(
                BPF_FIB_LKUP_RET_SUCCESS | BPF_FIB_LKUP_RET_NO_NEIGH | BPF_FIB_LKUP_RET_FRAG_NEEDED,
            ) => Some(params.ifindex),
            _ => None,
        }
    }

    #[inline(always)]
    fn segments_fit(&self, packet: &Skb, ifindex: u32) -> bool {
        let mut mtu_len = 0u32;
        let flags = u64::from(bpf_check_mtu_flags::BPF_MTU_CHK_SEGS);
        // SAFETY: `mtu_len` outlives the call; with SEGS it must be 0, and so the length difference.
        unsafe {
            helpers::bpf_check_mtu(packet.as_context(), ifindex, &raw mut mtu_len, 0, flags) == 0
        }
    }

    #[inline(always)]
    fn count(&self, slot: u32, change: impl FnOnce(&mut PortCounters)) {
        if let Some(row) = COUNTERS.get_ptr_mut(slot) {
            // SAFETY: the row is this CPU's, and a TC program is not entered twice on one CPU for
            // the same hook.
            change(unsafe { &mut *row });
        }
    }
}

/// `struct bpf_fib_lookup` of `linux/bpf.h`, with the unions named by what is put in.
#[repr(C, align(8))]
struct Lookup {
    /// `family`, `l4_protocol`, `sport`, `dport`, `tot_len` as they follow each other. One word,
    /// because stores to the stack must be aligned and the compiler would join some of them.
    selectors: u64,
    /// In: where the packet arrived. Out: where it leaves.
    ifindex: u32,
    /// IPv4: the type of service in the first byte. IPv6: traffic class and flow label.
    tos_or_flow_info: u32,
    source: Address,
    /// In: the packet's destination. Out: the gateway where the route has one.
    destination: Address,
    /// VLAN and 6-byte addresses of the answer, never used: on IPoIB they would be the first 6 of
    /// 20 bytes.
    link: [u64; 2],
}

const _: () = {
    assert!(size_of::<Lookup>() == size_of::<bpf_fib_lookup>());
    assert!(offset_of!(Lookup, ifindex) == offset_of!(bpf_fib_lookup, ifindex));
    assert!(offset_of!(Lookup, source) == offset_of!(bpf_fib_lookup, __bindgen_anon_3));
    assert!(offset_of!(Lookup, destination) == offset_of!(bpf_fib_lookup, __bindgen_anon_4));
    assert!(offset_of!(Lookup, link) == offset_of!(bpf_fib_lookup, __bindgen_anon_5));
};

impl Lookup {
    #[inline(always)]
    fn new(query: &RouteQuery, total_len: u16, source: Address, destination: Address) -> Self {
        let [s0, s1] = query.source_port.to_ne_bytes();
        let [d0, d1] = query.destination_port.to_ne_bytes();
        let [l0, l1] = total_len.to_ne_bytes();
        let header = &query.header;
        let (family, protocol) = (header.family as u8, header.protocol);
        Lookup {
            selectors: u64::from_ne_bytes([family, protocol, s0, s1, d0, d1, l0, l1]),
            ifindex: query.ifindex,
            tos_or_flow_info: match header.family {
                Family::Ipv4 => u32::from_ne_bytes([header.tos, 0, 0, 0]),
                Family::Ipv6 => header.flow_info,
            },
            source,
            destination,
            link: [0; 2],
        }
    }

    #[inline(always)]
    fn ask(&mut self, packet: &Skb) -> Result<u32, ()> {
        // SAFETY: the parameters outlive the call, their length is given, and they have the layout
        // that the helper reads and writes (asserted above).
        let answer = unsafe {
            helpers::bpf_fib_lookup(
                packet.as_context(),
                (&raw mut *self).cast(),
                size_of::<Lookup>() as i32,
                0,
            )
        };
        u32::try_from(answer).map_err(|_| ())
    }

    /// The family may have changed: an IPv4 route may have an IPv6 gateway.
    #[inline(always)]
    fn next_hop(&self) -> NextHop {
        NextHop {
            family: u32::from(self.selectors.to_ne_bytes()[0]),
            address: self.destination,
        }
    }
}
