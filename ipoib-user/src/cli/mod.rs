//! The command line: one file a verb; errors become one line and an exit code here.
//!
//! Exit codes: 0 good, 1 finding or loss, 2 wrong use or configuration, 3 the host can't (kernel,
//! capability, device).

use clap::{Parser, Subcommand};
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

mod bench;
mod check;
mod demo;
mod detach;
mod run;

/// What ends a verb early: one line for people and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// One line: what, where, and the remedy.
    pub message: String,
}

impl Failure {
    /// A failure that says `error`.
    pub fn new(code: u8, error: impl Display) -> Self {
        Failure {
            code,
            message: error.to_string(),
        }
    }
}

/// Writes a line to stdout. A reader that has gone away is no reason to end: the datapath runs on.
fn say(line: impl Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// The same to stderr.
fn warn(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "warning: {line}");
}

/// An eBPF datapath and daemon for hosts that speak IP over InfiniBand.
#[derive(Parser)]
#[command(name = "ipoib", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Run(run::Args),
    Check(check::Args),
    Demo(demo::Args),
    Detach(detach::Args),
    Bench(bench::Args),
}

/// Runs the verb that the command line names.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Run(args) => run::main(args),
        Verb::Check(args) => check::main(args),
        Verb::Demo(args) => demo::main(args),
        Verb::Detach(args) => detach::main(args),
        Verb::Bench(args) => bench::main(args),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "error: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}
