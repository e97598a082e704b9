//! The `bench` verb's work: the datapath against plain kernel forwarding, in namespaces, on this
//! machine, in turns. What it reports are ratios; nothing stays behind, whatever ends it.

mod cpu;
mod error;
mod forwarder;
mod leftovers;
mod machine;
mod packet;
mod packets;

mod plan;
mod program;
mod raw_program;
mod report;
mod rounds;
mod rows;
mod statistics;
mod stream;
mod topology;

pub use error::Error;
pub use machine::Machine;
pub use plan::{Relation, Target};
pub use report::{Loss, Report};
pub use rows::{ROUNDS_TO_JUDGE, Row};
pub use statistics::MIN_ROUNDS;

use crate::demo::Stop;
use crate::demo::topology::Topology;
use packets::Packets;
use plan::{Kind, PLANS, Plan};
use program::Program;
use rounds::Experiment;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use stream::Stream;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds a row, [`MIN_ROUNDS`] or more; targets are judged from [`ROUNDS_TO_JUDGE`] on.
    pub rounds: usize,
    /// How long one measurement takes, about.
    pub time: Duration,
    /// Only rows whose name contains this.
    pub filter: Option<String>,
}

/// Measures every row that the filter leaves. `say` is told, in a line each, what goes on. One
/// process measures one thing at a time.
pub fn run(
    options: &Options,
    stop: &Stop,
    say: &mut (dyn FnMut(&str) + Send),
) -> Result<Report, Error> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let plans = plans(options)?;
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NotRoot);
    }
    for name in leftovers::remove()? {
        say(&format!("removed what a killed benchmark left: {name}"));
    }
    let mut report = Report::new(Machine::read());
    let topology = topology::build()?;
    let pin_root = leftovers::pin_root();
    topology.gateway.run(|| -> Result<(), Error> {
        for plan in plans {
            let mut experiment = experiment(plan, options, &topology, &pin_root)?;
            let mut done = |round| say(&format!("{}: round {round}/{}", plan.name, options.rounds));
            let rounds =
                rounds::interleave(plan, experiment.as_mut(), options.rounds, stop, &mut done)?;
            report.add(plan, &rounds)?;
        }
        Ok(())
    })??;
    Ok(report)
}

fn plans(options: &Options) -> Result<Vec<&'static Plan>, Error> {
    if options.rounds < MIN_ROUNDS {
        return Err(Error::TooFewRounds {
            rounds: options.rounds,
        });
    }
    let filter = options.filter.as_deref().unwrap_or_default();
    let chosen: Vec<_> = PLANS
        .iter()
        .filter(|plan| plan.name.contains(filter))
        .collect();
    if chosen.is_empty() {
        return Err(Error::NoSuchRow {
            filter: filter.to_owned(),
            names: PLANS.iter().map(|plan| plan.name).collect(),
        });
    }
    Ok(chosen)
}

/// Prepares what a plan needs, in the gateway's namespace.
fn experiment(
    plan: &Plan,
    options: &Options,
    topology: &Topology,
    pin_root: &Path,
) -> Result<Box<dyn Experiment>, Error> {
    let (root, time) = (pin_root.to_owned(), options.time);
    Ok(match plan.kind {
        Kind::Packets => Box::new(Packets::new(plan, topology, root, time)?),
        Kind::Stream => Box::new(Stream::new(plan, topology, root, time)?),
        Kind::Program => Box::new(Program::new(plan, root, time)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick(filter: Option<&str>) -> Options {
        Options {
            rounds: MIN_ROUNDS,
            time: Duration::from_millis(30),
            filter: filter.map(str::to_owned),
        }
    }

    /// That each side carried its traffic, to the packet, and that of ours each left with the right
    /// headers, is checked while it is measured: anything else ends it with an error.
    #[test]
    fn every_row_is_measured_on_the_road_it_is_about() {
        let mut said = Vec::new();
        let report = run(&quick(None), &Stop::new(), &mut |line| {
            said.push(line.to_owned())
        })
        .expect("needs root, iproute2 and a build by `cargo xtask`");
        let names: Vec<_> = report.rows.iter().map(|row| row.name).collect();
        assert_eq!(names, PLANS.map(|plan| plan.name));
        for row in &report.rows {
            assert!(row.ours > 0.0 && row.peer > 0.0, "{row:?}");
            assert!(row.low <= row.ratio && row.ratio <= row.high, "{row:?}");
            assert_eq!((row.rounds, row.met), (MIN_ROUNDS, None));
        }
        assert!(said.contains(&format!("program_ns_ipv6: round {MIN_ROUNDS}/{MIN_ROUNDS}")));
        assert_eq!(
            report.raw().lines().count(),
            1 + PLANS.len() * MIN_ROUNDS * 2
        );
        assert!(!leftovers::pin_root().exists());
    }

    #[test]
    fn a_wish_to_stop_leaves_nothing_behind() {
        let stop = Stop::new();
        let outcome = run(&quick(Some("pps_ipv4")), &stop, &mut |_| stop.stop());
        assert!(matches!(outcome, Err(Error::Stopped)), "{outcome:?}");
        assert!(!leftovers::pin_root().exists());
        let name = crate::netns::name(topology::PURPOSE, "gateway");
        assert!(!Path::new(crate::netns::DIRECTORY).join(name).exists());
    }

    #[test]
    fn what_can_not_be_measured_is_refused_at_once() {
        let refused = |options: Options| run(&options, &Stop::new(), &mut |_| {}).unwrap_err();
        let error = refused(quick(Some("latency")));
        assert!(error.to_string().contains("forward_tcp_ipv6"), "{error}");
        assert_eq!(error.exit_code(), 2);
        let error = refused(Options {
            rounds: 5,
            ..quick(None)
        });
        assert!(matches!(error, Error::TooFewRounds { rounds: 5 }));
        assert_eq!(error.exit_code(), 2);
    }
}
