//! Packets through the gateway, judged by the bytes that leave it: addresses, hop limit, checksums,
//! payload. What must go up to the kernel goes up, and the kernel's answers come back.

use ipoib_ebpf::verdict::Reason;
use ipoib_ebpf::wire::link::LinkLayer;
use ipoib_tests::exchange::{
    SIDES, announced_mtu, ethertype, expect_egress, forwarded, hex, icmp_error, is_ip, to_gateway,
    udp,
};
use ipoib_tests::gateway::{
    ETHERNET_MTU, FABRIC_MTU, Gateway, PATIENCE, Side, counters, eventually, handed_up, snmp,
};
use ipoib_tests::packets::{Ip, checksum, transport_checksum};
use ipoib_tests::raw_program::Witness;
use ipoib_user::datapath::Datapath;
use std::time::Duration;

fn icmp_echo(from: Side, v4: bool, size: usize) -> Ip {
    let (source, destination) = (from.address(v4), from.other().address(v4));
    let mut payload = vec![if v4 { 8 } else { 128 }, 0, 0, 0, 0x12, 0x34, 0, 1];
    payload.extend((0..size).map(|i| i as u8));
    let sum = if v4 {
        checksum(&[&payload])
    } else {
        transport_checksum(source, destination, 58, &payload)
    };
    payload[2..4].copy_from_slice(&sum.to_be_bytes());
    let protocol = if v4 { 1 } else { 58 };
    Ip {
        protocol,
        payload,
        ..Ip::udp(source, destination, (0, 0), &[])
    }
}

/// Both sides are Ethernet here.
fn is_ip_frame(frame: &[u8]) -> bool {
    is_ip(LinkLayer::Ethernet, frame)
}

#[test]
fn udp_leaves_with_the_right_bytes_both_ways_and_both_families() {
    let (gateway, datapath) = Gateway::start();
    for from in SIDES {
        for v4 in [true, false] {
            let before = counters(&datapath, from.port());
            let kernel = gateway.kernel_forwarded(v4);
            // Empty, odd, ordinary, and as large as the Ethernet side takes.
            let header = if v4 { 28 } else { 48 };
            let sizes = [0, 1, 2, 19, 333, ETHERNET_MTU as usize - header];
            let mut bytes = 0;
            for (tag, size) in sizes.into_iter().enumerate() {
                let packet = udp(from, v4, size, tag as u8);
                let frame = to_gateway(&gateway, from, ethertype(v4), &packet.bytes());
                bytes += frame.len() as u64;
                expect_egress(&gateway, from, &frame, v4, &forwarded(packet));
            }
            let after = counters(&datapath, from.port());
            let moved = |a: ipoib_ebpf::tables::Counter, b: ipoib_ebpf::tables::Counter| {
                (b.packets - a.packets, b.bytes - a.bytes)
            };
            let (fast, other) = if v4 {
                (
                    moved(before.forwarded_ipv4, after.forwarded_ipv4),
                    after.forwarded_ipv6,
                )
            } else {
                (
                    moved(before.forwarded_ipv6, after.forwarded_ipv6),
                    after.forwarded_ipv4,
                )
            };
            assert_eq!(fast, (sizes.len() as u64, bytes));
            assert_eq!(
                other,
                if v4 {
                    before.forwarded_ipv6
                } else {
                    before.forwarded_ipv4
                }
            );
            assert_eq!(
                gateway.kernel_forwarded(v4),
                kernel,
                "the kernel forwarded too"
            );
        }
    }
    let (ib0, eth0) = (counters(&datapath, "ib0"), counters(&datapath, "eth0"));
    assert_eq!(ib0.sent_ipv4, eth0.forwarded_ipv4);
    assert_eq!(ib0.sent_ipv6, eth0.forwarded_ipv6);
    assert_eq!(eth0.sent_ipv4, ib0.forwarded_ipv4);
    assert_eq!(eth0.sent_ipv6, ib0.forwarded_ipv6);
}

