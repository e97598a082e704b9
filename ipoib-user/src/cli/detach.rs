//! `ipoib detach`: what a killed daemon or demo left behind.

use super::{Failure, say};
use crate::datapath;
use crate::show::VERSION;
use std::path::PathBuf;
use std::process::ExitCode;

/// Remove what a killed ipoib left behind: pins, and filters on kernels without tcx
///
/// A running ipoib is left alone: stop it with SIGTERM.
#[derive(clap::Args)]
#[command(after_help = "Example: ipoib detach\n\n\
    Exit codes: 0 nothing is left, 3 a running ipoib holds the directory.")]
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
    if args.json {
        say(format!(
            "{}",
            serde_json::json!({ "v": VERSION, "filters": removed.filters, "pins": removed.pins })
        ));
    } else if removed.pins || !removed.filters.is_empty() {
        for port in &removed.filters {
            say(format!("removed our filter from {port}"));
        }
        say(format!("removed the pins in {}", args.pin_root.display()));
    } else {
        say("nothing was left behind");
    }
    Ok(ExitCode::SUCCESS)
}
