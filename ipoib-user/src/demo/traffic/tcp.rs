//! A TCP stream of numbered blocks at a bounded rate, checked byte for byte at the receiver.

use super::flow::{Flow, Pace, again};
use super::payload;
use super::{Error, Threads};
use crate::netns::Namespace;
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a block: large enough for GSO superpackets.
const BLOCK: usize = 16 * 1024;
/// About 50 Mbit/s.
const INTERVAL: Duration = Duration::from_micros(2600);
/// What may be on its way when the sender stops, and so how long draining can take.
const SEND_BUFFER: usize = 256 * 1024;
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);

/// Starts a flow's two threads.
pub fn start(
    flow: &Arc<Flow>,
    from: &Namespace,
    to: &Namespace,
    threads: &mut Threads,
) -> Result<(), Error> {
    let listener = to.run(|| -> io::Result<_> {
        let listener = TcpListener::bind(flow.any_port())?;
        listener.set_nonblocking(true)?;
        Ok((listener.local_addr()?, listener))
    })?;
    let (address, listener) = listener.map_err(Error::socket(flow, "listening"))?;
    threads.start(flow, to, move |flow| {
        if let Err(error) = receive(flow, &listener) {
            flow.fail("receiving", error);
        }
    })?;
    threads.start(flow, from, move |flow| {
        if let Err((what, error)) = send(flow, address) {
            flow.fail(what, error);
        }
        flow.sent_all.store(true, SeqCst);
    })
}

fn send(flow: &Flow, address: SocketAddr) -> Result<(), (&'static str, io::Error)> {
    let Some(mut stream) = connect(flow, address).map_err(|e| ("connecting", e))? else {
        return Ok(());
    };
    let result = send_blocks(flow, &mut stream);
    // The receiver may have gone already; what it has not got is counted.
    let _ = stream.shutdown(Shutdown::Write);
    result.map_err(|e| ("sending", e))
}

/// Connects, or returns `None` where the demo ends before an attempt could succeed.
fn connect(flow: &Flow, address: SocketAddr) -> io::Result<Option<TcpStream>> {
    let began = Instant::now();
    loop {
        match TcpStream::connect_timeout(&address, PATIENCE / 5) {
            Ok(stream) => {
                setsockopt(&stream, sockopt::SndBuf, &SEND_BUFFER)?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(POLL))?;
                return Ok(Some(stream));
            }
            Err(_) if !flow.sending() => return Ok(None),
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Err(error) if again(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

fn send_blocks(flow: &Flow, stream: &mut TcpStream) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    let mut pace = Pace::new(INTERVAL);
    let mut number = 0;
    while flow.sending() {
        payload::fill(flow.id, number, &mut block);
        // A block that was begun is owed, whether or not the rest of it gets out.
        flow.sent.fetch_add(1, SeqCst);
        let mut rest = &block[..];
        while !rest.is_empty() && !flow.ended() {
            match stream.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(error) if again(&error) => {}
                Err(error) => return Err(error),
            }
        }
        number += 1;
        pace.wait();
    }
    Ok(())
}

fn receive(flow: &Flow, listener: &TcpListener) -> io::Result<()> {
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(_) if flow.ended() => return Ok(()),
            Err(error) if again(&error) => thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(error),
        }
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(POLL))?;
    let mut block = vec![0; BLOCK];
    let (mut filled, mut number) = (0, 0);
    while !flow.ended() {
        match stream.read(&mut block[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if again(&error) => continue,
            Err(error) => return Err(error),
        }
        if filled == BLOCK {
            if payload::matches(flow.id, number, &block) {
                flow.received_one(BLOCK);
            } else {
                flow.corrupt.fetch_add(1, SeqCst);
            }
            (filled, number) = (0, number + 1);
        }
    }
    Ok(())
}
