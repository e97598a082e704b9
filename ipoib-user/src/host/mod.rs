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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {}

/// (closed enum, to be written)
#[derive(Debug)]
pub enum Error {}
