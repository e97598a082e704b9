//! `ipoib bench`.

use super::Failure;
use crate::bench::{self, MIN_ROUNDS, Options};
use crate::demo::Stop;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Short rounds, and many of them: a burst of other work spoils one of them, and the median doesn't
/// mind.
const ROUNDS: usize = 61;
/// More would take days, and say nothing more.
const MAX_ROUNDS: u16 = 1000;

/// Measure the datapath against plain kernel forwarding, on this machine
///
/// Makes three network namespaces with veth ports (no InfiniBand is needed) and measures, with the
/// datapath and without it in turns: packets per second from a generator in the kernel, TCP
/// throughput, and what the program takes for a packet. Each row's ratio is the median of the
/// rounds', with its 95 % interval; a target is met if the worse end of the interval meets it.
/// Needs root and iproute2; an idle machine gives narrow intervals.
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 measured, 1 a target is missed or the traffic took another \
    road, 2 wrong use, 3 this host can't (the error says why)."
)]
pub struct Args {
    /// Write one JSON object
    #[arg(long)]
    json: bool,
    /// Keep bench.json, and raw.csv with every measurement, in this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Rounds a row, 6 or more; targets are judged from 15 on [default: 61, with --quick 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(MIN_ROUNDS as i64..=MAX_ROUNDS as i64))]
    rounds: Option<u16>,
    /// Few short rounds, to see whether it works
    #[arg(long)]
    quick: bool,
    /// Measure only rows whose name contains this
    #[arg(long, value_name = "NAME")]
    filter: Option<String>,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let stop = Stop::on_signals().map_err(|e| Failure::new(3, format!("signals: {e}")))?;
    let (rounds, time) = match args.quick {
        true => (MIN_ROUNDS, Duration::from_millis(20)),
        false => (ROUNDS, Duration::from_millis(100)),
    };
    let options = Options {
        rounds: args.rounds.map_or(rounds, usize::from),
        time,
        filter: args.filter,
    };
    let failed = |error: bench::Error| Failure::new(error.exit_code(), error);
    let report = bench::run(&options, &stop, &mut |line| eprintln!("{line}")).map_err(failed)?;
    let text = match args.json {
        true => report.json().map_err(|e| Failure::new(3, e))? + "\n",
        false => report.text(),
    };
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|e| Failure::new(1, format!("writing the result: {e}")))?;
    if let Some(directory) = &args.out {
        report.keep(directory).map_err(failed)?;
    }
    Ok(ExitCode::from(u8::from(!report.ok())))
}
