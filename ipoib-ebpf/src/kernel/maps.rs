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
use ipoib_ebpf::tables::{
    Host, LocalAddress, MAX_LOCAL_ADDRESSES, MAX_PORTS, Port, PortCounters, Route, RouteQuery,
    Tables,
};
use ipoib_ebpf::verdict::NextHop;
use ipoib_ebpf::wire::{Address, Family};

/// Ports by interface index.
#[btf_map(name = "ipoib_ports")]
static PORTS: HashMap<u32, Port, { MAX_PORTS as usize }> = HashMap::new();
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
        let mut params = Lookup::new(query);
        params.towards(query.header.source, query.header.destination);
        params.0.__bindgen_anon_1.tot_len = query.segment_len;
        match params.ask(packet) {
            Ok(BPF_FIB_LKUP_RET_SUCCESS | BPF_FIB_LKUP_RET_NO_NEIGH) => Route::Via {
                ifindex: params.0.ifindex,
                next_hop: params.next_hop(),
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
        let mut params = Lookup::new(query);
        params.towards(query.header.destination, query.header.source);
        match params.ask(packet) {
            // The packet's own length says nothing about the way back.
            Ok(
                BPF_FIB_LKUP_RET_SUCCESS | BPF_FIB_LKUP_RET_NO_NEIGH | BPF_FIB_LKUP_RET_FRAG_NEEDED,
            ) => Some(params.0.ifindex),
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

/// The parameters of `bpf_fib_lookup`. The 6-byte addresses it answers with are never used: on
/// IPoIB they would be the first 6 of 20 bytes.
#[repr(C, align(8))]
struct Lookup(bpf_fib_lookup);

impl Lookup {
    #[inline(always)]
    fn new(query: &RouteQuery) -> Self {
        // SAFETY: integers and arrays of integers, for which zero is a value.
        let mut params: bpf_fib_lookup = unsafe { core::mem::zeroed() };
        params.family = query.header.family as u8;
        params.l4_protocol = query.header.protocol;
        params.sport = query.source_port;
        params.dport = query.destination_port;
        params.ifindex = query.ifindex;
        match query.header.family {
            Family::Ipv4 => params.__bindgen_anon_2.tos = query.header.tos,
            Family::Ipv6 => params.__bindgen_anon_2.flowinfo = query.header.flow_info,
        }
        Lookup(params)
    }

    #[inline(always)]
    fn towards(&mut self, source: Address, destination: Address) {
        self.0.__bindgen_anon_3.ipv6_src = source.words;
        self.0.__bindgen_anon_4.ipv6_dst = destination.words;
    }

    #[inline(always)]
    fn ask(&mut self, packet: &Skb) -> Result<u32, ()> {
        // SAFETY: the parameters outlive the call and their length is given.
        let answer = unsafe {
            helpers::bpf_fib_lookup(
                packet.as_context(),
                &raw mut self.0,
                size_of::<bpf_fib_lookup>() as i32,
                0,
            )
        };
        u32::try_from(answer).map_err(|_| ())
    }

    /// The gateway where the route has one, otherwise the destination that was asked for.
    #[inline(always)]
    fn next_hop(&self) -> NextHop {
        // SAFETY: every byte of the union was written by `towards`.
        let words = unsafe { self.0.__bindgen_anon_4.ipv6_dst };
        NextHop {
            family: u32::from(self.0.family),
            address: Address { words },
        }
    }
}
