//! `cargo xtask`: sets up, builds, runs, tests and measures ipoib-ebpf. One module a verb; every
//! error becomes one line here.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod build;
mod command;
mod lab;
mod lint;
mod run;
mod setup;
mod test;
mod toolchain;

use setup::Setup;
use toolchain::Toolchain;

/// Sets up, builds, runs, tests and measures ipoib-ebpf
///
/// Every verb first brings what it lacks, says so in one line each, and keeps it under target/tools;
/// only system packages are installed outside the repository.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Bring what the build and the tests lack: rust-src, bpf-linker, system tools
    Setup,
    /// Build the eBPF object and the binary `ipoib` around it
    Build(build::Options),
    /// Build in release mode and run `ipoib ARGS` as root (no ARGS: the demo, where no IPoIB port is)
    Run {
        /// Arguments for `ipoib`, such as `demo --for 10s`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Run every test of the workspace, as root
    Test(test::TestArgs),
    /// Run COMMAND in a VM with the real ib_ipoib driver on virtual InfiniBand (no COMMAND: a shell)
    Lab(lab::LabArgs),
    /// Check formatting and lints of both halves
    Lint,
    /// Build in release mode and run `ipoib bench`, which writes its raw rows to target/bench
    Bench {
        /// Arguments for `ipoib bench`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    dispatch(Cli::parse()).unwrap_or_else(|error| {
        eprintln!("error: {}", one_line(&format!("{error:#}")));
        ExitCode::FAILURE
    })
}

fn dispatch(cli: Cli) -> Result<ExitCode> {
    let toolchain = Toolchain::probe()?;
    match cli.verb {
        Verb::Setup => {
            let setup = Setup::new(&toolchain);
            setup.bpf()?;
            setup.tools(setup::Verb::Test)?;
            if setup.idle() {
                println!("setup: nothing to do");
            }
        }
        Verb::Build(options) => {
            let binary = build::build(&toolchain, &options)?;
            println!("{}", binary.display());
        }
        Verb::Run { args } => return run::run(&toolchain, &args),
        Verb::Test(args) => test::test(&toolchain, &args)?,
        Verb::Lab(args) => return lab::lab(&toolchain, &args),
        Verb::Lint => lint::lint(&toolchain)?,
        Verb::Bench { args } => return run::bench(&toolchain, &args),
    }
    Ok(ExitCode::SUCCESS)
}

/// An error on one line, whatever the programs that we ran put into it.
fn one_line(text: &str) -> String {
    text.split('\n')
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_reach_ipoib_with_and_without_dashes() {
        for line in [
            &["cargo xtask", "run", "--", "demo", "--for", "10s"][..],
            &["cargo xtask", "run", "demo", "--for", "10s"],
        ] {
            let Ok(Cli {
                verb: Verb::Run { args },
            }) = Cli::try_parse_from(line)
            else {
                panic!("{line:?} is not read as `run`");
            };
            assert_eq!(args, ["demo", "--for", "10s"]);
        }
    }

    #[test]
    fn an_error_of_several_lines_becomes_one() {
        assert_eq!(one_line("a: b\n  c\n\n"), "a: b / c");
    }
}
