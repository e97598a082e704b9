//! A flow's identity, its counters, and what its threads share: the phase of the demo and a pace.

use crate::demo::measurement::FlowRow;
use crate::demo::topology::Side;
use crate::show::Family;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A protocol of the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A bounded stream.
    Tcp,
    /// Numbered datagrams.
    Udp,
    /// ICMP or ICMPv6 echo.
    Ping,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Ping];

    /// The word in names.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Ping => "ping",
        }
    }

    /// What is counted.
    pub fn unit(self) -> &'static str {
        match self {
            Protocol::Tcp => "blocks",
            Protocol::Udp => "datagrams",
            Protocol::Ping => "echoes",
        }
    }
}

/// Traffic of one protocol and family in one direction, as its threads and the table see it.
#[derive(Debug)]
pub struct Flow {
    /// Number in the payload, different for every flow.
    pub id: u32,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its family.
    pub family: Family,
    /// Where it comes from.
    pub from: &'static Side,
    /// Where it goes.
    pub to: &'static Side,
    /// Units sent.
    pub sent: AtomicU64,
    /// Units received, each once.
    pub received: AtomicU64,
    /// Units received again.
    pub duplicates: AtomicU64,
    /// Units received with wrong content.
    pub corrupt: AtomicU64,
    /// Bytes of payload received.
    pub bytes: AtomicU64,
    /// The sender has sent its last unit.
    pub sent_all: AtomicBool,
    error: Mutex<Option<String>>,
    phase: Arc<Phase>,
}

impl Flow {
    /// A flow that has not begun.
    pub fn new(
        id: u32,
        protocol: Protocol,
        family: Family,
        from: &'static Side,
        to: &'static Side,
        phase: Arc<Phase>,
    ) -> Flow {
        Flow {
            id,
            protocol,
            family,
            from,
            to,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            sent_all: AtomicBool::new(false),
            error: Mutex::new(None),
            phase,
        }
    }

    /// `<protocol>-<family>-<from>-<to>`.
    pub fn name(&self) -> String {
        let (protocol, family) = (self.protocol.name(), self.family.name());
        format!("{protocol}-{family}-{}-{}", self.from.host, self.to.host)
    }

    /// The sender's address.
    pub fn source(&self) -> IpAddr {
        self.from.address(self.family)
    }

    /// The receiver's address.
    pub fn destination(&self) -> IpAddr {
        self.to.address(self.family)
    }

    /// The receiver's address with a port that the kernel chooses.
    pub fn any_port(&self) -> SocketAddr {
        SocketAddr::new(self.destination(), 0)
    }

    /// Counts a unit that arrived for the first time.
    pub fn received_one(&self, bytes: usize) {
        self.received.fetch_add(1, SeqCst);
        self.bytes.fetch_add(bytes as u64, SeqCst);
    }

    /// Notes what ended the flow early; the first reason stays.
    pub fn fail(&self, what: &str, error: impl std::fmt::Display) {
        // Nothing can panic while it is held.
        let mut slot = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert_with(|| format!("{what}: {error}"));
    }

    /// Whether the sender goes on.
    pub fn sending(&self) -> bool {
        self.phase.get() == SENDING
    }

    /// Whether the receiver gives up.
    pub fn ended(&self) -> bool {
        self.phase.get() == ENDED
    }

    /// Whether everything sent has arrived, whatever its content.
    pub fn drained(&self) -> bool {
        let arrived = self.received.load(SeqCst) + self.corrupt.load(SeqCst);
        self.sent_all.load(SeqCst) && arrived >= self.sent.load(SeqCst)
    }

