//! Numbered UDP datagrams of several sizes.

use super::flow::{Flow, Pace, again};
use super::payload;
use super::sequence::Sequence;
use super::{Error, Threads};
use crate::netns::Namespace;
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

/// Bytes of payload, in turn. The largest makes an IPv6 packet of 1448 bytes.
const SIZES: [usize; 5] = [32, 200, 600, 1100, 1400];
/// 500 a second.
const INTERVAL: Duration = Duration::from_millis(2);
/// Seconds of datagrams, so that a receiver that isn't scheduled loses none.
const RECEIVE_BUFFER: usize = 8 << 20;
const POLL: Duration = Duration::from_millis(50);

fn size(number: u64) -> usize {
    SIZES[(number % SIZES.len() as u64) as usize]
}

/// Starts a flow's two threads.
pub fn start(
    flow: &Arc<Flow>,
    from: &Namespace,
    to: &Namespace,
    threads: &mut Threads,
) -> Result<(), Error> {
    let receiving = to.run(|| -> io::Result<_> {
        let socket = UdpSocket::bind(flow.any_port())?;
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
        socket.set_read_timeout(Some(POLL))?;
        Ok((socket.local_addr()?, socket))
    })?;
    let (address, receiving) = receiving.map_err(Error::socket(flow, "binding the receiver"))?;
    let sending = from.run(|| UdpSocket::bind(SocketAddr::new(flow.source(), 0)))?;
    let sending = sending.map_err(Error::socket(flow, "binding the sender"))?;
    threads.start(flow, to, move |flow| {
        if let Err(error) = receive(flow, &receiving) {
            flow.fail("receiving", error);
        }
    })?;
    threads.start(flow, from, move |flow| {
        if let Err(error) = send(flow, &sending, address) {
            flow.fail("sending", error);
        }
        flow.sent_all.store(true, SeqCst);
    })
}

fn send(flow: &Flow, socket: &UdpSocket, address: SocketAddr) -> io::Result<()> {
    let mut buffer = [0; 1500];
    let mut pace = Pace::new(INTERVAL);
    let mut number = 0;
    while flow.sending() {
        let datagram = &mut buffer[..size(number)];
        payload::write(flow.id, number, datagram);
        match socket.send_to(datagram, address) {
            Ok(_) => {
                flow.sent.fetch_add(1, SeqCst);
                number += 1;
            }
            Err(error) if again(&error) => thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error),
        }
        pace.wait();
    }
    Ok(())
}

fn receive(flow: &Flow, socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = [0; 2048];
    let mut sequence = Sequence::default();
    while !flow.ended() {
        let len = match socket.recv(&mut buffer) {
            Ok(len) => len,
            Err(error) if again(&error) => continue,
            Err(error) => return Err(error),
        };
        match payload::read(flow.id, &buffer[..len], size) {
            Some(number) if sequence.arrive(number) => flow.received_one(len),
            Some(_) => drop(flow.duplicates.fetch_add(1, SeqCst)),
            None => drop(flow.corrupt.fetch_add(1, SeqCst)),
        }
    }
    Ok(())
}
