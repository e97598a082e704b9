//! The `demo` verb's work: a gateway between two hosts, all in network namespaces, the datapath on
//! the gateway's two ports, and traffic whose every packet is accounted for. Whatever ends it, a
//! signal included, nothing stays behind; what a killed demo left, the next one removes.

pub mod duration;
mod leftovers;
pub mod measurement;
mod screen;
mod stop;
pub mod summary;
pub mod table;
pub mod topology;
pub mod traffic;

pub use screen::{Screen, Style};
pub use stop::Stop;
pub use summary::Summary;

use crate::datapath::{self, Datapath, Order};
use crate::netns;
use crate::show::{Family, PerFamily};
use measurement::{Measurement, Snapshot};
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use topology::{ETHERNET, FABRIC, Place, Topology};
use traffic::{Traffic, answered, discover_path_mtu};

/// How long neighbours may take to be resolved.
const WARM_UP: Duration = Duration::from_secs(5);

/// How a demo runs.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long there is traffic; until it is stopped, if not said.
    pub time: Option<Duration>,
    /// How often progress is shown.
    pub interval: Duration,
    /// Where it takes place.
    pub place: Place,
}

/// Why a demo could not be given.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Without root there are no namespaces and no programs.
    #[error("the demo makes network namespaces and loads eBPF programs: run it as root (sudo)")]
    NotRoot,
    /// The topology could not be built.
    #[error(transparent)]
    Netns(#[from] netns::Error),
    /// The datapath did not start or went wrong.
    #[error(transparent)]
    Datapath(#[from] datapath::Error),
    /// The traffic did not start.
    #[error(transparent)]
    Traffic(#[from] traffic::Error),
    /// Before anything was counted, a host could not reach the other.
    #[error("{flow}: no answer to any ping within {} s; the demo's network does not work", WARM_UP.as_secs())]
    WarmUp {
        /// The flow.
        flow: String,
    },
    /// The kernel's counters could not be read.
    #[error("reading the kernel's counters: {0}")]
    Counters(#[source] io::Error),
    /// Progress could not be shown.
    #[error("writing the output: {0}")]
    Output(#[source] io::Error),
}

impl Error {
    /// The exit code that the error deserves (see [`crate::cli`]).
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::NotRoot | Error::Counters(_) => 3,
            Error::Netns(error) => error.exit_code(),
            Error::Datapath(error) => error.exit_code(),
            Error::Traffic(error) => error.exit_code(),
            Error::WarmUp { .. } | Error::Output(_) => 1,
        }
    }
}

/// Removes what demos that were killed left behind, namespaces and pins, and names it.
pub fn remove_leftovers() -> Result<Vec<String>, Error> {
    Ok(leftovers::remove()?)
}

/// Runs a demo until its time is over or `stop` is set, and cleans up. A demo that is stopped
/// before there was any traffic has an empty summary. One process runs one at a time.
pub fn run(options: &Options, stop: &Stop, screen: &mut Screen) -> Result<Summary, Error> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    for name in remove_leftovers()? {
        screen
            .say(&format!("removed what a killed demo left: {name}"))
            .map_err(Error::Output)?;
    }
    let topology = match options.place {
        Place::Made => Topology::build(topology::PURPOSE)?,
        Place::Lab => Topology::of_lab()?,
    };
    let pin_root = leftovers::pin_root();
    screen
        .introduce(&topology, &pin_root)
        .map_err(Error::Output)?;
    let mut summary = Summary {
        namespaces: topology
            .namespaces()
            .map(|(role, n)| (role, n.name().to_owned()))
            .into(),
        pin_root,
        ..Summary::default()
    };
    topology
        .gateway
        .run(|| watch(options, stop, screen, &topology, &mut summary))??;
    screen.finish().map_err(Error::Output)?;
    Ok(summary)
}

/// The part that runs inside the gateway.
fn watch(
    options: &Options,
    stop: &Stop,
    screen: &mut Screen,
    topology: &Topology,
    summary: &mut Summary,
) -> Result<(), Error> {
    if stop.is_set() {
        return Ok(());
    }
    let mut datapath = start(topology, &summary.pin_root)?;
    warm_up(topology, stop)?;
    if stop.is_set() {
        return Ok(());
    }
    let snapshot = |datapath: &Datapath| -> Result<Snapshot, Error> {
        Snapshot::take(datapath.report()?).map_err(Error::Counters)
    };
    let before = snapshot(&datapath)?;
    let began = Instant::now();
    let traffic = Traffic::start(topology)?;
    screen.say("traffic runs").map_err(Error::Output)?;
    let (n1, to) = (topology.host(&FABRIC), |family| ETHERNET.address(family));
    summary.path_mtu = PerFamily {
        ipv4: discover_path_mtu(n1, to(Family::Ipv4), FABRIC.mtu, stop)?,
        ipv6: discover_path_mtu(n1, to(Family::Ipv6), FABRIC.mtu, stop)?,
    };
    let left = || {
        options
            .time
            .map(|time| time.saturating_sub(began.elapsed()))
    };
    while left() != Some(Duration::ZERO) {
        if stop.wait(left().map_or(options.interval, |left| left.min(options.interval))) {
            break;
        }
        datapath.refresh()?;
        let (ports, kernel) = snapshot(&datapath)?.since(&before);
        let seconds = began.elapsed().as_secs_f64();
        let now = Measurement {
            seconds,
            ports,
            kernel,
            flows: traffic.rows(),
        };
        screen.show(now, options.time).map_err(Error::Output)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let flows = traffic.finish();
    let (ports, kernel) = snapshot(&datapath)?.since(&before);
    summary.measurement = Measurement {
        seconds,
        ports,
        kernel,
        flows,
    };
    Ok(())
}

/// Starts the datapath on the gateway's ports, from a thread inside it.
fn start(topology: &Topology, pin_root: &Path) -> Result<Datapath, datapath::Error> {
    Datapath::start(&datapath::Options {
        ports: topology
            .sides
            .map(|side| side.gateway_port.to_owned())
            .into(),
        order: Order::Refuse,
        pin_root: pin_root.to_owned(),
    })
}

/// Lets every host and the gateway resolve their neighbours: the packets that wait for that may be
/// dropped, which would say nothing about the datapath.
fn warm_up(topology: &Topology, stop: &Stop) -> Result<(), Error> {
    for family in Family::ALL {
        for (from, to) in [(&FABRIC, &ETHERNET), (&ETHERNET, &FABRIC)] {
            let (source, destination) = (from.address(family), to.address(family));
            let host = topology.host(from);
            if !answered(host, source, destination, WARM_UP, stop)? && !stop.is_set() {
                let flow = format!("ping-{}-{}-{}", family.name(), from.host, to.host);
                return Err(Error::WarmUp { flow });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, PoisonError};
    use std::thread;

    /// Held from a demo's start until it is known that nothing of it stays: the next one of this
    /// process has namespaces of the same names.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    /// Runs a demo and checks that nothing of it stays; returns the result and what was shown.
    fn demo(time: Option<Duration>, stop: &Stop) -> (Summary, String) {
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let options = Options {
            time,
            interval: Duration::from_millis(500),
            place: Place::Made,
        };
        let mut output = Vec::new();
        let mut screen = Screen::new(&mut output, Style::Lines);
        let summary = run(&options, stop, &mut screen).unwrap_or_else(|error| {
            panic!("{error} (`cargo xtask test` runs this test as it should be)")
        });
        assert!(!summary.pin_root.exists(), "{}", summary.pin_root.display());
        for name in summary.namespaces.values() {
            assert!(!Path::new(netns::DIRECTORY).join(name).exists(), "{name}");
        }
        (summary, String::from_utf8(output).unwrap())
    }

    #[test]
    fn a_demo_loses_nothing_takes_the_fast_path_and_leaves_nothing_behind() {
        let (summary, output) = demo(Some(Duration::from_secs(3)), &Stop::new());
        assert_eq!(summary.problems(), [""; 0], "{output}");
        let measurement = &summary.measurement;
        assert!(measurement.seconds >= 3.0, "{}", measurement.seconds);
        assert_eq!(measurement.flows.len(), 12);
        assert!(
            measurement.flows.iter().all(|flow| flow.received > 20),
            "{measurement:?}"
        );

        let [ib0, eth0] = &measurement.ports[..] else {
            panic!("{measurement:?}")
        };
        assert_eq!((ib0.name.as_str(), eth0.name.as_str()), ("ib0", "eth0"));
        for family in Family::ALL {
            // What came in at one port went out at the other.
            assert_eq!(ib0.forwarded.of(family), eth0.sent.of(family));
            assert_eq!(eth0.forwarded.of(family), ib0.sent.of(family));
            // Datagrams and echoes are a packet each, and the blocks at least a packet.
            let units = |from: &str| -> u64 {
                let flows = measurement
                    .flows
                    .iter()
                    .filter(|flow| flow.family == family);
                flows
                    .filter(|flow| flow.from == from)
                    .map(|flow| flow.received)
                    .sum()
            };
            assert!(
                ib0.forwarded.of(family).packets >= units("n1") / 2,
                "{measurement:?}"
            );
            assert!(
                eth0.forwarded.of(family).packets >= units("n2") / 2,
                "{measurement:?}"
            );
        }
        // One datagram of each family was too large for Ethernet, and the kernel said so.
        assert!(ib0.handed_up["too_big"].packets >= 2, "{measurement:?}");
        let mtu = Some(ETHERNET.mtu);
        assert_eq!(
            summary.path_mtu,
            PerFamily {
                ipv4: mtu,
                ipv6: mtu
            }
        );

        for name in summary.namespaces.values() {
            assert!(output.contains(name), "{output}");
        }
        assert!(
            output.contains("ib0 is a veth with Ethernet framing"),
            "{output}"
        );
        assert!(
            output
                .lines()
                .filter(|line| line.contains("fast path:"))
                .count()
                >= 5,
            "{output}"
        );
    }

    #[test]
    fn a_demo_without_a_time_runs_until_it_is_stopped() {
        let stop = Stop::new();
        let stopper = stop.clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_secs(2));
            stopper.stop();
        });
        let began = Instant::now();
        let (summary, output) = demo(None, &stop);
        // Two demos may wait for each other.
        assert!(began.elapsed() < Duration::from_secs(30), "{output}");
        assert_eq!(summary.measurement.lost(), 0, "{output}");
    }

    #[test]
    fn a_demo_that_is_stopped_while_it_is_set_up_has_an_empty_summary() {
        let stop = Stop::new();
        stop.stop();
        let (summary, _) = demo(Some(Duration::from_secs(60)), &stop);
        assert_eq!(summary.measurement, Measurement::default());
        assert!(!summary.ok());
        assert!(
            summary
                .text()
                .starts_with("stopped before there was any traffic")
        );
    }
}
