//! ICMP and ICMPv6 echo with numbered requests, over the kernel's echo sockets (`SOCK_DGRAM`):
//! the kernel fills in identifier and checksum and gives us our own replies alone.

use super::flow::{Flow, Pace, again};
use super::payload;
use super::sequence::Sequence;
use super::{Error, Threads};
use crate::demo::stop::Stop;
use crate::netns::Namespace;
use crate::show::Family;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Bytes of an echo's header: type, code, checksum, identifier, sequence.
const HEADER: usize = 8;
/// Bytes of payload, in turn.
const SIZES: [usize; 2] = [56, 1200];
/// 20 a second.
const INTERVAL: Duration = Duration::from_millis(50);

fn size(number: u64) -> usize {
    SIZES[(number % SIZES.len() as u64) as usize]
}

/// Starts a flow's thread.
pub fn start(flow: &Arc<Flow>, from: &Namespace, threads: &mut Threads) -> Result<(), Error> {
    let echo = from
        .run(|| Echo::open(flow.id, flow.source(), flow.destination()))?
        .map_err(Error::socket(flow, "opening an echo socket"))?;
    threads.start(flow, from, move |flow| {
        if let Err(error) = exchange(flow, &echo) {
            flow.fail("echo", error);
        }
        flow.sent_all.store(true, SeqCst);
    })
}

fn exchange(flow: &Flow, echo: &Echo) -> io::Result<()> {
    let mut pace = Pace::new(INTERVAL);
    let mut sequence = Sequence::default();
    let mut number = 0;
    while !flow.ended() {
        if flow.sending() && pace.left().is_zero() {
            match echo.request(number) {
                Ok(()) => {
                    flow.sent.fetch_add(1, SeqCst);
                    number += 1;
                }
                Err(error) if again(&error) => {}
                Err(error) => return Err(error),
            }
            pace.advance();
        }
        if !flow.sending() {
            flow.sent_all.store(true, SeqCst);
        }
        match echo.reply(pace.left().min(INTERVAL))? {
            Some(Reply::Good(number)) if sequence.arrive(number) => {
                flow.received_one(size(number));
            }
            Some(Reply::Good(_)) => drop(flow.duplicates.fetch_add(1, SeqCst)),
            Some(Reply::Corrupt) => drop(flow.corrupt.fetch_add(1, SeqCst)),
            None => {}
        }
    }
    Ok(())
}

/// Asks until one request is answered, for `patience` at most; returns whether one was.
pub fn answered(
    namespace: &Namespace,
    from: IpAddr,
    to: IpAddr,
    patience: Duration,
    stop: &Stop,
) -> Result<bool, Error> {
    const EVERY: Duration = Duration::from_millis(100);
    let flow = u32::MAX;
    let ask = || -> io::Result<bool> {
        let echo = Echo::open(flow, from, to)?;
        let began = Instant::now();
        for number in 0.. {
            match echo.request(number) {
                Ok(()) => {}
                Err(error) if again(&error) => {}
                Err(error) => return Err(error),
            }
            if let Some(Reply::Good(_)) = echo.reply(EVERY)? {
                return Ok(true);
            }
            if began.elapsed() > patience || stop.is_set() {
                break;
            }
        }
        Ok(false)
    };
    namespace.run(ask)?.map_err(|source| Error::Socket {
        flow: format!("ping from {from} to {to}"),
        step: "asking",
        source,
    })
}

enum Reply {
    /// The answer to the request of that number.
    Good(u64),
    /// An answer with other content than the request had.
    Corrupt,
}

/// An echo socket towards one destination.
#[derive(Debug)]
struct Echo {
    socket: UdpSocket,
    to: SocketAddr,
    flow: u32,
}

impl Echo {
    /// Opens one in the calling thread's namespace.
    fn open(flow: u32, from: IpAddr, to: IpAddr) -> io::Result<Echo> {
        let (family, protocol) = match to {
            IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
            IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
        };
        let socket = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, protocol)?;
        // For the calls that are used here an echo socket is like one of UDP without ports. It is
        // not connected, so that an ICMP error is one lost echo and not the end of the flow.
        let socket = UdpSocket::from(socket);
        bind(&socket, from)?;
        Ok(Echo {
            socket,
            to: SocketAddr::new(to, 0),
            flow,
        })
    }

    fn request(&self, number: u64) -> io::Result<()> {
        let mut buffer = [0; HEADER + 1500];
        let message = &mut buffer[..HEADER + size(number)];
        message[0] = match self.family() {
            Family::Ipv4 => 8,
            Family::Ipv6 => 128,
        };
        message[6..HEADER].copy_from_slice(&(number as u16).to_be_bytes());
        payload::write(self.flow, number, &mut message[HEADER..]);
        self.socket.send_to(message, self.to).map(drop)
    }

    /// Waits for one reply, for `time` at most.
    fn reply(&self, time: Duration) -> io::Result<Option<Reply>> {
        // 0 would mean forever.
        self.socket
            .set_read_timeout(Some(time.max(Duration::from_millis(1))))?;
        let mut buffer = [0; 2048];
        let len = match self.socket.recv(&mut buffer) {
            Ok(len) => len,
            Err(error) if again(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let reply = match self.family() {
            Family::Ipv4 => 0,
            Family::Ipv6 => 129,
        };
        let good = buffer[..len]
            .split_at_checked(HEADER)
            .filter(|(header, _)| header[0] == reply)
            .and_then(|(_, content)| payload::read(self.flow, content, size));
        Ok(Some(good.map_or(Reply::Corrupt, Reply::Good)))
    }

    fn family(&self) -> Family {
        if self.to.is_ipv4() {
            Family::Ipv4
        } else {
            Family::Ipv6
        }
    }
}

/// `UdpSocket` binds only what it opens itself.
fn bind(socket: &UdpSocket, address: IpAddr) -> io::Result<()> {
    use nix::sys::socket::{SockaddrStorage, bind};
    use std::os::fd::AsRawFd;
    let address = SockaddrStorage::from(SocketAddr::new(address, 0));
    Ok(bind(socket.as_raw_fd(), &address)?)
}
