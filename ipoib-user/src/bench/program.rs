//! The program alone: what the datapath's program and an empty one take for a packet, by the
//! kernel's own test run. No device, and the redirect that the program asks for does not happen.

use super::Error;
use super::cpu::on_one_cpu;
use super::forwarder::{Forwarder, Side};
use super::packet;
use super::plan::Plan;
use super::raw_program::{self, Instruction, Kind, Register};
use super::rounds::{Experiment, Sample};
use super::statistics::interquartile_mean;
use crate::demo::topology::FABRIC;
use aya::programs::SchedClassifier;
use ipoib_ebpf::tables::names;
use nix::net::if_::if_nametoindex;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Runs over one packet, each of which takes one from its hop limit.
const REPEAT: u32 = 200;
const HOP_LIMIT: u8 = 255;
const TC_ACT_UNSPEC: i32 = -1;
const TC_ACT_REDIRECT: i32 = 7;

/// Test runs of a packet from Ethernet to Ethernet.
pub struct Program {
    plan: Plan,
    pin_root: PathBuf,
    time: Duration,
    empty: OwnedFd,
    frame: Vec<u8>,
    ifindex: u32,
}

impl Program {
    /// Test runs for `time` each. To be called in the gateway's namespace.
    pub fn new(plan: &Plan, pin_root: PathBuf, time: Duration) -> Result<Program, Error> {
        let port = FABRIC.gateway_port;
        let unspec = [
            Instruction::set(Register::R0, TC_ACT_UNSPEC),
            Instruction::exit(),
        ];
        Ok(Program {
            plan: *plan,
            pin_root,
            time,
            empty: raw_program::load(Kind::Classifier, "bench_empty", &unspec)
                .map_err(Error::system("loading an empty program"))?,
            frame: packet::sent(plan.family, HOP_LIMIT).frame,
            ifindex: if_nametoindex(port)
                .map_err(|e| Error::system(format!("finding interface {port}"))(e.into()))?,
        })
    }

    fn run(&self, program: BorrowedFd<'_>, side: Side) -> Result<Sample, Error> {
        let began = Instant::now();
        let mut figures = Vec::new();
        while figures.is_empty() || began.elapsed() < self.time {
            let outcome = raw_program::test_run(program, &self.frame, Some(self.ifindex), REPEAT)
                .map_err(Error::system("test run"))?;
            let hop_limit = packet::hop_limit_at(self.plan.family);
            let hop_limit = outcome.frame.get(hop_limit).copied().unwrap_or(0);
            let expected = match side {
                Side::Ours => (TC_ACT_REDIRECT, HOP_LIMIT - REPEAT as u8),
                Side::Peer => (TC_ACT_UNSPEC, HOP_LIMIT),
            };
            if (outcome.action, hop_limit) != expected {
                return Err(Error::NotForwarded {
                    row: self.plan.name,
                    runs: REPEAT,
                    action: outcome.action,
                    hop_limit,
                });
            }
            figures.push(f64::from(outcome.nanoseconds));
        }
        let runs = figures.len() as u64 * u64::from(REPEAT);
        Ok(Sample {
            value: interquartile_mean(&figures).unwrap_or(0.0),
            seconds: began.elapsed().as_secs_f64(),
            sent: runs,
            received: runs,
        })
    }
}

impl Experiment for Program {
    fn measure(&mut self, side: Side) -> Result<Sample, Error> {
        let forwarder = Forwarder::start(side, &self.plan, &self.pin_root)?;
        if side == Side::Peer {
            return on_one_cpu(|| self.run(self.empty.as_fd(), side))?;
        }
        let program = pinned_program(&self.pin_root)?;
        let fd = program
            .fd()
            .map_err(|e| failed_to_open(io::Error::other(e)))?;
        let sample = on_one_cpu(|| self.run(fd.as_fd(), side))??;
        forwarder.carried_exactly(sample.sent)?;
        Ok(sample)
    }
}

/// The very program that the running datapath has attached.
fn pinned_program(pin_root: &Path) -> Result<SchedClassifier, Error> {
    let name = names::INGRESS
        .strip_prefix("ipoib_")
        .unwrap_or(names::INGRESS);
    let path = pin_root.join("v1/progs").join(name);
    SchedClassifier::from_pin(path).map_err(|e| failed_to_open(io::Error::other(e)))
}

fn failed_to_open(error: io::Error) -> Error {
    Error::system("opening the pinned program")(error)
}
