//! TCP throughput: one connection from n1 to n2 through the gateway, as much as goes through.

use super::Error;
use super::forwarder::{Forwarder, Side};
use super::plan::Plan;
use super::rounds::{Experiment, Sample};
use crate::demo::topology::{ETHERNET, Topology};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

/// What one call hands over or takes.
const BUFFER: usize = 256 << 10;
/// How long the connection may take to reach its speed.
const RAMP: Duration = Duration::from_millis(100);
/// After this long without a byte, something is broken.
const PATIENCE: Duration = Duration::from_secs(5);

/// A bulk transfer for each measurement.
pub struct Stream<'a> {
    plan: Plan,
    topology: &'a Topology,
    pin_root: PathBuf,
    time: Duration,
}

impl<'a> Stream<'a> {
    /// Transfers of `time` each, between the hosts of `topology`.
    pub fn new(plan: &Plan, topology: &'a Topology, pin_root: PathBuf, time: Duration) -> Self {
        Stream {
            plan: *plan,
            topology,
            pin_root,
            time,
        }
    }

    /// A connection from n1 to n2: its ends there and here.
    fn connect(&self) -> Result<(TcpStream, TcpStream), Error> {
        let address = SocketAddr::new(ETHERNET.address(self.plan.family), 0);
        let failed = |what: &str| Error::system(format!("{what} {}", address.ip()));
        let listen = || -> io::Result<_> {
            let listener = TcpListener::bind(address)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = self
            .topology
            .n2
            .run(listen)?
            .map_err(failed("listening on"))?;
        let connect = || TcpStream::connect_timeout(&address, PATIENCE);
        let sender = self
            .topology
            .n1
            .run(connect)?
            .map_err(failed("connecting to"))?;
        let (receiver, _) = listener.accept().map_err(failed("accepting on"))?;
        for end in [&sender, &receiver] {
            end.set_read_timeout(Some(PATIENCE))
                .map_err(failed("setting up"))?;
            end.set_write_timeout(Some(PATIENCE))
                .map_err(failed("setting up"))?;
        }
        Ok((sender, receiver))
    }

    fn transfer(&self) -> Result<(Sample, u64), Error> {
        let (sender, receiver) = self.connect()?;
        let (stop, sent, received) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let starting = || Error::system("starting a thread");
        thread::scope(|scope| {
            let receiving = thread::Builder::new()
                .spawn_scoped(scope, || receive(receiver, &received))
                .map_err(starting())?;
            // It closes when it is told to stop, and also where it does not start: then the other
            // one ends, too.
            let sending = thread::Builder::new()
                .spawn_scoped(scope, || send(sender, &sent, &stop))
                .map_err(starting())?;
            let now = || {
                (
                    received.load(Ordering::Relaxed),
                    sent.load(Ordering::Relaxed),
                )
            };
            sleep(RAMP);
            let (before, began) = (now(), Instant::now());
            sleep(self.time);
            let (after, took) = (now(), began.elapsed());
            stop.store(true, Ordering::Relaxed);
            join(sending).map_err(Error::system("sending"))?;
            join(receiving).map_err(Error::system("receiving"))?;
            let bytes = after.0 - before.0;
            let sample = Sample {
                value: bytes as f64 * 8e-9 / took.as_secs_f64(),
                seconds: took.as_secs_f64(),
                sent: after.1 - before.1,
                received: bytes,
            };
            Ok((sample, now().0))
        })
    }
}

impl Experiment for Stream<'_> {
    fn measure(&mut self, side: Side) -> Result<Sample, Error> {
        let forwarder = Forwarder::start(side, self.plan.family, &self.pin_root)?;
        let (sample, all) = self.transfer()?;
        forwarder.check_stream(self.plan.name, all)?;
        Ok(sample)
    }
}

/// Sends until told to stop, then closes.
fn send(mut to: TcpStream, sent: &AtomicU64, stop: &AtomicBool) -> io::Result<()> {
    let buffer = vec![0; BUFFER];
    while !stop.load(Ordering::Relaxed) {
        sent.fetch_add(to.write(&buffer)? as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Receives until the other end closes.
fn receive(mut from: TcpStream, received: &AtomicU64) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(bytes) => received.fetch_add(bytes as u64, Ordering::Relaxed),
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
    }
}

fn join(thread: ScopedJoinHandle<'_, io::Result<()>>) -> io::Result<()> {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}