#[test]
fn icmp_and_protocols_without_ports_are_forwarded_too() {
    let (gateway, datapath) = Gateway::start();
    for from in SIDES {
        for v4 in [true, false] {
            let echo = icmp_echo(from, v4, 56);
            let frame = to_gateway(&gateway, from, ethertype(v4), &echo.bytes());
            expect_egress(&gateway, from, &frame, v4, &forwarded(echo));
            // SCTP, ESP, GRE: routed by address alone.
            for protocol in [132, 50, 47] {
                let packet = Ip {
                    protocol,
                    payload: vec![7; 40],
                    ..icmp_echo(from, v4, 0)
                };
                let frame = to_gateway(&gateway, from, ethertype(v4), &packet.bytes());
                expect_egress(&gateway, from, &frame, v4, &forwarded(packet));
            }
        }
    }
    assert_eq!(counters(&datapath, "ib0").forwarded_ipv4.packets, 4);
    assert_eq!(counters(&datapath, "eth0").forwarded_ipv6.packets, 4);
}

#[test]
fn ethernet_padding_stays_behind() {
    let (gateway, _datapath) = Gateway::start();
    for v4 in [true, false] {
        let packet = udp(Side::Ethernet, v4, 1, 9);
        let mut frame = to_gateway(&gateway, Side::Ethernet, ethertype(v4), &packet.bytes());
        frame.extend([0xee; 18]);
        expect_egress(&gateway, Side::Ethernet, &frame, v4, &forwarded(packet));
    }
}

#[test]
fn a_hop_limit_of_two_leaves_as_one_and_of_one_is_answered_by_the_kernel() {
    let (gateway, datapath) = Gateway::start();
    for from in SIDES {
        for v4 in [true, false] {
            let two = Ip {
                hop_limit: 2,
                ..udp(from, v4, 20, 1)
            };
            let frame = to_gateway(&gateway, from, ethertype(v4), &two.bytes());
            expect_egress(&gateway, from, &frame, v4, &forwarded(two));

            let before = handed_up(&datapath, from.port(), Reason::HopLimit);
            let one = Ip {
                hop_limit: 1,
                ..udp(from, v4, 20, 1)
            };
            let (socket, receiver) = (gateway.socket(from), gateway.socket(from.other()));
            socket.send(&to_gateway(&gateway, from, ethertype(v4), &one.bytes()));
            let answer = socket
                .receive(PATIENCE, is_ip_frame)
                .expect("no time exceeded");
            let (kind, source, quoted) = icmp_error(&answer[14..], v4);
            assert_eq!(kind, if v4 { (11, 0) } else { (3, 0) });
            assert_eq!(source, from.gateway_address(v4));
            assert_eq!(hex(&quoted), hex(&one.bytes()[..quoted.len()]));
            assert!(
                receiver
                    .receive(Duration::from_millis(100), is_ip_frame)
                    .is_none()
            );
            let after = handed_up(&datapath, from.port(), Reason::HopLimit);
            assert_eq!(after.packets - before.packets, 1);
        }
    }
}

#[test]
fn too_big_is_answered_with_the_right_mtu() {
    let (gateway, datapath) = Gateway::start();
    for v4 in [true, false] {
        let header = if v4 { 28 } else { 48 };
        let before = handed_up(&datapath, "ib0", Reason::TooBig).packets;
        for size in [
            ETHERNET_MTU as usize + 1 - header,
            FABRIC_MTU as usize - header,
        ] {
            let mut packet = udp(Side::Fabric, v4, size, 3);
            packet.fragment = 0x4000;
            let socket = gateway.socket(Side::Fabric);
            socket.send(&to_gateway(
                &gateway,
                Side::Fabric,
                ethertype(v4),
                &packet.bytes(),
            ));
            let answer = socket.receive(PATIENCE, is_ip_frame).expect("no answer");
            let (kind, source, quoted) = icmp_error(&answer[14..], v4);
            assert_eq!(kind, if v4 { (3, 4) } else { (2, 0) });
            assert_eq!(source, Side::Fabric.gateway_address(v4));
            assert_eq!(announced_mtu(&answer[14..], v4), ETHERNET_MTU);
            assert_eq!(hex(&quoted), hex(&packet.bytes()[..quoted.len()]));
        }
        assert_eq!(
            handed_up(&datapath, "ib0", Reason::TooBig).packets - before,
            2
        );
    }
}

