//! A gateway between two hosts: three namespaces, two veth pairs, the datapath on the gateway's two
//! ports. The fabric side's veth is named ib0 and Ethernet-framed; in the VM lab it is a real IPoIB
//! device (see [`crate::lab`]).
//!
//! ```text
//! fabric host        gateway               Ethernet host
//!   ib1  ------------- ib0   eth0 ------------- eth1
//!   10.1.0.2     10.1.0.1   10.2.0.1       10.2.0.2
//!   fd00:1::2    fd00:1::1  fd00:2::1      fd00:2::2
//! ```

use crate::raw_socket::RawSocket;
use aya::programs::{ProgramInfo, SchedClassifier, TcAttachType};
use ipoib_ebpf::tables::{Counter, PortCounters, names};
use ipoib_ebpf::verdict::Reason;
use ipoib_ebpf::wire::link::LinkLayer;
use ipoib_user::datapath::{Datapath, Options, Order};
use ipoib_user::netns::{self, Namespace, VethEnd};
use nix::net::if_::if_nametoindex;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// MAC addresses of the four ends.
pub const IB1: [u8; 6] = [2, 0, 0, 0, 1, 2];
/// The gateway's fabric port.
pub const IB0: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// The gateway's Ethernet port.
pub const ETH0: [u8; 6] = [2, 0, 0, 0, 2, 1];
/// The Ethernet host.
pub const ETH1: [u8; 6] = [2, 0, 0, 0, 2, 2];

/// MTU of the fabric side: IPoIB datagram mode.
pub const FABRIC_MTU: u32 = 2044;
/// MTU of the Ethernet side.
pub const ETHERNET_MTU: u32 = 1500;

/// How long a packet may take through a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What connects the fabric host with the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricLink {
    /// A veth pair, Ethernet-framed.
    Veth,
    /// Two devices of the IPoIB driver (see [`crate::lab`]), with their link-layer addresses.
    Ipoib {
        /// The gateway's.
        port: [u8; 20],
        /// The host's.
        host: [u8; 20],
    },
}

/// The three namespaces.
#[derive(Debug)]
pub struct Gateway {
    /// The fabric host.
    pub fabric: Namespace,
    /// The gateway.
    pub gateway: Namespace,
    /// The Ethernet host.
    pub ethernet: Namespace,
    /// The fabric side's link.
    pub link: FabricLink,
    pin_root: PathBuf,
}

/// A fresh name for this process and test.
pub fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed).to_string()
}

/// One of the hosts as a sender or receiver of raw frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// ib1 and the gateway's ib0.
    Fabric,
    /// eth1 and the gateway's eth0.
    Ethernet,
}

impl Side {
    /// The other side.
    pub fn other(self) -> Side {
        match self {
            Side::Fabric => Side::Ethernet,
            Side::Ethernet => Side::Fabric,
        }
    }

    /// Name of the gateway's port.
    pub fn port(self) -> &'static str {
        match self {
            Side::Fabric => "ib0",
            Side::Ethernet => "eth0",
        }
    }

    /// MAC of the gateway's port.
    pub fn port_mac(self) -> [u8; 6] {
        match self {
            Side::Fabric => IB0,
            Side::Ethernet => ETH0,
        }
    }

    /// Name of the host's interface.
    pub fn interface(self) -> &'static str {
        match self {
            Side::Fabric => "ib1",
            Side::Ethernet => "eth1",
        }
    }

    /// MAC of the host's interface.
    pub fn mac(self) -> [u8; 6] {
        match self {
            Side::Fabric => IB1,
            Side::Ethernet => ETH1,
        }
    }

    /// The host's address.
    pub fn address(self, v4: bool) -> IpAddr {
        let text = match (self, v4) {
            (Side::Fabric, true) => "10.1.0.2",
            (Side::Fabric, false) => "fd00:1::2",
            (Side::Ethernet, true) => "10.2.0.2",
            (Side::Ethernet, false) => "fd00:2::2",
        };
        text.parse().expect("an address")
    }

    /// The gateway's address on this side.
    pub fn gateway_address(self, v4: bool) -> IpAddr {
        let text = match (self, v4) {
            (Side::Fabric, true) => "10.1.0.1",
            (Side::Fabric, false) => "fd00:1::1",
            (Side::Ethernet, true) => "10.2.0.1",
            (Side::Ethernet, false) => "fd00:2::1",
        };
        text.parse().expect("an address")
    }
}

impl Gateway {
    /// Builds the namespaces, with permanent neighbours everywhere, and no datapath yet.
    pub fn build() -> Self {
        let this = Self::namespaces(FabricLink::Veth);
        for side in [Side::Fabric, Side::Ethernet] {
            this.wire(side);
            this.address(side);
        }
        this
    }

