//! What happens to a fabric while packets are forwarded: links that flap, peers that come back
//! under another address, drivers that are taken away.

use ipoib_ebpf::verdict::Reason;
use ipoib_tests::exchange::{ethertype, expect_egress, forwarded, to_gateway, udp};
use ipoib_tests::gateway::{FabricLink, Gateway, Side, counters, eventually, handed_up};
use ipoib_tests::lab::{Lab, Setup, bring, ip, lladdr, running};
use ipoib_user::datapath::Datapath;
use nix::net::if_::if_nametoindex;

fn start() -> (Lab, Gateway, Datapath) {
    let (lab, gateway) = Lab::gateway(Setup::default());
    let datapath = gateway.datapath();
    (lab, gateway, datapath)
}

/// A packet of each family, each way; the fast path must carry it.
fn passes(gateway: &Gateway, datapath: &Datapath, tag: u8) {
    for from in [Side::Fabric, Side::Ethernet] {
        for v4 in [true, false] {
            let row = |port: &str| {
                let row = counters(datapath, port);
                if v4 {
                    row.forwarded_ipv4
                } else {
                    row.forwarded_ipv6
                }
                .packets
            };
            let before = row(from.port());
            let packet = udp(from, v4, 300, tag);
            let frame = to_gateway(gateway, from, ethertype(v4), &packet.bytes());
            expect_egress(gateway, from, &frame, v4, &forwarded(packet));
            assert_eq!(row(from.port()), before + 1, "{from:?}, IPv4 {v4}");
        }
    }
}

/// Waits for an interface's carrier to be there, or not.
fn carrier(gateway: &Gateway, side: Side, wanted: bool) {
    eventually("the carrier follows", || {
        running(&gateway.gateway, side.port()) == wanted
            && running(gateway.host(side), side.interface()) == wanted
    });
}

#[test]
fn after_a_port_was_down_on_the_fabric_forwarding_goes_on() {
    let (lab, gateway, datapath) = start();
    passes(&gateway, &datapath, 1);
    for _ in 0..2 {
        for hca in ["vhca0", "vhca1"] {
            lab.control(&format!("{hca}/port1/link"), "0");
        }
        carrier(&gateway, Side::Fabric, false);
        for hca in ["vhca0", "vhca1"] {
            lab.control(&format!("{hca}/port1/link"), "1");
        }
        carrier(&gateway, Side::Fabric, true);
        passes(&gateway, &datapath, 2);
    }
}

#[test]
fn a_peer_whose_interface_restarts_is_reached_again() {
    let (_lab, gateway, mut datapath) = start();
    passes(&gateway, &datapath, 1);
    for namespace_and_name in [(&gateway.fabric, "ib1"), (&gateway.gateway, "ib0")] {
        let (namespace, name) = namespace_and_name;
        namespace.ip(&["link", "set", name, "down"]).unwrap();
        namespace.ip(&["link", "set", name, "up"]).unwrap();
        carrier(&gateway, Side::Fabric, true);
        // Setting an interface down takes its IPv6 addresses, routes and neighbours with it.
        for v4 in [true, false] {
            let (address, length) = if name == "ib1" {
                (Side::Fabric.address(v4), if v4 { 24 } else { 64 })
            } else {
                (Side::Fabric.gateway_address(v4), if v4 { 24 } else { 64 })
            };
            let address = format!("{address}/{length}");
            namespace
                .ip(&["address", "replace", &address, "dev", name])
                .unwrap();
            if name == "ib1" {
                let via = Side::Fabric.gateway_address(v4).to_string();
                namespace
                    .ip(&["route", "replace", "default", "via", &via])
                    .unwrap();
            }
        }
        gateway.neighbours(Side::Fabric, "replace");
        gateway
            .gateway
            .run(|| datapath.refresh())
            .unwrap()
            .unwrap_or_else(|e| panic!("{e}"));
        passes(&gateway, &datapath, 3);
    }
}

/// The 20 bytes hold the queue pair's number, which a restarted peer has anew.
#[test]
fn a_peer_that_comes_back_with_a_new_qpn_is_found_under_it() {
    let (lab, mut gateway, datapath) = start();
    passes(&gateway, &datapath, 1);
    let old = gateway.host_lladdr(Side::Fabric);
    lab.control("vhca1/plug", "0");
    lab.control("vhca1/plug", "1");
    // It has the first free name of the first namespace.
    eventually("the driver makes it again", || {
        if_nametoindex("ib0").is_ok()
    });
    ip(&["link", "set", "ib0", "name", "ib1"]);
    let new = lladdr("ib1");
    assert_ne!(old[1..4], new[1..4], "the QPN is the old one");
    assert_eq!(old[4..], new[4..], "the GUID is another");
    bring(&gateway.fabric, "ib1", &Setup::default());
    let FabricLink::Ipoib { port, .. } = gateway.link else {
        panic!("no IPoIB")
    };
    gateway.link = FabricLink::Ipoib { port, host: new };
    for v4 in [true, false] {
        let (length, via) = if v4 {
            (24, "10.1.0.1")
        } else {
            (64, "fd00:1::1")
        };
        let address = format!("{}/{length}", Side::Fabric.address(v4));
        gateway
            .fabric
            .ip(&["address", "add", &address, "dev", "ib1"])
            .unwrap();
        gateway
            .fabric
            .ip(&["route", "add", "default", "via", via])
            .unwrap();
        // The gateway still has the old address; a request of the peer corrects it.
        let to = Side::Fabric.address(v4).to_string();
        gateway
            .gateway
            .ip(&["neighbour", "del", &to, "dev", "ib0"])
            .unwrap();
    }
    // The first packet to it goes up: the kernel asks for the new address and sends it there.
    for v4 in [true, false] {
        let packet = udp(Side::Ethernet, v4, 300, 4);
        let frame = to_gateway(&gateway, Side::Ethernet, ethertype(v4), &packet.bytes());
        expect_egress(&gateway, Side::Ethernet, &frame, v4, &forwarded(packet));
    }
    let resolving = handed_up(&datapath, "eth0", Reason::Resolving).packets;
    assert_eq!(resolving, 2);
    passes(&gateway, &datapath, 5);
    let text = gateway
        .gateway
        .ip(&["neighbour", "show", "10.1.0.2"])
        .unwrap();
    let lladdr = new.map(|byte| format!("{byte:02x}")).join(":");
    assert!(text.contains(&lladdr), "{text}");
}

#[test]
fn a_hca_that_is_pulled_out_takes_its_port_and_nothing_else() {
    let (lab, gateway, mut datapath) = start();
    passes(&gateway, &datapath, 1);
    lab.control("vhca0/plug", "0");
    let gone = gateway.gateway.ip(&["link", "show", "ib0"]);
    assert!(gone.is_err(), "{gone:?}");
    gateway
        .gateway
        .run(|| datapath.refresh())
        .unwrap()
        .unwrap_or_else(|e| panic!("{e}"));
    let ports = datapath.report().unwrap_or_else(|e| panic!("{e}"));
    let present: Vec<_> = ports
        .iter()
        .map(|p| (p.link.name.as_str(), p.present))
        .collect();
    assert_eq!(present, [("ib0", false), ("eth0", true)]);
    lab.control("vhca0/plug", "1");
    eventually("the driver makes ib0 again", || {
        if_nametoindex("ib0").is_ok()
    });
    ip(&["link", "set", "ib0", "up"]);
}
