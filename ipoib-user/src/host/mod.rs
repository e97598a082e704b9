//! What the host is like: links, addresses, routes, and what would make accelerating unsafe.
//! Everything is read in the network namespace of the calling thread.

use ipoib_ebpf::tables::{Host, LocalAddress};
use ipoib_ebpf::wire::link::LinkLayer;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
    /// The kernel's hardware type (`ARPHRD_*`).
    pub arphrd: u16,
    /// The kind that rtnetlink reports (`veth`, `ipoib`, ...), if any.
    pub kind: Option<String>,
    /// Link layer, or `None` where it is one that we don't know.
    pub link_layer: Option<LinkLayer>,
    /// MTU in bytes of IP packet.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// Index of the bond, bridge or VRF that it belongs to.
    pub master: Option<u32>,
}

/// Reads the link of that name.
pub fn link(_name: &str) -> Result<Link, Error> {
    unimplemented!()
}
/// Every link of the namespace.
pub fn links() -> Result<Vec<Link>, Error> {
    unimplemented!()
}
/// The addresses of this host, both families.
pub fn local_addresses() -> Result<Vec<LocalAddress>, Error> {
    unimplemented!()
}
/// The facts of the host that every packet needs.
pub fn host_row() -> Result<Host, Error> {
    unimplemented!()
}
/// Effective `rp_filter` of a port: the larger of its own and `all`.
pub fn rp_filter(_name: &str) -> Result<u8, Error> {
    unimplemented!()
}
/// What forbids accelerating between these ports: netfilter hooks, xfrm policies, foreign fwmark rules.
pub fn obstacles(_ports: &[Link]) -> Result<Vec<Obstacle>, Error> {
    unimplemented!()
}

/// (closed enum, to be written)
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {}
/// (closed enum, to be written)
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortProblem {}
/// x
pub fn port_problem(_: &Link) -> Result<Option<PortProblem>, Error> {
    unimplemented!()
}
/// x
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignProgram {
    /// x
    pub port: String,
    /// x
    pub name: String,
    /// x
    pub id: Option<u32>,
    /// x
    pub ours: bool,
    /// x
    pub hook: Hook,
}
impl std::fmt::Display for ForeignProgram {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}
/// x
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// x
    Tcx,
    /// x
    Clsact {
        /// x
        priority: u16,
        /// x
        handle: u32,
    },
}
/// x
pub fn foreign_programs(_: &Link) -> Result<Vec<ForeignProgram>, Error> {
    unimplemented!()
}

/// (closed enum, to be written)
#[derive(Debug, thiserror::Error)]
pub enum Error {}
impl Error {
    /// x
    pub fn exit_code(&self) -> u8 {
        3
    }
}