    /// Makes the namespaces, with nothing between them.
    pub fn namespaces(link: FabricLink) -> Self {
        let name = unique();
        let make = |role: &str| {
            Namespace::create(&netns::name("test", &format!("{name}-{role}")))
                .expect("namespaces need root: cargo xtask test")
        };
        let pin_root = PathBuf::from(format!(
            "/sys/fs/bpf/ipoib-test-{}-{name}",
            std::process::id()
        ));
        let this = Gateway {
            fabric: make("fabric"),
            gateway: make("gateway"),
            ethernet: make("ethernet"),
            link,
            pin_root,
        };
        for namespace in [&this.fabric, &this.gateway, &this.ethernet] {
            for key in [
                "net.ipv6.conf.default.accept_dad",
                "net.ipv6.conf.all.accept_dad",
                // Packets that the hosts send by themselves would disturb exact counters.
                "net.ipv6.conf.default.router_solicitations",
                // A strict default would be inherited from the host.
                "net.ipv4.conf.all.rp_filter",
                "net.ipv4.conf.default.rp_filter",
            ] {
                namespace.sysctl(key, "0").unwrap();
            }
        }
        for host in [&this.fabric, &this.ethernet] {
            // Answers to what the tests send would disturb exact counters.
            let quiet = "add table inet quiet
                add chain inet quiet out { type filter hook output priority 0; }
                add rule inet quiet out icmp type { destination-unreachable, echo-reply } drop
                add rule inet quiet out icmpv6 type { destination-unreachable, parameter-problem, \
                    echo-reply } drop";
            let nft = host
                .run(|| Command::new("nft").arg(quiet).output())
                .unwrap()
                .unwrap();
            assert!(
                nft.status.success(),
                "{}",
                String::from_utf8_lossy(&nft.stderr)
            );
        }
        for key in [
            "net.ipv4.conf.all.forwarding",
            "net.ipv6.conf.all.forwarding",
            "net.ipv4.conf.default.forwarding",
        ] {
            this.gateway.sysctl(key, "1").unwrap();
        }
        this
    }

    /// Lays a veth pair between the gateway and the host of a side.
    pub fn wire(&self, side: Side) {
        let mtu = Some(match side {
            Side::Fabric => FABRIC_MTU,
            Side::Ethernet => ETHERNET_MTU,
        });
        let end = |namespace, name, mac| VethEnd {
            namespace,
            name,
            mac: Some(mac),
            mtu,
        };
        netns::veth(
            &end(self.host(side), side.interface(), side.mac()),
            &end(&self.gateway, side.port(), side.port_mac()),
        )
        .unwrap();
    }

    /// Gives both ends of a side their addresses, routes and permanent neighbours.
    pub fn address(&self, side: Side) {
        let host = self.host(side);
        for v4 in [true, false] {
            let length = if v4 { 24 } else { 64 };
            let add = |namespace: &Namespace, address: IpAddr, device: &str| {
                let address = format!("{address}/{length}");
                namespace
                    .ip(&["address", "add", &address, "dev", device])
                    .unwrap();
            };
            add(host, side.address(v4), side.interface());
            add(&self.gateway, side.gateway_address(v4), side.port());
            let gateway = side.gateway_address(v4).to_string();
            host.ip(&["route", "add", "default", "via", &gateway])
                .unwrap();
        }
        self.neighbours(side, "replace");
    }

    /// `ip neighbour VERB` for all that a side's ends know of each other: `replace` makes permanent
    /// entries, `del` leaves it to the kernel to resolve.
    pub fn neighbours(&self, side: Side, verb: &str) {
        for v4 in [true, false] {
            let ends = [
                (
                    self.host(side),
                    side.gateway_address(v4),
                    self.port_lladdr(side),
                    side.interface(),
                ),
                (
                    &self.gateway,
                    side.address(v4),
                    self.host_lladdr(side),
                    side.port(),
                ),
            ];
            for (namespace, address, lladdr, device) in ends {
                let address = address.to_string();
                let lladdr: Vec<_> = lladdr.iter().map(|b| format!("{b:02x}")).collect();
                let lladdr = lladdr.join(":");
                let mut arguments = vec!["neighbour", verb, &address, "dev", device];
                if verb == "replace" {
                    arguments.extend(["lladdr", &lladdr]);
                }
                namespace.ip(&arguments).unwrap();
            }
        }
    }

    /// The framing of a side.
    pub fn layer(&self, side: Side) -> LinkLayer {
        match (side, self.link) {
            (Side::Fabric, FabricLink::Ipoib { .. }) => LinkLayer::Ipoib,
            _ => LinkLayer::Ethernet,
        }
    }

    /// The link-layer address of the gateway's port, 6 or 20 bytes.
    pub fn port_lladdr(&self, side: Side) -> Vec<u8> {
        match (side, self.link) {
            (Side::Fabric, FabricLink::Ipoib { port, .. }) => port.into(),
            _ => side.port_mac().into(),
        }
    }

