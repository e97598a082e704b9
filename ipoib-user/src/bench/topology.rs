//! The benchmark's network: that of the demo, where nothing is left to be resolved while something
//! is measured, and with many addresses behind n2.

use crate::demo::topology::{ETHERNET, FABRIC, SIDES, Side, Topology};
use crate::netns::{Error, Namespace};
use crate::show::Family;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The word in the names of the benchmark's namespaces.
pub const PURPOSE: &str = "bench";

/// An Ethernet address.
pub type Mac = [u8; 6];
/// n1's port.
pub const FABRIC_HOST: Mac = [2, 0, 0, 0, 0xb, 1];
/// The gateway's port towards n1.
pub const FABRIC_GATEWAY: Mac = [2, 0, 0, 0, 0xb, 2];
/// n2's port.
pub const ETHERNET_HOST: Mac = [2, 0, 0, 0, 0xb, 3];
/// The gateway's port towards n2.
pub const ETHERNET_GATEWAY: Mac = [2, 0, 0, 0, 0xb, 4];

/// n1's address.
pub const SOURCE_IPV4: Ipv4Addr = FABRIC.ipv4;
/// n1's address.
pub const SOURCE_IPV6: Ipv6Addr = FABRIC.ipv6;
/// First of the addresses behind n2, of a network for benchmarks (RFC 2544).
pub const BEHIND_IPV4: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 0);
/// First of the addresses behind n2, of a network for benchmarks (RFC 5180).
pub const BEHIND_IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0);

/// Builds the network; [`crate::netns::remove_leftovers`] finds what a killed process left of it.
pub fn build() -> Result<Topology, Error> {
    let topology = Topology::build(PURPOSE)?;
    let gateway = &topology.gateway;
    for (side, host_mac, gateway_mac) in [
        (&FABRIC, FABRIC_HOST, FABRIC_GATEWAY),
        (&ETHERNET, ETHERNET_HOST, ETHERNET_GATEWAY),
    ] {
        let host = topology.host(side);
        set_mac(host, side.host_port, host_mac)?;
        set_mac(gateway, side.gateway_port, gateway_mac)?;
        for family in Family::ALL {
            let (of_host, of_gateway) = addresses(side, family);
            let (host_mac, gateway_mac) = (text(host_mac), text(gateway_mac));
            know(gateway, side.gateway_port, &of_host, &host_mac)?;
            know(host, side.host_port, &of_gateway, &gateway_mac)?;
        }
    }
    let via = |network: &str, next_hop: &str| {
        let port = ETHERNET.gateway_port;
        gateway
            .ip(&["route", "add", network, "via", next_hop, "dev", port])
            .map(drop)
    };
    via(&format!("{BEHIND_IPV4}/16"), &ETHERNET.ipv4.to_string())?;
    via(&format!("{BEHIND_IPV6}/112"), &ETHERNET.ipv6.to_string())?;
    Ok(topology)
}

/// The gateway's two ports, n1's first.
pub fn ports() -> Vec<String> {
    SIDES.map(|side| side.gateway_port.to_owned()).into()
}

fn addresses(side: &Side, family: Family) -> (String, String) {
    match family {
        Family::Ipv4 => (side.ipv4.to_string(), side.gateway_ipv4.to_string()),
        Family::Ipv6 => (side.ipv6.to_string(), side.gateway_ipv6.to_string()),
    }
}

fn set_mac(namespace: &Namespace, port: &str, mac: Mac) -> Result<(), Error> {
    namespace
        .ip(&["link", "set", port, "address", &text(mac)])
        .map(drop)
}

/// A neighbour that is never resolved again.
fn know(namespace: &Namespace, port: &str, address: &str, mac: &str) -> Result<(), Error> {
    let entry = ["neighbour", "replace", address, "lladdr", mac, "dev", port];
    namespace
        .ip(&[&entry[..], &["nud", "permanent"]].concat())
        .map(drop)
}

fn text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
