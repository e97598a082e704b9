//! A packet on the host: a byte buffer with headroom and the facts that an `sk_buff` would carry.

use crate::packet::{Packet, ResizeError};
use crate::wire::link::{ETHERNET_LEN, IPOIB_LEN};

/// A frame in a borrowed buffer, with room in front for a longer link header.
#[derive(Debug)]
pub struct Frame<'a> {
    buffer: &'a mut [u8],
    start: usize,
    end: usize,
    /// Interface index that the frame arrived on.
    pub ifindex: u32,
    /// Addressed to this host (`PACKET_HOST`).
    pub for_this_host: bool,
    /// A VLAN tag was taken off.
    pub vlan_tag: bool,
    /// Segment payload of a superpacket, or 0.
    pub gso_size: u32,
    /// Queueing priority (`skb->priority`).
    pub priority: u32,
    /// Whether the kernel resizes a superpacket of this kind: TCP and UDP segmentation (`UDP_L4`)
    /// yes, lists of fragments and tunnels no (`bpf_skb_net_shrink()`).
    pub gso_resizable: bool,
    /// Bytes that can be read before the first [`Packet::pull`], as with an skb that keeps most of
    /// its bytes in page fragments.
    pub linear: usize,
    /// Sum of the 16-bit words told to [`Packet::word_changed`]: what an skb adds to its checksum.
    pub checksum_delta: u32,
}

/// Bytes of headroom that a buffer needs for any resize.
pub const HEADROOM: usize = IPOIB_LEN;

impl<'a> Frame<'a> {
    /// A frame of the bytes `buffer[HEADROOM..]`, addressed to this host, wholly readable.
    ///
    /// # Panics
    /// When the buffer is shorter than [`HEADROOM`].
    pub fn new(buffer: &'a mut [u8], ifindex: u32) -> Self {
        assert!(
            buffer.len() >= HEADROOM,
            "a frame buffer needs HEADROOM bytes in front"
        );
        let end = buffer.len();
        Frame {
            buffer,
            start: HEADROOM,
            end,
            ifindex,
            for_this_host: true,
            vlan_tag: false,
            gso_size: 0,
            priority: 0,
            gso_resizable: true,
            linear: usize::MAX,
            checksum_delta: 0,
        }
    }

    /// The frame as it stands.
    pub fn data(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn readable(&self) -> usize {
        self.len().min(self.linear)
    }
}

impl Packet for Frame<'_> {
    fn len(&self) -> usize {
        self.end - self.start
    }

    fn bytes<const N: usize>(&self, offset: usize) -> Option<&[u8; N]> {
        self.data()[..self.readable()].get(offset..)?.first_chunk()
    }

    fn bytes_mut<const N: usize>(&mut self, offset: usize) -> Option<&mut [u8; N]> {
        let readable = self.readable();
        self.buffer[self.start..self.end][..readable]
            .get_mut(offset..)?
            .first_chunk_mut()
    }

    fn pull(&mut self, n: usize) -> bool {
        if n > self.len() {
            return false;
        }
        self.linear = self.linear.max(n);
        true
    }

    fn ifindex(&self) -> u32 {
        self.ifindex
    }

    fn is_for_this_host(&self) -> bool {
        self.for_this_host
    }

    fn has_vlan_tag(&self) -> bool {
        self.vlan_tag
    }

    fn gso_size(&self) -> u32 {
        self.gso_size
    }

    fn set_priority(&mut self, priority: u32) {
        self.priority = priority;
    }

    fn trim(&mut self, len: usize) -> Result<(), ResizeError> {
        if len > self.len() {
            return Err(ResizeError::Unchanged);
        }
        self.end = self.start + len;
        Ok(())
    }

    fn ipoib_to_ethernet(&mut self) -> Result<(), ResizeError> {
        if self.len() < IPOIB_LEN || self.gso_size != 0 && !self.gso_resizable {
            return Err(ResizeError::Unchanged);
        }
        self.start += IPOIB_LEN - ETHERNET_LEN;
        Ok(())
    }

    fn push_ethernet(&mut self) -> Result<(), ResizeError> {
        self.start = self
            .start
            .checked_sub(ETHERNET_LEN)
            .ok_or(ResizeError::Unchanged)?;
        self.linear = self.linear.saturating_add(ETHERNET_LEN);
        Ok(())
    }

    fn word_changed(&mut self, old: [u8; 2], new: [u8; 2]) {
        let (old, new) = (u16::from_be_bytes(old), u16::from_be_bytes(new));
        self.checksum_delta = self
            .checksum_delta
            .wrapping_add(u32::from(!old) + u32::from(new));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_linear_part_need_a_pull() {
        let mut buffer = [7u8; HEADROOM + 60];
        let mut frame = Frame::new(&mut buffer, 1);
        frame.linear = 14;
        assert!(frame.bytes::<2>(12).is_some());
        assert!(frame.bytes::<4>(12).is_none());
        assert!(frame.pull(34));
        assert!(frame.bytes::<20>(14).is_some());
        assert!(!frame.pull(61));
    }

    #[test]
    fn an_ipoib_frame_becomes_ten_bytes_shorter_and_keeps_its_packet() {
        let mut buffer = [0u8; HEADROOM + 24 + 20];
        buffer[HEADROOM + 24] = 0x45;
        let mut frame = Frame::new(&mut buffer, 1);
        frame.ipoib_to_ethernet().unwrap();
        assert_eq!(frame.len(), 34);
        assert_eq!(frame.bytes::<1>(14), Some(&[0x45]));
    }
}
