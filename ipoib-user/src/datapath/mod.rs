//! The loaded datapath: programs, maps, pins and the ports they are attached to.

use crate::host::Link;
use ipoib_ebpf::tables::PortCounters;
use std::path::PathBuf;

/// Where our program stands among others on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Refuse to share a port.
    Refuse,
    /// In front of every other program.
    Before,
    /// Behind every other program.
    After,
}

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of the interfaces that become ports.
    pub ports: Vec<String>,
    /// Where our program stands among others.
    pub order: Order,
    /// Directory on a bpffs; maps and programs are pinned below its `v1`.
    pub pin_root: PathBuf,
}

/// A port's interface and what it has counted.
#[derive(Clone, Debug)]
pub struct PortReport {
    /// The interface, as it was at the last refresh.
    pub link: Link,
    /// Counters, summed over CPUs.
    pub counters: PortCounters,
}

/// (closed enum, to be written)
#[derive(Debug)]
pub enum Error {}

impl std::fmt::Display for Error {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

impl Error {
    /// The exit code that the error deserves (see [`crate::cli`]).
    pub fn exit_code(&self) -> u8 {
        match *self {}
    }
}

/// A running datapath. Dropping it detaches the programs and removes the pins.
pub struct Datapath {}

impl Datapath {
    /// Loads, pins and attaches in the network namespace of the calling thread. After an error
    /// nothing stays attached or pinned.
    pub fn start(_options: &Options) -> Result<Datapath, Error> {
        unimplemented!()
    }

    /// Every port with its counters, in the order of `Options::ports`.
    pub fn report(&self) -> Result<Vec<PortReport>, Error> {
        unimplemented!()
    }

    /// Reads the host again (addresses, routes' MTU, sysctls, links) and brings the maps up to date.
    pub fn refresh(&mut self) -> Result<(), Error> {
        unimplemented!()
    }
}