#[test]
fn an_oversize_packet_that_may_be_fragmented_arrives_in_fragments() {
    let (gateway, datapath) = Gateway::start();
    let packet = udp(Side::Fabric, true, 1900, 4);
    let receiver = gateway.socket(Side::Ethernet);
    gateway
        .socket(Side::Fabric)
        .send(&to_gateway(&gateway, Side::Fabric, 0x0800, &packet.bytes()));
    let first = receiver
        .receive(PATIENCE, is_ip_frame)
        .expect("first fragment");
    let second = receiver
        .receive(PATIENCE, is_ip_frame)
        .expect("second fragment");
    assert!(first.len() <= 14 + ETHERNET_MTU as usize);
    assert_eq!(first[14 + 8], 63);
    let payload = [&first[34..], &second[34..]].concat();
    assert_eq!(hex(&payload), hex(&packet.payload));
    assert_eq!(handed_up(&datapath, "ib0", Reason::TooBig).packets, 1);
}

#[test]
fn a_route_with_its_own_mtu_is_honoured_locked_or_not() {
    for lock in [&["mtu", "1300"][..], &["mtu", "lock", "1300"]] {
        let gateway = Gateway::build();
        let mut route = vec!["route", "replace", "10.2.0.0/24", "dev", "eth0"];
        route.extend(lock);
        gateway.gateway.ip(&route).unwrap();
        let options = gateway.options();
        let datapath = gateway
            .gateway
            .run(|| Datapath::start(&options))
            .unwrap()
            .expect("it starts");
        let mut packet = udp(Side::Fabric, true, 1273, 5);
        packet.fragment = 0x4000;
        let socket = gateway.socket(Side::Fabric);
        socket.send(&to_gateway(&gateway, Side::Fabric, 0x0800, &packet.bytes()));
        let answer = socket.receive(PATIENCE, is_ip_frame).expect("no answer");
        assert_eq!(icmp_error(&answer[14..], true).0, (3, 4));
        assert_eq!(announced_mtu(&answer[14..], true), 1300);
        assert_eq!(handed_up(&datapath, "ib0", Reason::TooBig).packets, 1);
        // One byte less fits.
        let fits = udp(Side::Fabric, true, 1272, 5);
        let frame = to_gateway(&gateway, Side::Fabric, 0x0800, &fits.bytes());
        expect_egress(&gateway, Side::Fabric, &frame, true, &forwarded(fits));
        assert_eq!(counters(&datapath, "ib0").forwarded_ipv4.packets, 1);
    }
}

#[test]
fn what_exceeds_an_ipv6_routes_own_mtu_goes_up_locked_or_not() {
    for lock in [&["mtu", "1300"][..], &["mtu", "lock", "1300"]] {
        let gateway = Gateway::build();
        let mut route = vec!["-6", "route", "add", "fd00:9::/64", "via", "fd00:2::2"];
        route.extend(lock);
        gateway.gateway.ip(&route).unwrap();
        let options = gateway.options();
        let datapath = gateway
            .gateway
            .run(|| Datapath::start(&options))
            .unwrap()
            .expect("it starts");
        let source = Side::Fabric.address(false);
        let destination = "fd00:9::1".parse().unwrap();
        let packet = |size| Ip::udp(source, destination, (1, 2), &vec![6; size]);
        let socket = gateway.socket(Side::Fabric);
        socket.send(&to_gateway(
            &gateway,
            Side::Fabric,
            0x86dd,
            &packet(1253).bytes(),
        ));
        // What becomes of it is the kernel's word; that it is asked is ours.
        eventually("it goes up", || {
            handed_up(&datapath, "ib0", Reason::TooBig).packets == 1
        });
        let frame = to_gateway(&gateway, Side::Fabric, 0x86dd, &packet(1252).bytes());
        expect_egress(
            &gateway,
            Side::Fabric,
            &frame,
            false,
            &forwarded(packet(1252)),
        );
    }
}

