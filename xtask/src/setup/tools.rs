//! The system's programs that a verb needs: iproute2, nftables, tcpdump through apt-get, and a
//! bpftool that knows tcx links.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;

use super::Setup;

/// A verb that runs other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `cargo xtask run`
    Run,
    /// `cargo xtask test`
    Test,
    /// `cargo xtask bench`
    Bench,
}

/// Where the programs are.
#[derive(Debug)]
pub struct Tools {
    /// PATH for the children.
    pub path: OsString,
    /// bpftool, where the verb needs one.
    pub bpftool: Option<PathBuf>,
}

/// Finds the programs that `verb` needs, and installs those that are absent.
pub fn ensure(_setup: &Setup, _verb: Verb) -> Result<Tools> {
    Ok(Tools {
        path: std::env::var_os("PATH").unwrap_or_default(),
        bpftool: None,
    })
}
