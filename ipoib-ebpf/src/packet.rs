//! What the logic may ask of a packet and do to it. The kernel's `__sk_buff` implements it in the
//! eBPF binary, [`crate::frame::Frame`] on the host.
//!
//! Bytes are handed out as fixed-size arrays because the verifier refuses a Rust slice made from
//! `data..data_end`. Every method that moves bytes takes `&mut self`, so that no array read before
//! it can be used after it.

/// A frame with its link header in front, as a TC program sees it.
pub trait Packet {
    /// Bytes of the frame, link header included.
    fn len(&self) -> usize;

    /// Whether the frame has no bytes at all.
    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `N` bytes at `offset`, or `None` where they are not there or not directly readable.
    fn bytes<const N: usize>(&self, offset: usize) -> Option<&[u8; N]>;

    /// The same, to write.
    fn bytes_mut<const N: usize>(&mut self, offset: usize) -> Option<&mut [u8; N]>;

    /// Makes the first `n` bytes directly readable. `false`: the frame is shorter.
    fn pull(&mut self, n: usize) -> bool;

    /// Index of the interface that the frame arrived on.
    fn ifindex(&self) -> u32;

    /// Whether the link layer took the frame as addressed to this host (`PACKET_HOST`).
    fn is_for_this_host(&self) -> bool;

    /// Whether the kernel took a VLAN tag off the frame and keeps it beside it.
    fn has_vlan_tag(&self) -> bool;

    /// Payload bytes per segment where the frame is a GSO superpacket, otherwise 0.
    fn gso_size(&self) -> u32;

    /// Sets the priority by which queueing disciplines and VLAN devices choose (`skb->priority`).
    fn set_priority(&mut self, priority: u32);

    /// Cuts the frame behind `len` bytes.
    fn trim(&mut self, len: usize) -> Result<(), ResizeError>;

    /// Turns the 24-byte IPoIB header in front into 14 bytes of Ethernet header, whose content is
    /// undefined; the IP packet follows at offset 14. On `Unchanged` the frame is as it was.
    fn ipoib_to_ethernet(&mut self) -> Result<(), ResizeError>;

    /// Puts 14 bytes of Ethernet header, content undefined, in front of a frame without link header.
    fn push_ethernet(&mut self) -> Result<(), ResizeError>;

    /// Tells the kernel that the 16-bit word `old` at an even offset of the IP packet became `new`,
    /// so that a checksum that the device computed over the packet stays right.
    fn word_changed(&mut self, old: [u8; 2], new: [u8; 2]);
}

/// Why a frame could not be resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeError {
    /// The kernel refused and the frame is as it was: the kernel may have it.
    Unchanged,
    /// The frame was changed half-way: it can only be dropped.
    Broken,
}