    /// The link-layer address of the host's interface.
    pub fn host_lladdr(&self, side: Side) -> Vec<u8> {
        match (side, self.link) {
            (Side::Fabric, FabricLink::Ipoib { host, .. }) => host.into(),
            _ => side.mac().into(),
        }
    }

    /// The options of a datapath on both ports.
    pub fn options(&self) -> Options {
        Options {
            ports: vec!["ib0".to_owned(), "eth0".to_owned()],
            order: Order::Refuse,
            pin_root: self.pin_root.clone(),
        }
    }

    /// Builds the namespaces and starts the datapath.
    pub fn start() -> (Self, Datapath) {
        let this = Self::build();
        let datapath = this.datapath();
        (this, datapath)
    }

    /// Starts the datapath on both ports.
    pub fn datapath(&self) -> Datapath {
        let options = self.options();
        self.gateway
            .run(|| Datapath::start(&options))
            .unwrap()
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The host of a side.
    pub fn host(&self, side: Side) -> &Namespace {
        match side {
            Side::Fabric => &self.fabric,
            Side::Ethernet => &self.ethernet,
        }
    }

    /// A raw socket on the host's interface of a side.
    pub fn socket(&self, side: Side) -> RawSocket {
        self.host(side)
            .run(|| RawSocket::open(side.interface()))
            .unwrap()
            .unwrap()
    }

    /// Names of the tcx programs on the ingress of a port of the gateway, in order; none where the
    /// kernel has no tcx.
    pub fn tcx(&self, port: &str) -> Vec<String> {
        let query = || SchedClassifier::query_tcx(port, TcAttachType::Ingress);
        let programs = self.gateway.run(query).unwrap();
        let name = |p: ProgramInfo| p.name_as_str().unwrap_or("?").to_owned();
        programs.map_or_else(
            |_| Vec::new(),
            |(_, list)| list.into_iter().map(name).collect(),
        )
    }

    /// Waits until our program is off a port. A child that another test of this process forks holds
    /// copies of every link until it runs its own program, so a dropped one may stay for a moment.
    pub fn wait_detached(&self, port: &str) {
        eventually("our program is off", || {
            !self.tcx(port).iter().any(|name| name == names::INGRESS)
        });
    }

    /// Takes the datapath off.
    pub fn stop(&self, datapath: Datapath) {
        let ports = datapath.report().unwrap_or_else(|error| panic!("{error}"));
        self.gateway.run(|| drop(datapath)).unwrap();
        for port in ports {
            self.wait_detached(&port.link.name);
        }
    }

    /// The index of an interface of the gateway.
    pub fn index(&self, name: &str) -> u32 {
        self.gateway
            .run(|| if_nametoindex(name))
            .unwrap()
            .unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Packets that the gateway's kernel has forwarded itself.
    pub fn kernel_forwarded(&self, v4: bool) -> u64 {
        if v4 {
            snmp(&self.gateway, "Ip", "ForwDatagrams")
        } else {
            snmp6(&self.gateway, "Ip6OutForwDatagrams")
        }
    }
}

/// A counter of `/proc/net/snmp`.
pub fn snmp(namespace: &Namespace, group: &str, name: &str) -> u64 {
    let text = namespace
        .run(|| fs::read_to_string("/proc/thread-self/net/snmp"))
        .unwrap()
        .unwrap();
    let prefix = format!("{group}: ");
    let mut rows = text.lines().filter_map(|line| line.strip_prefix(&prefix));
    let names = rows.next().expect("a row of names").split_whitespace();
    let values = rows.next().expect("a row of values").split_whitespace();
    let value = names.zip(values).find(|(n, _)| *n == name).map(|(_, v)| v);
    value
        .and_then(|v| v.parse().ok())
        .unwrap_or_else(|| panic!("no {group} {name}"))
}

/// A counter of `/proc/net/snmp6`; one that never counted may be absent.
pub fn snmp6(namespace: &Namespace, name: &str) -> u64 {
    let text = namespace
        .run(|| fs::read_to_string("/proc/thread-self/net/snmp6"))
        .unwrap()
        .unwrap();
    text.lines()
        .filter_map(|line| line.split_once(char::is_whitespace))
        .find(|(n, _)| *n == name)
        .map_or(0, |(_, v)| v.trim().parse().expect("a number"))
}

/// The counters of a port.
pub fn counters(datapath: &Datapath, port: &str) -> PortCounters {
    let ports = datapath.report().unwrap_or_else(|error| panic!("{error}"));
    let found = ports.into_iter().find(|p| p.link.name == port);
    found.unwrap_or_else(|| panic!("no port {port}")).counters
}

/// The packets that a port has handed up for a reason.
pub fn handed_up(datapath: &Datapath, port: &str, reason: Reason) -> Counter {
    *counters(datapath, port).handed_up.of(reason)
}

/// Waits until `done`, or fails after [`PATIENCE`].
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        sleep(Duration::from_millis(5));
    }
}