#[test]
fn fragments_and_options_go_up_and_the_kernel_forwards_them() {
    let (gateway, datapath) = Gateway::start();
    for from in SIDES {
        let fragment = Ip {
            fragment: 0x2000,
            payload: vec![5; 64],
            ..udp(from, true, 0, 0)
        };
        let options = Ip {
            options: vec![1; 8],
            ..udp(from, true, 30, 0)
        };
        for (packet, reason) in [(fragment, Reason::Fragment), (options, Reason::IpOptions)] {
            let kernel = gateway.kernel_forwarded(true);
            let frame = to_gateway(&gateway, from, 0x0800, &packet.bytes());
            expect_egress(&gateway, from, &frame, true, &forwarded(packet));
            assert_eq!(handed_up(&datapath, from.port(), reason).packets, 1);
            assert_eq!(gateway.kernel_forwarded(true), kernel + 1);
        }
        // Destination options, then UDP; and a first fragment.
        let inner = udp(from, false, 16, 0).payload;
        let extended = |next: u8, header: [u8; 8]| {
            let payload = [&header[..], &inner].concat();
            Ip {
                protocol: next,
                payload,
                ..udp(from, false, 0, 0)
            }
        };
        let destination_options = extended(60, [17, 0, 1, 4, 0, 0, 0, 0]);
        let fragment = extended(44, [17, 0, 0, 1, 0, 0, 0, 9]);
        for (packet, reason) in [
            (destination_options, Reason::ExtensionHeader),
            (fragment, Reason::Fragment),
        ] {
            let before = handed_up(&datapath, from.port(), reason).packets;
            let frame = to_gateway(&gateway, from, 0x86dd, &packet.bytes());
            expect_egress(&gateway, from, &frame, false, &forwarded(packet));
            assert_eq!(
                handed_up(&datapath, from.port(), reason).packets,
                before + 1
            );
        }
    }
}

