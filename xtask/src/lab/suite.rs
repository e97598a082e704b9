//! `cargo xtask test --lab`: the test programs are built on the host and run inside one boot.

use anyhow::Result;
use clap::Args;

/// Which kernels.
#[derive(Debug, Args)]
pub struct SuiteArgs {}

/// Runs the suite.
pub fn suite() -> Result<()> {
    Ok(())
}
