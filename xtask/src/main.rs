//! `cargo xtask`: sets up, builds, runs, tests and measures ipoib-ebpf.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod build;
mod command;
mod setup;
mod toolchain;

use setup::Setup;
use toolchain::Toolchain;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Fetch what the build lacks: rust-src, bpf-linker, system tools
    Setup,
    /// Build the eBPF object and the binary `ipoib`
    Build(build::Options),
}

fn main() -> ExitCode {
    match dispatch(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
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
            eprintln!("built {}", binary.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}