/// Each of these must reach the kernel, and a program behind ours sees it on the way; a packet that
/// takes the fast path must not.
#[test]
fn what_must_go_up_goes_up_past_a_second_program() {
    let (gateway, datapath) = Gateway::start();
    let port = gateway.index("ib0");
    let witness = gateway
        .gateway
        .run(|| Witness::attach(port))
        .unwrap()
        .expect("tcx");
    let from = Side::Fabric;
    let good = |v4| udp(from, v4, 40, 1);
    let change = |v4, source: &str, destination: &str| {
        let pick = |text: &str, default| {
            if text.is_empty() {
                default
            } else {
                text.parse().unwrap()
            }
        };
        let (source, destination) = (
            pick(source, from.address(v4)),
            pick(destination, from.other().address(v4)),
        );
        Ip::udp(source, destination, (1, 2), &[1; 30])
    };
    let v4 = |packet: Ip| to_gateway(&gateway, from, 0x0800, &packet.bytes());
    let v6 = |packet: Ip| to_gateway(&gateway, from, 0x86dd, &packet.bytes());
    let mut other_host = v4(good(true));
    other_host[5] = 0x77;
    let mut vlan = to_gateway(&gateway, from, 0x8100, &[0x00, 0x05, 0x08, 0x00]);
    vlan.extend(good(true).bytes());
    let mut arp = to_gateway(&gateway, from, 0x0806, &[0, 1, 8, 0, 6, 4, 0, 1]);
    arp.extend([0; 20]);
    let mut bad_sum = v4(good(true));
    bad_sum[24] ^= 0x55;
    let mut lying = v4(good(true));
    lying.truncate(lying.len() - 10);
    let cases: [(&str, Vec<u8>, Reason); 22] = [
        ("another host's frame", other_host, Reason::NotForHost),
        ("VLAN tag", vlan, Reason::NotCarriedByIpoib),
        (
            "LLDP",
            to_gateway(&gateway, from, 0x88cc, &[2; 46]),
            Reason::NotCarriedByIpoib,
        ),
        (
            "MPLS",
            to_gateway(&gateway, from, 0x8847, &[3; 46]),
            Reason::NotCarriedByIpoib,
        ),
        (
            "802.3 length",
            to_gateway(&gateway, from, 0x0026, &[0xaa; 46]),
            Reason::NotCarriedByIpoib,
        ),
        ("ARP", arp, Reason::Arp),
        ("bad header checksum", bad_sum, Reason::Malformed),
        ("longer than the frame", lying, Reason::Malformed),
        (
            "multicast",
            v4(change(true, "", "239.1.1.1")),
            Reason::Multicast,
        ),
        (
            "IPv6 multicast",
            v6(change(false, "", "ff0e::1")),
            Reason::Multicast,
        ),
        (
            "link-local",
            v6(change(false, "", "fe80::9")),
            Reason::LinkLocal,
        ),
        (
            "link-local source",
            v6(change(false, "fe80::9", "")),
            Reason::LinkLocal,
        ),
        (
            "loopback source",
            v4(change(true, "127.0.0.1", "")),
            Reason::Martian,
        ),
        (
            "mapped source",
            v6(change(false, "::ffff:1.2.3.4", "")),
            Reason::Martian,
        ),
        (
            "own source",
            v4(change(true, "10.1.0.1", "")),
            Reason::OwnSource,
        ),
        (
            "own source on the other port",
            v6(change(false, "fd00:2::1", "")),
            Reason::OwnSource,
        ),
        (
            "to the gateway",
            v4(change(true, "", "10.1.0.1")),
            Reason::ToThisHost,
        ),
        (
            "to the gateway's other port",
            v6(change(false, "", "fd00:2::1")),
            Reason::ToThisHost,
        ),
        (
            "subnet broadcast",
            v4(change(true, "", "10.2.0.255")),
            Reason::NoRoute,
        ),
        (
            "no route",
            v4(change(true, "", "192.0.2.1")),
            Reason::NoRoute,
        ),
        (
            "back out of the same port",
            v4(change(true, "", "10.1.0.99")),
            Reason::SamePort,
        ),
        (
            "back out, IPv6",
            v6(change(false, "", "fd00:1::99")),
            Reason::SamePort,
        ),
    ];
    let socket = gateway.socket(from);
    for (what, frame, reason) in cases {
        let (up, seen) = (
            handed_up(&datapath, "ib0", reason).packets,
            witness.packets(),
        );
        let row = counters(&datapath, "ib0");
        let fast = (row.forwarded_ipv4, row.forwarded_ipv6);
        socket.send(&frame);
        eventually(what, || {
            handed_up(&datapath, "ib0", reason).packets == up + 1
        });
        eventually(what, || witness.packets() > seen);
        let row = counters(&datapath, "ib0");
        assert_eq!((row.forwarded_ipv4, row.forwarded_ipv6), fast, "{what}");
    }
    let seen = witness.packets();
    let packet = good(true);
    expect_egress(
        &gateway,
        from,
        &v4(packet.clone()),
        true,
        &forwarded(packet),
    );
    assert_eq!(
        witness.packets(),
        seen,
        "a fast packet does not reach later programs"
    );
}

#[test]
fn a_port_that_is_not_ours_is_the_kernels_business() {
    let (gateway, datapath) = Gateway::start();
    // A third network behind an interface that is no port.
    gateway
        .gateway
        .ip(&[
            "link", "add", "far0", "type", "veth", "peer", "name", "far1",
        ])
        .unwrap();
    gateway.gateway.ip(&["link", "set", "far0", "up"]).unwrap();
    gateway.gateway.ip(&["link", "set", "far1", "up"]).unwrap();
    gateway
        .gateway
        .ip(&["address", "add", "10.3.0.1/24", "dev", "far0"])
        .unwrap();
    gateway
        .gateway
        .ip(&[
            "neighbour",
            "add",
            "10.3.0.2",
            "lladdr",
            "02:00:00:00:03:02",
            "dev",
            "far0",
        ])
        .unwrap();
    let kernel = gateway.kernel_forwarded(true);
    let packet = Ip::udp(
        Side::Fabric.address(true),
        "10.3.0.2".parse().unwrap(),
        (1, 2),
        &[4; 10],
    );
    gateway
        .socket(Side::Fabric)
        .send(&to_gateway(&gateway, Side::Fabric, 0x0800, &packet.bytes()));
    eventually("the kernel forwards", || {
        gateway.kernel_forwarded(true) == kernel + 1
    });
    assert_eq!(handed_up(&datapath, "ib0", Reason::NotAPort).packets, 1);
}

