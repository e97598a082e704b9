//! What a host has learnt about a path's MTU (RFC 1191, RFC 8201), asked of the kernel's routes.

use super::Error;
use crate::demo::stop::Stop;
use crate::netns::Namespace;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// The discard service (RFC 863); what is sent here is too large to arrive.
const DISCARD: u16 = 9;
/// Three seconds: the answer queues behind the traffic, which takes its time in an emulated machine.
const TRIES: u32 = 30;
const EVERY: Duration = Duration::from_millis(100);

/// Sends datagrams that fill `mtu` to `to` until the host knows that the path takes less; returns
/// what it takes, or `None` where the host never learnt.
pub fn discover(
    namespace: &Namespace,
    to: IpAddr,
    mtu: u32,
    stop: &Stop,
) -> Result<Option<u32>, Error> {
    let headers = if to.is_ipv4() { 20 + 8 } else { 40 + 8 };
    let datagram = vec![0; mtu as usize - headers];
    let discover = || -> io::Result<Option<u32>> {
        for _ in 0..TRIES {
            // A fresh socket each time: one that is connected keeps the route of its beginning.
            let socket = connected(to)?;
            // It fails where the answer is known already, which is asked for below.
            let _ = socket.send(&datagram);
            if stop.wait(EVERY) {
                break;
            }
            let known = path_mtu(&connected(to)?)?;
            if known < mtu {
                return Ok(Some(known));
            }
        }
        Ok(None)
    };
    namespace.run(discover)?.map_err(|source| Error::Socket {
        flow: format!("path MTU to {to}"),
        step: "asking",
        source,
    })
}

fn connected(to: IpAddr) -> io::Result<UdpSocket> {
    let any = match to {
        IpAddr::V4(_) => IpAddr::from([0; 4]),
        IpAddr::V6(_) => IpAddr::from([0u16; 8]),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(SocketAddr::new(to, DISCARD))?;
    Ok(socket)
}

/// The MTU of a connected socket's route.
fn path_mtu(socket: &UdpSocket) -> io::Result<u32> {
    let (level, option) = match socket.peer_addr()? {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let mut mtu: libc::c_int = 0;
    let mut len = size_of_val(&mtu) as libc::socklen_t;
    // SAFETY: both options write one int, and `len` says that there is room for one.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw mut mtu).cast(),
            &raw mut len,
        )
    };
    match result {
        0 => Ok(mtu.unsigned_abs()),
        _ => Err(io::Error::last_os_error()),
    }
}
