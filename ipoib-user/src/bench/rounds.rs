//! Rounds: both forwarders one after the other, the one that begins changing from round to round,
//! so that a machine that becomes slower or faster does so for both.

use super::Error;
use super::forwarder::Side;
use super::plan::Plan;
use crate::demo::Stop;

/// One measurement of one forwarder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The figure, in the row's unit.
    pub value: f64,
    /// Seconds over which it was measured.
    pub seconds: f64,
    /// What was sent: packets, bytes or runs.
    pub sent: u64,
    /// What arrived of it.
    pub received: u64,
}

/// Both forwarders, one right after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Which was first.
    pub first: Side,
    /// The datapath.
    pub ours: Sample,
    /// The kernel alone, or an empty program.
    pub peer: Sample,
}

impl Round {
    /// Both sides in the order in which they were measured.
    pub fn sides(&self) -> [Side; 2] {
        match self.first {
            Side::Ours => [Side::Ours, Side::Peer],
            Side::Peer => [Side::Peer, Side::Ours],
        }
    }

    /// The measurement of a side.
    pub fn of(&self, side: Side) -> Sample {
        match side {
            Side::Ours => self.ours,
            Side::Peer => self.peer,
        }
    }

    /// Ours in units of the peer's.
    pub fn ratio(&self) -> f64 {
        self.ours.value / self.peer.value
    }
}

/// Something that can be measured with either forwarder.
pub trait Experiment {
    /// Measures once; the figure is above 0.
    fn measure(&mut self, side: Side) -> Result<Sample, Error>;
}

/// Measures `count` rounds, after one that does not count. `done` is told each round's number, from
/// 1.
pub fn interleave(
    plan: &Plan,
    experiment: &mut dyn Experiment,
    count: usize,
    stop: &Stop,
    done: &mut dyn FnMut(usize),
) -> Result<Vec<Round>, Error> {
    let mut rounds = Vec::with_capacity(count);
    for number in 0..=count {
        let order = match number % 2 {
            0 => [Side::Peer, Side::Ours],
            _ => [Side::Ours, Side::Peer],
        };
        let mut measure = |side| {
            if stop.is_set() {
                return Err(Error::Stopped);
            }
            let row = plan.name;
            match experiment.measure(side)? {
                sample if sample.value > 0.0 => Ok(sample),
                _ if stop.is_set() => Err(Error::Stopped),
                _ => Err(Error::NothingArrived { row, side }),
            }
        };
        let (one, other) = (measure(order[0])?, measure(order[1])?);
        let (ours, peer) = match order[0] {
            Side::Ours => (one, other),
            Side::Peer => (other, one),
        };
        // Caches, the code that the first packet patches into the kernel: not what lasts.
        if number > 0 {
            rounds.push(Round {
                first: order[0],
                ours,
                peer,
            });
            done(number);
        }
    }
    Ok(rounds)
}

#[cfg(test)]
mod tests {
    use super::super::plan::PLANS;
    use super::*;

    struct Script {
        asked: Vec<Side>,
        stop_after: Option<(usize, Stop)>,
        value: f64,
    }

    impl Experiment for Script {
        fn measure(&mut self, side: Side) -> Result<Sample, Error> {
            self.asked.push(side);
            if let Some((after, stop)) = &self.stop_after
                && self.asked.len() == *after
            {
                stop.stop();
            }
            Ok(Sample {
                value: self.value * self.asked.len() as f64,
                seconds: 1.0,
                sent: 1,
                received: 1,
            })
        }
    }

    fn script(value: f64) -> Script {
        Script {
            asked: Vec::new(),
            stop_after: None,
            value,
        }
    }

    #[test]
    fn the_order_alternates_and_the_first_round_does_not_count() {
        use Side::{Ours, Peer};
        let (mut experiment, mut told) = (script(1.0), Vec::new());
        let rounds = interleave(&PLANS[0], &mut experiment, 2, &Stop::new(), &mut |n| {
            told.push(n)
        })
        .unwrap();
        assert_eq!(experiment.asked, [Peer, Ours, Ours, Peer, Peer, Ours]);
        let values = rounds.iter().map(|r| (r.first, r.ours.value, r.peer.value));
        assert_eq!(
            values.collect::<Vec<_>>(),
            [(Ours, 3.0, 4.0), (Peer, 6.0, 5.0)]
        );
        assert_eq!(told, [1, 2]);
        assert_eq!(rounds[0].ratio(), 0.75);
    }

    #[test]
    fn a_wish_to_stop_ends_it_between_two_measurements() {
        let stop = Stop::new();
        let mut experiment = script(1.0);
        experiment.stop_after = Some((3, stop.clone()));
        let outcome = interleave(&PLANS[0], &mut experiment, 9, &stop, &mut |_| {});
        assert!(matches!(outcome, Err(Error::Stopped)));
        assert_eq!(experiment.asked.len(), 3);
    }

    #[test]
    fn nothing_is_no_figure() {
        let outcome = interleave(&PLANS[0], &mut script(0.0), 9, &Stop::new(), &mut |_| {});
        assert!(matches!(
            outcome,
            Err(Error::NothingArrived {
                side: Side::Peer,
                ..
            })
        ));
    }
}
