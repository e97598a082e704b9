//! `ipoib run`.

use super::Failure;
use std::process::ExitCode;

/// (to be written)
#[derive(clap::Args)]
pub struct Args {}

pub fn main(_: Args) -> Result<ExitCode, Failure> {
    Err(Failure::new(3, "run is not there yet"))
}
