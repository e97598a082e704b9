//! `ipoib detach`: what a killed daemon or demo left behind.

use super::{Failure, say};
use crate::show::VERSION;
use crate::{datapath, demo};
use std::path::PathBuf;
use std::process::ExitCode;

/// Remove what a killed ipoib left behind: pins, filters on kernels without tcx, and demos
///
/// Filters are looked for on the interfaces of the network namespace in which it is run. A running
/// ipoib is left alone: stop it with SIGTERM.
#[derive(clap::Args)]
#[command(after_help = "Example: ipoib detach\n\n\
    Exit codes: 0 nothing is left in this network namespace, 3 a running ipoib holds the directory.")]
pub struct Args {
    /// Directory on a bpffs that the killed ipoib used
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/ipoib")]
    pin_root: PathBuf,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let removed = datapath::remove_leftovers(&args.pin_root)?;
    let demos = demo::remove_leftovers().map_err(|e| Failure::new(e.exit_code(), e))?;
    if args.json {
        say(format!(
            "{}",
            serde_json::json!({
                "v": VERSION,
                "filters": removed.filters,
                "pins": removed.pins,
                "demos": demos,
            })
        ));
        return Ok(ExitCode::SUCCESS);
    }
    for port in &removed.filters {
        say(format!("removed our filter from {port}"));
    }
    if removed.pins {
        say(format!("removed the pins in {}", args.pin_root.display()));
    }
    for name in &demos {
        say(format!("removed what a killed demo left: {name}"));
    }
    if !removed.pins && removed.filters.is_empty() && demos.is_empty() {
        say("nothing was left behind in this network namespace");
    }
    Ok(ExitCode::SUCCESS)
}
