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
pub use programs::{ForeignProgram, Hook, foreign_programs, is_open};
pub use rules::ROUTE_PROTOCOL;
pub use sysctl::{ipv4_forwarding, ipv6_forwarding};

use ipoib_ebpf::tables::{Host, Port};
use ipoib_ebpf::wire::link::LinkLayer;

/// What packets need to know of the host.
pub struct Facts {
    /// For every packet; whether accelerating is held, and the host's addresses, are not in it.
    pub row: Host,
    /// Whether the kernel checks IPv4 sources whatever `rp_filter` says: it does from the first rule
    /// or local route that somebody has added (`fib_validate_source()`). A source that it would
    /// refuse then is one without a unicast route, which is what a loose `rp_filter` refuses.
    pub checks_sources: bool,
}

/// Reads routes, rules and sysctls.
pub fn facts() -> Result<Facts, Error> {
    let routes = routes::routes()?;
    Ok(Facts {
        row: Host {
            smallest_route_mtu: routes.smallest_mtu,
            ipv6_forwarding: sysctl::ipv6_forwarding()? as u32,
            update_priority: sysctl::update_priority()? as u32,
            held: 0,
            own: 0,
        },
        checks_sources: routes.custom_local || rules::ipv4_has_more()?,
    })
}

/// What a port's packets need to know of it. `checks_sources` is that of the host's [`Facts`].
pub fn port_row(link: &Link, slot: u32, checks_sources: bool) -> Result<Port, Error> {
    let rp_filter = match sysctl::rp_filter(&link.name)? {
        0 if checks_sources => 2,
        own => own,
    };
    Ok(Port {
        slot,
        link_layer: link.link_layer.unwrap_or(LinkLayer::None) as u8,
        rp_filter,
        ipv6_off: sysctl::ipv6_off(&link.name)? as u8,
        reserved: 0,
    })
}
