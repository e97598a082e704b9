//! The demo's traffic: TCP, UDP and ping, over IPv4 and IPv6, in both directions at once. Senders
//! stop first, then what is under way may arrive, then it is counted.

pub mod flow;
mod path_mtu;
mod payload;
mod ping;
mod sequence;
mod tcp;
mod udp;

pub use path_mtu::discover as discover_path_mtu;
pub use ping::answered;

use crate::demo::measurement::FlowRow;
use crate::demo::topology::{ETHERNET, FABRIC, Topology};
use crate::netns::{self, Namespace};
use crate::show::Family;
use flow::{Flow, Phase, Protocol};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long what is under way may take to arrive.
const DRAIN: Duration = Duration::from_secs(1);

/// Why traffic could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A namespace could not be entered.
    #[error(transparent)]
    Netns(#[from] netns::Error),
    /// A socket could not be made.
    #[error("{flow}: {step}: {source}")]
    Socket {
        /// The flow.
        flow: String,
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    fn socket(flow: &Flow, step: &'static str) -> impl FnOnce(io::Error) -> Error {
        let flow = flow.name();
        move |source| Error::Socket { flow, step, source }
    }

    /// The exit code that the error deserves (see [`crate::cli`]).
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Netns(error) => error.exit_code(),
            Error::Socket { .. } => 3,
        }
    }
}

/// Traffic that runs. Dropping it ends it at once.
#[derive(Debug)]
pub struct Traffic {
    phase: Arc<Phase>,
    flows: Vec<Arc<Flow>>,
    threads: Threads,
}

/// The threads that were started, each with its flow; [`Traffic`] joins them, however far starting
/// came.
#[derive(Debug, Default)]
struct Threads(Vec<(Arc<Flow>, JoinHandle<()>)>);

impl Threads {
    fn start(
        &mut self,
        flow: &Arc<Flow>,
        namespace: &Namespace,
        work: impl FnOnce(&Flow) + Send + 'static,
    ) -> Result<(), Error> {
        let theirs = flow.clone();
        let thread = namespace.spawn(move || work(&theirs))?;
        self.0.push((flow.clone(), thread));
        Ok(())
    }
}

impl Traffic {
    /// Starts every flow.
    pub fn start(topology: &Topology) -> Result<Traffic, Error> {
        let phase = Arc::new(Phase::default());
        let mut traffic = Traffic {
            phase: phase.clone(),
            flows: Vec::new(),
            threads: Threads::default(),
        };
        for protocol in Protocol::ALL {
            for family in Family::ALL {
                for (from, to) in [(&FABRIC, &ETHERNET), (&ETHERNET, &FABRIC)] {
                    let id = traffic.flows.len() as u32;
                    let flow = Flow::new(id, protocol, family, from, to, phase.clone());
                    traffic.flows.push(Arc::new(flow));
                }
            }
        }
        for flow in &traffic.flows {
            let (from, to) = (topology.host(flow.from), topology.host(flow.to));
            let threads = &mut traffic.threads;
            match flow.protocol {
                Protocol::Tcp => tcp::start(flow, from, to, threads)?,
                Protocol::Udp => udp::start(flow, from, to, threads)?,
                Protocol::Ping => ping::start(flow, from, threads)?,
            }
        }
        Ok(traffic)
    }

    /// The flows as they are.
    pub fn rows(&self) -> Vec<FlowRow> {
        self.flows.iter().map(|flow| flow.row()).collect()
    }

    /// Stops the senders, waits until everything has arrived or a second has passed, and returns
    /// the flows as they ended.
    pub fn finish(mut self) -> Vec<FlowRow> {
        self.phase.drain();
        let deadline = Instant::now() + DRAIN;
        while !self.flows.iter().all(|flow| flow.drained()) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        self.join();
        for flow in self.flows.iter().filter(|flow| flow.row().sent == 0) {
            flow.fail("sending", "nothing was sent before the end");
        }
        self.rows()
    }