/// Case 4: the packet that finds the neighbour unknown goes up, the kernel resolves and sends it, and
/// the next one leaves on the fast path with the address that resolution found.
#[test]
fn an_unknown_neighbour_is_resolved_by_the_kernel() {
    let (gateway, datapath) = Gateway::start();
    for from in SIDES {
        for v4 in [true, false] {
            let to = from.other();
            let address = to.address(v4).to_string();
            gateway
                .gateway
                .ip(&["neighbour", "del", &address, "dev", to.port()])
                .unwrap();
            let up = handed_up(&datapath, from.port(), Reason::Resolving).packets;
            for tag in [6, 7] {
                let packet = udp(from, v4, 44, tag);
                let frame = to_gateway(&gateway, from, ethertype(v4), &packet.bytes());
                expect_egress(&gateway, from, &frame, v4, &forwarded(packet));
                let now = handed_up(&datapath, from.port(), Reason::Resolving).packets;
                assert_eq!(now, up + 1, "the first one only");
            }
            let neighbours = gateway
                .gateway
                .ip(&["neighbour", "show", &address])
                .unwrap();
            let mac = to.mac().map(|b| format!("{b:02x}")).join(":");
            assert!(neighbours.contains(&mac), "{neighbours}");
        }
    }
    assert_eq!(counters(&datapath, "ib0").forwarded_ipv4.packets, 1);
    assert_eq!(counters(&datapath, "eth0").forwarded_ipv6.packets, 1);
}

/// Nobody has the address: the sender is told, as by the kernel alone.
#[test]
fn a_neighbour_that_does_not_answer_is_reported_to_the_sender() {
    let (gateway, datapath) = Gateway::start();
    for v4 in [true, false] {
        let absent = if v4 { "10.2.0.77" } else { "fd00:2::77" };
        let packet = Ip::udp(
            Side::Fabric.address(v4),
            absent.parse().unwrap(),
            (1, 2),
            &[9; 40],
        );
        let socket = gateway.socket(Side::Fabric);
        let frame = to_gateway(&gateway, Side::Fabric, ethertype(v4), &packet.bytes());
        socket.send(&frame);
        let answer = socket.receive(PATIENCE, is_ip_frame).expect("no answer");
        let (kind, source, quoted) = icmp_error(&answer[14..], v4);
        // Destination unreachable: host, address.
        assert_eq!(kind, if v4 { (3, 1) } else { (1, 3) });
        assert_eq!(source, Side::Fabric.gateway_address(v4));
        // Quoted as it would have left.
        assert_eq!(hex(&quoted), hex(&forwarded(packet)[..quoted.len()]));
    }
    let up = handed_up(&datapath, "ib0", Reason::Resolving).packets;
    assert_eq!(up, 2);
    assert_eq!(counters(&datapath, "ib0").forwarded_ipv4.packets, 0);
    assert_eq!(counters(&datapath, "ib0").forwarded_ipv6.packets, 0);
}

/// From the first rule or local route that somebody adds, the kernel looks every IPv4 source up,
/// with rp_filter off as well: one that is a local address by such a route is refused.
#[test]
fn sources_are_looked_up_where_the_kernel_does() {
    let changes: [&[&str]; 2] = [
        &["route", "add", "local", "192.0.2.0/24", "dev", "lo"],
        &["rule", "add", "from", "192.0.2.0/24", "lookup", "77"],
    ];
    for change in changes {
        let (gateway, mut datapath) = Gateway::start();
        gateway.gateway.ip(change).unwrap();
        let refresh = || datapath.refresh();
        gateway
            .gateway
            .run(refresh)
            .unwrap()
            .unwrap_or_else(|e| panic!("{e}"));
        let to = Side::Ethernet.address(true);
        let odd = Ip::udp("192.0.2.5".parse().unwrap(), to, (1, 2), &[8; 20]);
        let frame = to_gateway(&gateway, Side::Fabric, 0x0800, &odd.bytes());
        gateway.socket(Side::Fabric).send(&frame);
        eventually("handed up", || {
            handed_up(&datapath, "ib0", Reason::ReversePath).packets == 1
        });
        // A source with a route passes.
        let packet = udp(Side::Fabric, true, 20, 2);
        let frame = to_gateway(&gateway, Side::Fabric, 0x0800, &packet.bytes());
        expect_egress(&gateway, Side::Fabric, &frame, true, &forwarded(packet));
        assert_eq!(counters(&datapath, "ib0").forwarded_ipv4.packets, 1);
        gateway.stop(datapath);
    }
}

