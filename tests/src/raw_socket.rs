//! Raw frames on an interface: sent exactly as given, received exactly as they arrived.

use nix::net::if_::if_nametoindex;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// `PACKET_OUTGOING` of `linux/if_packet.h`: a frame that this host sent.
const PACKET_OUTGOING: u8 = 4;

/// A packet socket on one interface.
#[derive(Debug)]
pub struct RawSocket {
    fd: OwnedFd,
}

impl RawSocket {
    /// Opens a socket on `interface` of the calling thread's namespace. Every frame that arrives
    /// from then on is kept for [`RawSocket::receive`].
    pub fn open(interface: &str) -> io::Result<Self> {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: no pointers; the descriptor is checked before it is owned.
        let fd = unsafe {
            let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            let fd = libc::socket(libc::AF_PACKET, flags, i32::from(protocol));
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: an all-zero sockaddr_ll is a value of it.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = if_nametoindex(interface)? as i32;
        // SAFETY: the address outlives the call and its length is given.
        let bound = unsafe {
            libc::bind(
                fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        if bound != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(RawSocket { fd })
    }

    /// Sends a frame, link header included.
    pub fn send(&self, frame: &[u8]) {
        // SAFETY: the buffer outlives the call and its length is given.
        let sent =
            unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(
            sent,
            frame.len() as isize,
            "sending: {}",
            io::Error::last_os_error()
        );
    }

    /// The next frame that arrived (not one that this host sent) and that `wanted` accepts, or
    /// `None` after `patience`.
    pub fn receive(
        &self,
        patience: Duration,
        wanted: impl FnMut(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        self.next(patience, false, wanted)
    }

    /// The next frame that this host sent, as the device got it.
    pub fn sent(&self, patience: Duration, wanted: impl FnMut(&[u8]) -> bool) -> Option<Vec<u8>> {
        self.next(patience, true, wanted)
    }

    fn next(
        &self,
        patience: Duration,
        sent: bool,
        mut wanted: impl FnMut(&[u8]) -> bool,
    ) -> Option<Vec<u8>> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut poll = libc::pollfd {
                fd: self.fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one pollfd, which outlives the call.
            if unsafe { libc::poll(&raw mut poll, 1, left.as_millis() as i32) } <= 0 {
                return None;
            }
            let mut buffer = vec![0u8; 70_000];
            // SAFETY: an all-zero sockaddr_ll is a value of it.
            let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            let mut length = size_of::<libc::sockaddr_ll>() as u32;
            // SAFETY: both buffers outlive the call and their lengths are given.
            let received = unsafe {
                libc::recvfrom(
                    self.fd.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    0,
                    (&raw mut from).cast(),
                    &raw mut length,
                )
            };
            let Ok(received) = usize::try_from(received) else {
                return None;
            };
            buffer.truncate(received);
            if (from.sll_pkttype == PACKET_OUTGOING) == sent && wanted(&buffer) {
                return Some(buffer);
            }
        }
    }
}
