//! `Packet` over an `__sk_buff`: direct packet access, and the resizes that keep GSO and checksums.

use aya_ebpf::bindings::{
    __sk_buff, BPF_F_ADJ_ROOM_FIXED_GSO, BPF_F_ADJ_ROOM_NO_CSUM_RESET, bpf_adj_room_mode,
};
use aya_ebpf::helpers::{
    bpf_csum_update, bpf_skb_adjust_room, bpf_skb_change_head, bpf_skb_change_tail,
    bpf_skb_pull_data,
};
use aya_ebpf::programs::TcContext;
use ipoib_ebpf::packet::{Packet, ResizeError};
use ipoib_ebpf::wire::link::{ETHERNET_LEN, IPOIB_LEN};

/// `PACKET_HOST` of `linux/if_packet.h`.
const PACKET_HOST: u32 = 0;
/// Bytes that an IPoIB link header is longer than an Ethernet one.
const EXCESS: usize = IPOIB_LEN - ETHERNET_LEN;

/// A packet in a TC program.
pub struct Skb {
    context: TcContext,
}

impl Skb {
    /// The packet of a program run.
    #[inline(always)]
    pub fn new(context: TcContext) -> Self {
        Skb { context }
    }

    #[cfg(feature = "log")]
    pub fn context(&self) -> &TcContext {
        &self.context
    }

    /// The context as helpers that serve several program types want it.
    #[inline(always)]
    pub fn as_context(&self) -> *mut core::ffi::c_void {
        self.raw().cast()
    }

    #[inline(always)]
    fn raw(&self) -> *mut __sk_buff {
        self.context.skb.skb
    }

    /// A pointer to `N` readable bytes at `offset`. One addition and one comparison, which is the
    /// form in which the verifier follows packet pointers.
    #[inline(always)]
    fn at<const N: usize>(&self, offset: usize) -> Option<*mut [u8; N]> {
        let start = self.context.data() + offset;
        if start + N > self.context.data_end() {
            None
        } else {
            Some(start as *mut [u8; N])
        }
    }
}

impl Packet for Skb {
    #[inline(always)]
    fn len(&self) -> usize {
        self.context.len() as usize
    }

    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<&[u8; N]> {
        // SAFETY: `at` found the bytes inside the packet, and every method that could move them
        // takes `&mut self`.
        self.at(offset).map(|p| unsafe { &*p })
    }

    #[inline(always)]
    fn bytes_mut<const N: usize>(&mut self, offset: usize) -> Option<&mut [u8; N]> {
        // SAFETY: as in `bytes`; `&mut self` makes it the only reference.
        self.at(offset).map(|p| unsafe { &mut *p })
    }

    #[inline(always)]
    fn pull(&mut self, n: usize) -> bool {
        // SAFETY: the context is the program's own.
        unsafe { bpf_skb_pull_data(self.raw(), n as u32) == 0 }
    }

    #[inline(always)]
    fn ifindex(&self) -> u32 {
        // SAFETY: a context field that the verifier lets TC programs read; so below.
        unsafe { (*self.raw()).ifindex }
    }

    #[inline(always)]
    fn is_for_this_host(&self) -> bool {
        // SAFETY: as in `ifindex`.
        unsafe { (*self.raw()).pkt_type == PACKET_HOST }
    }

    #[inline(always)]
    fn has_vlan_tag(&self) -> bool {
        // SAFETY: as in `ifindex`.
        unsafe { (*self.raw()).vlan_present != 0 }
    }

    #[inline(always)]
    fn gso_size(&self) -> u32 {
        // SAFETY: as in `ifindex`.
        unsafe { (*self.raw()).gso_size }
    }

    #[inline(always)]
    fn set_priority(&mut self, priority: u32) {
        // SAFETY: a context field that the verifier lets TC programs write.
        unsafe { (*self.raw()).priority = priority }
    }

    #[inline(always)]
    fn trim(&mut self, len: usize) -> Result<(), ResizeError> {
        // SAFETY: the context is the program's own.
        match unsafe { bpf_skb_change_tail(self.raw(), len as u32, 0) } {
            0 => Ok(()),
            _ => Err(ResizeError::Unchanged),
        }
    }

    /// The helper takes bytes from behind the kernel's link header, so the ten bytes that it takes
    /// are the first ten of the IP packet: they are saved, and written back where the packet now
    /// begins. FIXED_GSO keeps the segment size, NO_CSUM_RESET the device's checksum.
    #[inline(always)]
    fn ipoib_to_ethernet(&mut self) -> Result<(), ResizeError> {
        let saved: [u8; EXCESS] = *self.bytes(IPOIB_LEN).ok_or(ResizeError::Unchanged)?;
        let flags = u64::from(BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET);
        // SAFETY: the context is the program's own.
        let taken = unsafe {
            bpf_skb_adjust_room(
                self.raw(),
                -(EXCESS as i32),
                bpf_adj_room_mode::BPF_ADJ_ROOM_MAC,
                flags,
            )
        };
        if taken != 0 {
            return Err(ResizeError::Unchanged);
        }
        *self.bytes_mut(ETHERNET_LEN).ok_or(ResizeError::Broken)? = saved;
        Ok(())
    }

    #[inline(always)]
    fn push_ethernet(&mut self) -> Result<(), ResizeError> {
        // SAFETY: the context is the program's own.
        match unsafe { bpf_skb_change_head(self.raw(), ETHERNET_LEN as u32, 0) } {
            0 => Ok(()),
            _ => Err(ResizeError::Unchanged),
        }
    }

    /// RFC 1624 (eqn. 3): the sum gains the new word and the complement of the old one. Words are
    /// summed as they lie in memory, like the kernel's `skb->csum`.
    #[inline(always)]
    fn word_changed(&mut self, old: [u8; 2], new: [u8; 2]) {
        let delta = u32::from(!u16::from_ne_bytes(old)) + u32::from(u16::from_ne_bytes(new));
        // SAFETY: the context is the program's own. The helper refuses where the skb has no such
        // checksum, and then there is nothing to keep right.
        let _ = unsafe { bpf_csum_update(self.raw(), delta) };
    }
}
