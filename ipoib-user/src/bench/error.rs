//! Why a benchmark ends without a result: one line each.

use super::forwarder::Side;
use super::statistics::MIN_ROUNDS;
use crate::{datapath, netns};
use std::io;
use std::path::PathBuf;

/// Everything that can end a benchmark early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Without root there are no namespaces and no programs.
    #[error(
        "the benchmark makes network namespaces and loads eBPF programs: run it as root (sudo)"
    )]
    NotRoot,
    /// Too few rounds for an interval.
    #[error("{rounds} rounds are too few for an interval of 95 %: {MIN_ROUNDS} or more are needed")]
    TooFewRounds {
        /// What was asked for.
        rounds: usize,
    },
    /// The filter leaves nothing.
    #[error("no row's name contains {filter:?}; there are: {}", names.join(", "))]
    NoSuchRow {
        /// What was asked for.
        filter: String,
        /// Every row.
        names: Vec<&'static str>,
    },
    /// The network could not be built.
    #[error(transparent)]
    Netns(#[from] netns::Error),
    /// The datapath did not start or went wrong.
    #[error(transparent)]
    Datapath(#[from] datapath::Error),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The traffic did not take the road that was to be measured.
    #[error(
        "{row}: not what was to be measured: {side} was to carry {expected} packets or more, but \
         the fast path carried {fast} and the kernel {kernel}{}",
        if handed_up.is_empty() { String::new() } else { format!("; handed up: {handed_up}") }
    )]
    WrongRoad {
        /// The row.
        row: &'static str,
        /// Who was to carry it.
        side: Side,
        /// How many packets.
        expected: u64,
        /// What the datapath's counters say.
        fast: u64,
        /// What the kernel's counters say.
        kernel: u64,
        /// Why the datapath handed packets up.
        handed_up: String,
    },
    /// Nothing came through.
    #[error("{row}: nothing arrived with {side}")]
    NothingArrived {
        /// The row.
        row: &'static str,
        /// Who was to carry it.
        side: Side,
    },
    /// A test run did something else than to forward each time.
    #[error(
        "{row}: the program did not forward its packet each of {runs} times: it returned {action} \
         and left hop limit {hop_limit}"
    )]
    NotForwarded {
        /// The row.
        row: &'static str,
        /// Runs over one packet.
        runs: u32,
        /// What the last run returned.
        action: i32,
        /// What was left of 255.
        hop_limit: u8,
    },
    /// Results could not be kept.
    #[error("writing {}: {source}", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A signal.
    #[error("stopped before everything was measured: nothing is kept")]
    Stopped,
}

impl Error {
    /// A failed system call.
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::System { what, source }
    }

    /// The exit code that the error deserves (see [`crate::cli`]).
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::WrongRoad { .. }
            | Error::NothingArrived { .. }
            | Error::NotForwarded { .. }
            | Error::Stopped => 1,
            Error::TooFewRounds { .. } | Error::NoSuchRow { .. } | Error::Write { .. } => 2,
            Error::NotRoot | Error::System { .. } => 3,
            Error::Netns(error) => error.exit_code(),
            Error::Datapath(error) => error.exit_code(),
        }
    }
}