    /// The row that people see.
    pub fn row(&self) -> FlowRow {
        // Read before `sent`, so that what is on its way is never a negative loss.
        let received = self.received.load(SeqCst);
        let sent = self.sent.load(SeqCst);
        FlowRow {
            name: self.name(),
            family: self.family,
            protocol: self.protocol.name(),
            from: self.from.host,
            to: self.to.host,
            unit: self.protocol.unit(),
            sent,
            received,
            lost: sent.saturating_sub(received),
            duplicates: self.duplicates.load(SeqCst),
            corrupt: self.corrupt.load(SeqCst),
            bytes: self.bytes.load(SeqCst),
            error: self
                .error
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }
}

const SENDING: u8 = 0;
const DRAINING: u8 = 1;
const ENDED: u8 = 2;

/// How far the demo's traffic is: everybody sends, nobody sends, nobody listens.
#[derive(Debug, Default)]
pub struct Phase(AtomicU8);

impl Phase {
    /// Senders stop.
    pub fn drain(&self) {
        self.0.fetch_max(DRAINING, SeqCst);
    }

    /// Receivers stop too.
    pub fn end(&self) {
        self.0.store(ENDED, SeqCst);
    }

    fn get(&self) -> u8 {
        self.0.load(SeqCst)
    }
}

/// One unit each interval. A thread that was late catches up by a few units and forgets the rest,
/// so that a busy machine sees less traffic and not a burst of it.
#[derive(Debug)]
pub struct Pace {
    next: Instant,
    interval: Duration,
}

impl Pace {
    const CATCH_UP: u32 = 8;

    /// A pace whose first unit is due now.
    pub fn new(interval: Duration) -> Pace {
        Pace {
            next: Instant::now(),
            interval,
        }
    }

    /// Sleeps until the next unit is due.
    pub fn wait(&mut self) {
        thread::sleep(self.left());
        self.advance();
    }

    /// Time until the next unit is due.
    pub fn left(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// The unit that was due is on its way.
    pub fn advance(&mut self) {
        self.next += self.interval;
        let behind = Instant::now().saturating_duration_since(self.next);
        if behind > self.interval * Self::CATCH_UP {
            self.next = Instant::now();
        }
    }
}

/// Whether a call that failed so is made again: a time-out, a signal, or memory that was short.
pub fn again(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    ) || matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::topology::{ETHERNET, FABRIC};

    #[test]
    fn a_flow_has_drained_when_all_that_was_sent_has_arrived() {
        let phase = Arc::new(Phase::default());
        let flow = Flow::new(
            1,
            Protocol::Udp,
            Family::Ipv6,
            &FABRIC,
            &ETHERNET,
            phase.clone(),
        );
        assert_eq!(flow.name(), "udp-ipv6-n1-n2");
        flow.sent.store(3, SeqCst);
        flow.received_one(100);
        flow.received_one(100);
        flow.sent_all.store(true, SeqCst);
        assert!(!flow.drained());
        assert_eq!((flow.row().lost, flow.row().bytes), (1, 200));
        flow.corrupt.store(1, SeqCst);
        assert!(flow.drained(), "nothing is on its way any more");
        assert_eq!(flow.row().lost, 1, "what arrived broken did not arrive");

        assert!(flow.sending() && !flow.ended());
        phase.drain();
        assert!(!flow.sending() && !flow.ended());
        phase.end();
        phase.drain();
        assert!(flow.ended(), "there is no way back");
    }

    #[test]
    fn the_first_failure_is_the_one_that_is_shown() {
        let flow = Flow::new(
            1,
            Protocol::Tcp,
            Family::Ipv4,
            &FABRIC,
            &ETHERNET,
            Arc::default(),
        );
        flow.fail("sending", "one");
        flow.fail("receiving", "two");
        assert_eq!(flow.row().error.as_deref(), Some("sending: one"));
    }

    #[test]
    fn a_late_pace_does_not_catch_up_for_long() {
        let mut pace = Pace::new(Duration::from_millis(1));
        thread::sleep(Duration::from_millis(50));
        pace.advance();
        assert!(Instant::now().saturating_duration_since(pace.next) < Duration::from_millis(20));
    }
}
