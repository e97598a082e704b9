//! TCP throughput: one connection from n1 to n2 through the gateway, whoever forwards. It sends as
//! much as goes through, but only while it is measured: it would slow down what lies between.

use super::Error;
use super::forwarder::{Forwarder, Side};
use super::plan::Plan;
use super::rounds::{Experiment, Sample};
use crate::demo::topology::{ETHERNET, Topology};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

/// What one call hands over or takes.
const BUFFER: usize = 256 << 10;
/// How long the connection may take to reach its speed.
const RAMP: Duration = Duration::from_millis(30);
/// After this long without a byte, something is broken.
const PATIENCE: Duration = Duration::from_secs(5);

/// The throughput of a connection.
pub struct Stream {
    plan: Plan,
    pin_root: PathBuf,
    time: Duration,
    connection: Connection,
}

impl Stream {
    /// Connects the hosts of `topology`; each measurement takes `time`.
    pub fn new(
        plan: &Plan,
        topology: &Topology,
        pin_root: PathBuf,
        time: Duration,
    ) -> Result<Stream, Error> {
        Ok(Stream {
            plan: *plan,
            pin_root,
            time,
            connection: Connection::start(plan, topology)?,
        })
    }

    fn watch(&mut self) -> Result<Sample, Error> {
        let (before, began) = (self.connection.carried(), Instant::now());
        loop {
            sleep(self.time);
            let (after, took) = (self.connection.carried(), began.elapsed());
            let received = after.received - before.received;
            // On a busy machine both ends may have had to wait; that counts, too.
            if received > 0 || took > PATIENCE {
                return Ok(Sample {
                    value: received as f64 * 8e-9 / took.as_secs_f64(),
                    seconds: took.as_secs_f64(),
                    sent: after.sent - before.sent,
                    received,
                });
            }
            self.connection.check()?;
        }
    }
}

impl Experiment for Stream {
    fn measure(&mut self, side: Side) -> Result<Sample, Error> {
        let forwarder = Forwarder::start(side, &self.plan, &self.pin_root)?;
        self.connection.send(true);
        sleep(RAMP);
        let sample = self.watch();
        self.connection.send(false);
        let sample = sample?;
        self.connection.drain()?;
        forwarder.carried_all()?;
        Ok(sample)
    }
}

/// A connection whose ends send and receive, each in its thread, until it is dropped.
struct Connection {
    ends: [TcpStream; 2],
    shared: Arc<Shared>,
    sending: Option<JoinHandle<io::Result<()>>>,
    receiving: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    send: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
}

/// Bytes since a connection began.
#[derive(Clone, Copy)]
struct Bytes {
    sent: u64,
    received: u64,
}

impl Connection {
    fn start(plan: &Plan, topology: &Topology) -> Result<Connection, Error> {
        let (sender, receiver) = connect(plan, topology)?;
        let again = |end: &TcpStream| {
            end.try_clone()
                .map_err(Error::system("duplicating a socket"))
        };
        let mut connection = Connection {
            ends: [again(&sender)?, again(&receiver)?],
            shared: Arc::default(),
            sending: None,
            receiving: None,
        };
        let start = |work: fn(TcpStream, &Shared) -> io::Result<()>, end| {
            let shared = connection.shared.clone();
            thread::Builder::new()
                .spawn(move || work(end, &shared))
                .map_err(Error::system("starting a thread"))
        };
        let (receiving, sending) = (start(receive, receiver)?, start(send, sender));
        connection.receiving = Some(receiving);
        connection.sending = Some(sending?);
        Ok(connection)
    }

    fn carried(&self) -> Bytes {
        Bytes {
            sent: self.shared.sent.load(Ordering::Relaxed),
            received: self.shared.received.load(Ordering::Relaxed),
        }
    }

    /// Lets it send, or makes it pause.
    fn send(&self, send: bool) {
        self.shared.send.store(send, Ordering::Relaxed);
        if let Some(thread) = &self.sending {
            thread.thread().unpark();
        }
    }

    /// Waits until all that was sent has arrived.
    fn drain(&mut self) -> Result<(), Error> {
        let patience = Instant::now() + PATIENCE;
        let mut before = self.carried();
        loop {
            sleep(Duration::from_millis(1));
            let now = self.carried();
            if now.sent == before.sent && now.received == now.sent || Instant::now() > patience {
                return self.check();
            }
            before = now;
        }
    }

    /// An error if one of the ends has failed.
    fn check(&mut self) -> Result<(), Error> {
        for (end, what) in [
            (&mut self.sending, "sending over TCP"),
            (&mut self.receiving, "receiving over TCP"),
        ] {
            if let Some(thread) = end.take_if(|thread| thread.is_finished()) {
                join(thread).map_err(Error::system(what))?;
            }
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.send(false);
        // Whatever they wait for, they wait no longer.
        for end in &self.ends {
            let _ = end.shutdown(Shutdown::Both);
        }
        // What an end says now was said before, or is about a connection that nobody needs.
        for thread in [self.sending.take(), self.receiving.take()] {
            let _ = thread.map(JoinHandle::join);
        }
    }
}

/// A connection from n1 to n2: its ends there and here. Sockets stay in the namespaces in which
/// they were made.
fn connect(plan: &Plan, topology: &Topology) -> Result<(TcpStream, TcpStream), Error> {
    let address = SocketAddr::new(ETHERNET.address(plan.family), 0);
    let failed = |what: &str| Error::system(format!("{what} {}", address.ip()));
    let listen = || -> io::Result<_> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    let listening = topology.n2.run(listen)?;
    let (listener, address) = listening.map_err(failed("listening on"))?;
    let connecting = topology
        .n1
        .run(|| TcpStream::connect_timeout(&address, PATIENCE))?;
    let sender = connecting.map_err(failed("connecting to"))?;
    let (receiver, _) = listener.accept().map_err(failed("accepting on"))?;
    Ok((sender, receiver))
}

/// Sends while it may, until told to stop, then closes.
fn send(mut to: TcpStream, shared: &Shared) -> io::Result<()> {
    let buffer = vec![0; BUFFER];
    while !shared.stop.load(Ordering::Relaxed) {
        if !shared.send.load(Ordering::Relaxed) {
            thread::park();
            continue;
        }
        let bytes = unless_interrupted(to.write(&buffer))?.unwrap_or(0);
        shared.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Receives until the other end closes.
fn receive(mut from: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match unless_interrupted(from.read(&mut buffer))? {
            Some(0) => return Ok(()),
            bytes => {
                let bytes = bytes.unwrap_or(0) as u64;
                shared.received.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }
}

fn unless_interrupted(outcome: io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
        outcome => outcome.map(Some),
    }
}

fn join(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}
