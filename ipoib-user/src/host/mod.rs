//! What the host is like: links, addresses, routes, and what would make accelerating unsafe.
//! Everything is read in the network namespace of the calling thread.

mod addresses;
mod changes;
mod error;
mod iptables;
mod links;
mod netfilter;
mod netlink;
mod obstacles;
mod programs;
mod routes;
mod rules;
mod sysctl;
#[cfg(test)]
mod testing;
mod xfrm;

pub use addresses::local_addresses;
pub use changes::Changes;
pub use error::Error;
pub use links::{Link, PortProblem, link, links, port_problem};
pub use netfilter::{NftFamily, NftHook};
pub use obstacles::{Obstacle, obstacles};
pub use programs::{ForeignProgram, Hook, foreign_programs};
pub use rules::ROUTE_PROTOCOL;
pub use sysctl::rp_filter;

use ipoib_ebpf::tables::Host;

/// The facts of the host that every packet needs; whether accelerating is held is not among them.
pub fn host_row() -> Result<Host, Error> {
    Ok(Host {
        smallest_route_mtu: routes::smallest_mtu()?,
        ipv6_forwarding: sysctl::ipv6_forwarding()? as u32,
        update_priority: sysctl::update_priority()? as u32,
        held: 0,
    })
}