/// A port without IPv6 takes none in, by the kernel or by us.
#[test]
fn ipv6_that_is_switched_off_on_a_port_is_off() {
    let (gateway, mut datapath) = Gateway::start();
    let send = |tag| {
        let packet = udp(Side::Fabric, false, 44, tag);
        to_gateway(&gateway, Side::Fabric, 0x86dd, &packet.bytes())
    };
    gateway
        .gateway
        .sysctl("net.ipv6.conf.ib0.disable_ipv6", "1")
        .unwrap();
    gateway
        .gateway
        .run(|| datapath.refresh())
        .unwrap()
        .unwrap_or_else(|e| panic!("{e}"));
    let receiver = gateway.socket(Side::Ethernet);
    gateway.socket(Side::Fabric).send(&send(1));
    eventually("handed up", || {
        handed_up(&datapath, "ib0", Reason::ForwardingOff).packets == 1
    });
    let none = receiver.receive(Duration::from_millis(100), is_ip_frame);
    assert!(none.is_none());
    assert_eq!(counters(&datapath, "ib0").forwarded_ipv6.packets, 0);
}

#[test]
fn an_ipv4_route_with_an_ipv6_gateway_is_followed() {
    let (gateway, datapath) = Gateway::start();
    gateway
        .gateway
        .ip(&["route", "add", "10.9.0.0/16", "via", "inet6", "fd00:2::2"])
        .unwrap();
    let packet = Ip::udp(
        Side::Fabric.address(true),
        "10.9.1.1".parse().unwrap(),
        (1, 2),
        &[9; 100],
    );
    let frame = to_gateway(&gateway, Side::Fabric, 0x0800, &packet.bytes());
    expect_egress(&gateway, Side::Fabric, &frame, true, &forwarded(packet));
    assert_eq!(counters(&datapath, "ib0").forwarded_ipv4.packets, 1);
}

/// Case 47: the reply's road is not the packet's.
#[test]
fn rp_filter_is_honoured() {
    let (gateway, mut datapath) = Gateway::start();
    let spoofed = |source: &str| {
        let source = source.parse().unwrap();
        Ip::udp(source, Side::Ethernet.address(true), (1, 2), &[8; 20])
    };
    let send = |packet: &Ip| {
        gateway.socket(Side::Fabric).send(&to_gateway(
            &gateway,
            Side::Fabric,
            0x0800,
            &packet.bytes(),
        ));
    };
    let forwarded_here = |datapath: &Datapath| counters(datapath, "ib0").forwarded_ipv4.packets;
    // Reached through the other port, and not at all.
    for (mode, source, dropped) in [
        ("0", "10.2.0.77", false),
        ("0", "192.0.2.5", false),
        ("1", "10.2.0.77", true),
        ("1", "192.0.2.5", true),
        ("2", "10.2.0.77", false),
        ("2", "192.0.2.5", true),
    ] {
        gateway
            .gateway
            .sysctl("net.ipv4.conf.ib0.rp_filter", mode)
            .unwrap();
        gateway
            .gateway
            .run(|| datapath.refresh())
            .unwrap()
            .unwrap_or_else(|e| panic!("{e}"));
        let up = handed_up(&datapath, "ib0", Reason::ReversePath).packets;
        let fast = forwarded_here(&datapath);
        send(&spoofed(source));
        eventually("decided", || {
            handed_up(&datapath, "ib0", Reason::ReversePath).packets - up
                + forwarded_here(&datapath)
                - fast
                == 1
        });
        let refused = handed_up(&datapath, "ib0", Reason::ReversePath).packets - up == 1;
        assert_eq!(refused, dropped, "rp_filter {mode}, source {source}");
    }
    // The rightful source passes in every mode.
    let packet = udp(Side::Fabric, true, 20, 2);
    let frame = to_gateway(&gateway, Side::Fabric, 0x0800, &packet.bytes());
    gateway
        .gateway
        .sysctl("net.ipv4.conf.ib0.rp_filter", "1")
        .unwrap();
    gateway
        .gateway
        .run(|| datapath.refresh())
        .unwrap()
        .unwrap_or_else(|e| panic!("{e}"));
    expect_egress(&gateway, Side::Fabric, &frame, true, &forwarded(packet));
}

