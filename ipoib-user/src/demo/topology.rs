//! The demo's network: a fabric host `n1` and an Ethernet host `n2`, each one veth away from a
//! gateway that forwards between them. Names are the lab's; addresses never leave the namespaces.

use crate::netns::{self, Error, Namespace, VethEnd, veth};
use crate::show::Family;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The word in the names of the demo's namespaces.
pub const PURPOSE: &str = "demo";

/// One side of the gateway.
#[derive(Debug)]
pub struct Side {
    /// The host's name, and the role in its namespace's name.
    pub host: &'static str,
    /// What the host is.
    pub what: &'static str,
    /// The host's interface.
    pub host_port: &'static str,
    /// The gateway's interface.
    pub gateway_port: &'static str,
    /// MTU of both.
    pub mtu: u32,
    /// The host's IPv4 address.
    pub ipv4: Ipv4Addr,
    /// The gateway's IPv4 address on this side.
    pub gateway_ipv4: Ipv4Addr,
    /// The host's IPv6 address.
    pub ipv6: Ipv6Addr,
    /// The gateway's IPv6 address on this side.
    pub gateway_ipv6: Ipv6Addr,
    /// Byte 4 of both MAC addresses.
    mac: u8,
}

impl Side {
    /// The host's address.
    pub fn address(&self, family: Family) -> IpAddr {
        match family {
            Family::Ipv4 => self.ipv4.into(),
            Family::Ipv6 => self.ipv6.into(),
        }
    }

    fn gateway_address(&self, family: Family) -> IpAddr {
        match family {
            Family::Ipv4 => self.gateway_ipv4.into(),
            Family::Ipv6 => self.gateway_ipv6.into(),
        }
    }
}

/// The fabric: the MTU of IPoIB's datagram mode over 2048-byte packets (RFC 4391 section 7).
pub const FABRIC: Side = Side {
    host: "n1",
    what: "fabric host",
    host_port: "ib1",
    gateway_port: "ib0",
    mtu: 2044,
    ipv4: Ipv4Addr::new(10, 10, 0, 1),
    gateway_ipv4: Ipv4Addr::new(10, 10, 0, 254),
    ipv6: Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, 1),
    gateway_ipv6: Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, 0xfe),
    mac: 0x10,
};

/// Ethernet.
pub const ETHERNET: Side = Side {
    host: "n2",
    what: "Ethernet host",
    host_port: "eth1",
    gateway_port: "eth0",
    mtu: 1500,
    ipv4: Ipv4Addr::new(10, 20, 0, 1),
    gateway_ipv4: Ipv4Addr::new(10, 20, 0, 254),
    ipv6: Ipv6Addr::new(0xfd00, 0x20, 0, 0, 0, 0, 0, 1),
    gateway_ipv6: Ipv6Addr::new(0xfd00, 0x20, 0, 0, 0, 0, 0, 0xfe),
    mac: 0x20,
};

/// Ethernet in the lab's VM.
const LAB_ETHERNET: Side = Side {
    host_port: "e1",
    gateway_port: "e0",
    ..ETHERNET
};

/// Both sides.
pub const SIDES: [&Side; 2] = [&FABRIC, &ETHERNET];

/// Where a demo takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Place {
    /// Namespaces made for it, with veth pairs between them.
    #[default]
    Made,
    /// The namespaces n1, gateway and n2 of the VM of `cargo xtask lab`, where ib0 and ib1 belong
    /// to the kernel's IPoIB driver.
    Lab,
}

/// The three namespaces, wired and addressed.
#[derive(Debug)]
pub struct Topology {
    /// Whether they were made for this demo.
    pub place: Place,
    /// The fabric's side and the Ethernet side.
    pub sides: [&'static Side; 2],
    /// The fabric host.
    pub n1: Namespace,
    /// The gateway.
    pub gateway: Namespace,
    /// The Ethernet host.
    pub n2: Namespace,
}

impl Topology {
    /// Builds it in namespaces of that purpose (see [`netns::name`]): addresses are usable and
    /// routes are in place when this returns, neighbours are not resolved yet.
    pub fn build(purpose: &str) -> Result<Topology, Error> {
        let create = |role| {
            let namespace = Namespace::create(&netns::name(purpose, role))?;
            quicken(&namespace)?;
            Ok(namespace)
        };
        let topology = Topology {
            place: Place::Made,
            sides: SIDES,
            n1: create(FABRIC.host)?,
            gateway: create("gateway")?,
            n2: create(ETHERNET.host)?,
        };
        let gateway = &topology.gateway;
        gateway.sysctl("net.ipv4.ip_forward", "1")?;
        gateway.sysctl("net.ipv6.conf.all.forwarding", "1")?;
        for side in SIDES {
            topology.wire(side)?;
        }
        Ok(topology)
    }

    /// Takes the lab's, which its VM has wired and addressed alike (`tests/lab/topology`).
    pub fn of_lab() -> Result<Topology, Error> {
        Ok(Topology {
            place: Place::Lab,
            sides: [&FABRIC, &LAB_ETHERNET],
            n1: Namespace::open(FABRIC.host)?,
            gateway: Namespace::open("gateway")?,
            n2: Namespace::open(ETHERNET.host)?,
        })
    }

    /// The host of a side.
    pub fn host(&self, side: &Side) -> &Namespace {
        if side.host == FABRIC.host {
            &self.n1
        } else {
            &self.n2
        }
    }

    /// Every namespace with its role.
    pub fn namespaces(&self) -> [(&'static str, &Namespace); 3] {
        [
            (FABRIC.host, &self.n1),
            ("gateway", &self.gateway),
            (ETHERNET.host, &self.n2),
        ]
    }

    fn wire(&self, side: &Side) -> Result<(), Error> {
        let (host, gateway) = (self.host(side), &self.gateway);
        let end = |namespace, name, last| VethEnd {
            namespace,
            name,
            mac: Some([2, 0, 0, 0, side.mac, last]),
            mtu: Some(side.mtu),
        };
        veth(
            &end(host, side.host_port, 1),
            &end(gateway, side.gateway_port, 0xfe),
        )?;
        for family in Family::ALL {
            let (prefix, everywhere) = match family {
                Family::Ipv4 => (24, "0.0.0.0/0"),
                Family::Ipv6 => (64, "::/0"),
            };
            let via = side.gateway_address(family);
            let add = |namespace: &Namespace, address: IpAddr, port| {
                let address = format!("{address}/{prefix}");
                let mut arguments = vec!["address", "add", &address, "dev", port];
                if family == Family::Ipv6 {
                    arguments.push("nodad");
                }
                namespace.ip(&arguments)
            };
            add(host, side.address(family), side.host_port)?;
            add(gateway, via, side.gateway_port)?;
            host.ip(&[
                "route",
                "add",
                everywhere,
                "via",
                &via.to_string(),
                "dev",
                side.host_port,
            ])?;
        }
        Ok(())
    }
}

/// Settings that let addresses be used at once, and nothing but the datapath decide.
fn quicken(namespace: &Namespace) -> Result<(), Error> {
    for (key, value) in [
        ("net.ipv6.conf.all.accept_dad", "0"),
        ("net.ipv6.conf.default.accept_dad", "0"),
        // A strict default would be inherited from the host.
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        // Echo sockets without raw ones, for every group.
        ("net.ipv4.ping_group_range", "0 2147483647"),
    ] {
        namespace.sysctl(key, value)?;
    }
    Ok(())
}