    fn join(&mut self) {
        self.phase.end();
        for (flow, thread) in self.threads.0.drain(..) {
            if thread.join().is_err() {
                flow.fail("thread", "it panicked");
            }
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::Stop;
    use crate::demo::topology::Side;

    /// A gateway that forwards by its kernel alone, with neighbours resolved.
    fn topology(purpose: &str) -> Topology {
        assert!(
            nix::unistd::geteuid().is_root(),
            "this test makes network namespaces: run it as root (or skip it with `-- --skip demo`)"
        );
        let topology = Topology::build(purpose).unwrap();
        for family in Family::ALL {
            for (from, to) in [(&FABRIC, &ETHERNET), (&ETHERNET, &FABRIC)] {
                assert!(
                    ping(&topology, from, to, family),
                    "{family:?} {} {}",
                    from.host,
                    to.host
                );
            }
        }
        topology
    }

    fn ping(topology: &Topology, from: &Side, to: &Side, family: Family) -> bool {
        let (from_address, to_address) = (from.address(family), to.address(family));
        let patience = Duration::from_secs(5);
        answered(
            topology.host(from),
            from_address,
            to_address,
            patience,
            &Stop::new(),
        )
        .unwrap()
    }

    #[test]
    fn over_a_kernel_that_forwards_everything_arrives() {
        let topology = topology("trafficgood");
        let traffic = Traffic::start(&topology).unwrap();
        thread::sleep(Duration::from_millis(700));
        let flows = traffic.finish();
        assert_eq!(flows.len(), 12);
        for flow in flows {
            let clean = (flow.lost, flow.duplicates, flow.corrupt, &flow.error);
            assert_eq!(clean, (0, 0, 0, &None), "{flow:?}");
            assert!(flow.received > 5 && flow.received == flow.sent, "{flow:?}");
            assert!(flow.bytes >= flow.received * 32, "{flow:?}");
        }
    }

    #[test]
    fn what_a_gateway_swallows_is_lost_and_the_rest_is_not() {
        let topology = topology("trafficlossy");
        let traffic = Traffic::start(&topology).unwrap();
        thread::sleep(Duration::from_millis(300));
        topology
            .gateway
            .ip(&["route", "add", "blackhole", "10.20.0.1/32"])
            .unwrap();
        thread::sleep(Duration::from_millis(300));
        let began = Instant::now();
        let flows = traffic.finish();
        assert!(
            began.elapsed() < DRAIN + Duration::from_secs(1),
            "{:?}",
            began.elapsed()
        );
        for flow in flows {
            // Everything towards n2 over IPv4 is gone, and with it the replies and the
            // acknowledgements of what comes from there.
            let hit = flow.family == Family::Ipv4
                && !(flow.protocol == "udp" && flow.from == ETHERNET.host);
            match (hit, flow.protocol, flow.from) {
                // How much a window lets out without acknowledgements is TCP's affair.
                (true, "tcp", "n2") => {}
                (true, ..) => assert!(flow.lost > 0, "{flow:?}"),
                (false, ..) => assert_eq!(flow.lost, 0, "{flow:?}"),
            }
            assert_eq!((flow.corrupt, &flow.error), (0, &None), "{flow:?}");
        }
    }

    #[test]
    fn traffic_that_is_dropped_ends_at_once() {
        let topology = topology("trafficdropped");
        let traffic = Traffic::start(&topology).unwrap();
        let began = Instant::now();
        drop(traffic);
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{:?}",
            began.elapsed()
        );
    }

    #[test]
    fn a_host_nobody_routes_to_does_not_answer() {
        let topology = topology("trafficsilent");
        topology
            .gateway
            .ip(&["route", "add", "blackhole", "10.20.0.1/32"])
            .unwrap();
        let (from, to) = (FABRIC.address(Family::Ipv4), ETHERNET.address(Family::Ipv4));
        let patience = Duration::from_millis(300);
        assert!(!answered(&topology.n1, from, to, patience, &Stop::new()).unwrap());
        let stop = Stop::new();
        stop.stop();
        let began = Instant::now();
        assert!(!answered(&topology.n1, from, to, Duration::from_secs(60), &stop).unwrap());
        assert!(began.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn the_fabric_host_learns_what_ethernet_takes() {
        let topology = topology("trafficmtu");
        for family in Family::ALL {
            let to = ETHERNET.address(family);
            let learnt = discover_path_mtu(&topology.n1, to, FABRIC.mtu, &Stop::new()).unwrap();
            assert_eq!(learnt, Some(ETHERNET.mtu), "{family:?}");
            let back = FABRIC.address(family);
            let none = discover_path_mtu(&topology.n2, back, ETHERNET.mtu, &Stop::new()).unwrap();
            assert_eq!(none, None, "nothing on that way is smaller");
        }
    }
}