#[test]
fn forwarding_that_is_switched_off_is_off() {
    let (gateway, mut datapath) = Gateway::start();
    // The kernel itself asks IPv6 forwarding of all interfaces together and not of ib0.
    for (key, v4, kernel_forwards) in [
        ("net.ipv4.conf.ib0.forwarding", true, false),
        ("net.ipv6.conf.ib0.forwarding", false, true),
        ("net.ipv6.conf.all.forwarding", false, false),
    ] {
        gateway.gateway.sysctl(key, "0").unwrap();
        gateway
            .gateway
            .run(|| datapath.refresh())
            .unwrap()
            .unwrap_or_else(|e| panic!("{e}"));
        let up = handed_up(&datapath, "ib0", Reason::ForwardingOff).packets;
        let receiver = gateway.socket(Side::Ethernet);
        let packet = udp(Side::Fabric, v4, 20, 2);
        gateway.socket(Side::Fabric).send(&to_gateway(
            &gateway,
            Side::Fabric,
            ethertype(v4),
            &packet.bytes(),
        ));
        eventually(key, || {
            handed_up(&datapath, "ib0", Reason::ForwardingOff).packets == up + 1
        });
        let arrived = receiver
            .receive(Duration::from_millis(200), is_ip_frame)
            .is_some();
        assert_eq!(arrived, kernel_forwards, "{key}");
        gateway.gateway.sysctl(key, "1").unwrap();
    }
}

#[test]
fn a_new_address_of_the_host_is_known_after_a_refresh() {
    let (gateway, mut datapath) = Gateway::start();
    let packet = Ip::udp(
        "10.1.0.55".parse().unwrap(),
        Side::Ethernet.address(true),
        (1, 2),
        &[8; 20],
    );
    let frame = to_gateway(&gateway, Side::Fabric, 0x0800, &packet.bytes());
    expect_egress(&gateway, Side::Fabric, &frame, true, &forwarded(packet));
    gateway
        .gateway
        .ip(&["address", "add", "10.1.0.55/24", "dev", "ib0"])
        .unwrap();
    gateway
        .gateway
        .run(|| datapath.refresh())
        .unwrap()
        .unwrap_or_else(|e| panic!("{e}"));
    gateway.socket(Side::Fabric).send(&frame);
    eventually("own source", || {
        handed_up(&datapath, "ib0", Reason::OwnSource).packets == 1
    });
    gateway
        .gateway
        .ip(&["address", "del", "10.1.0.55/24", "dev", "ib0"])
        .unwrap();
    gateway
        .gateway
        .run(|| datapath.refresh())
        .unwrap()
        .unwrap_or_else(|e| panic!("{e}"));
    gateway.socket(Side::Fabric).send(&frame);
    eventually("forwarded again", || {
        counters(&datapath, "ib0").forwarded_ipv4.packets == 2
    });
}

#[test]
fn without_the_datapath_the_kernel_forwards_alone() {
    let (gateway, datapath) = Gateway::start();
    gateway.stop(datapath);
    let packet = udp(Side::Fabric, true, 20, 2);
    let kernel = gateway.kernel_forwarded(true);
    let frame = to_gateway(&gateway, Side::Fabric, 0x0800, &packet.bytes());
    expect_egress(&gateway, Side::Fabric, &frame, true, &forwarded(packet));
    assert_eq!(gateway.kernel_forwarded(true), kernel + 1);
    assert_eq!(snmp(&gateway.gateway, "Ip", "InHdrErrors"), 0);
}
