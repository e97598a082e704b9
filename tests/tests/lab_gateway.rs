//! The gateway over the kernel's own IPoIB driver, judged by the bytes that leave it: both ways,
//! both families, with the fast path's counters; and what the kernel answers in its place.

use ipoib_ebpf::verdict::Reason;
use ipoib_tests::exchange::{
    SIDES, announced_mtu, checksum_errors, ethertype, expect_egress, forwarded, hex, icmp_error,
    ipoib_header, is_ip, link_len, to_gateway, udp,
};
use ipoib_tests::gateway::{ETHERNET_MTU, Gateway, PATIENCE, Side, counters, handed_up};
use ipoib_tests::lab::{Lab, Mode, Setup};
use ipoib_tests::packets::Ip;
use ipoib_tests::raw_socket::RawSocket;
use ipoib_user::datapath::Datapath;
use std::time::Duration;

/// The fabrics over which forwarding must be the same.
const FABRICS: [(&str, Setup); 4] = [
    ("datagram", FABRIC),
    (
        "datagram, 4K, checksums by the HCA",
        Setup {
            vhca: "mtu=4096 csum=1",
            ..FABRIC
        },
    ),
    ("connected", CONNECTED),
    (
        "a P_Key child",
        Setup {
            child: true,
            ..FABRIC
        },
    ),
];
const FABRIC: Setup = Setup {
    vhca: "",
    mode: Mode::Datagram,
    mtu: None,
    child: false,
};
const CONNECTED: Setup = Setup {
    mode: Mode::Connected,
    mtu: Some(65520),
    ..FABRIC
};

fn start(setup: Setup) -> (Lab, Gateway, Datapath) {
    let (lab, gateway) = Lab::gateway(setup);
    let datapath = gateway.datapath();
    (lab, gateway, datapath)
}

fn fast(datapath: &Datapath, port: &str, v4: bool) -> u64 {
    let row = counters(datapath, port);
    if v4 {
        row.forwarded_ipv4
    } else {
        row.forwarded_ipv6
    }
    .packets
}

#[test]
fn udp_leaves_with_the_right_bytes_both_ways_and_both_families() {
    for (name, setup) in FABRICS {
        let (_lab, gateway, datapath) = start(setup);
        for from in SIDES {
            for v4 in [true, false] {
                let before = fast(&datapath, from.port(), v4);
                let kernel = gateway.kernel_forwarded(v4);
                // Short ones (below ten bytes the kernel can't take the longer header off: its
                // own business), odd, ordinary, and as large as the Ethernet side takes.
                let header = if v4 { 28 } else { 48 };
                let sizes = [2, 19, 333, ETHERNET_MTU as usize - header];
                for (tag, size) in sizes.into_iter().enumerate() {
                    let packet = udp(from, v4, size, tag as u8);
                    let frame = to_gateway(&gateway, from, ethertype(v4), &packet.bytes());
                    expect_egress(&gateway, from, &frame, v4, &forwarded(packet));
                }
                let moved = fast(&datapath, from.port(), v4) - before;
                assert_eq!(moved, sizes.len() as u64, "{name}: {from:?}, IPv4 {v4}");
                assert_eq!(
                    gateway.kernel_forwarded(v4),
                    kernel,
                    "{name}: the kernel forwarded too"
                );
            }
        }
        assert_eq!(checksum_errors(&gateway), 0, "{name}");
    }
}

#[test]
fn payloads_too_short_for_the_kernels_resizing_go_up_and_arrive_all_the_same() {
    let (_lab, gateway, datapath) = start(FABRIC);
    for v4 in [true, false] {
        for size in [0, 1] {
            let packet = udp(Side::Fabric, v4, size, 1);
            let frame = to_gateway(&gateway, Side::Fabric, ethertype(v4), &packet.bytes());
            expect_egress(&gateway, Side::Fabric, &frame, v4, &forwarded(packet));
        }
    }
    assert_eq!(handed_up(&datapath, "ib0", Reason::TooShort).packets, 4);
}

#[test]
fn a_frame_to_the_fabric_leaves_with_the_neighbours_20_bytes() {
    for (name, setup) in FABRICS {
        let (_lab, gateway, _datapath) = start(setup);
        let tap = gateway
            .gateway
            .run(|| RawSocket::open("ib0"))
            .unwrap()
            .unwrap();
        for v4 in [true, false] {
            let packet = udp(Side::Ethernet, v4, 200, 7);
            let frame = to_gateway(&gateway, Side::Ethernet, ethertype(v4), &packet.bytes());
            expect_egress(
                &gateway,
                Side::Ethernet,
                &frame,
                v4,
                &forwarded(packet.clone()),
            );
            let wanted = forwarded(packet);
            let sent = tap.sent(PATIENCE, |f| f.ends_with(&wanted)).expect("sent");
            let header = ipoib_header(&gateway.host_lladdr(Side::Fabric), ethertype(v4));
            assert_eq!(hex(&sent[..24]), hex(&header), "{name}");
        }
    }
}

/// Case 4.
#[test]
fn an_unknown_neighbour_is_resolved_by_the_kernel_on_either_side() {
    let (_lab, gateway, datapath) = start(FABRIC);
    for from in SIDES {
        for v4 in [true, false] {
            gateway.neighbours(from.other(), "del");
            // The first one goes up and the kernel sends it once it has asked; the next one is ours.
            for tag in [6, 7] {
                let packet = udp(from, v4, 44, tag);
                let frame = to_gateway(&gateway, from, ethertype(v4), &packet.bytes());
                expect_egress(&gateway, from, &frame, v4, &forwarded(packet));
            }
            let address = from.other().address(v4).to_string();
            let text = gateway
                .gateway
                .ip(&["neighbour", "show", &address])
                .unwrap();
            let lladdr = gateway.host_lladdr(from.other());
            let lladdr: Vec<_> = lladdr.iter().map(|b| format!("{b:02x}")).collect();
            assert!(text.contains(&lladdr.join(":")), "{text}");
            gateway.neighbours(from.other(), "replace");
        }
    }
    for port in ["ib0", "eth0"] {
        assert_eq!(fast(&datapath, port, true), 1);
        assert_eq!(fast(&datapath, port, false), 1);
    }
}

#[test]
fn a_hop_limit_of_one_is_answered_by_the_kernel() {
    let (_lab, gateway, datapath) = start(FABRIC);
    for from in SIDES {
        for v4 in [true, false] {
            let one = Ip {
                hop_limit: 1,
                ..udp(from, v4, 20, 1)
            };
            let (socket, receiver) = (gateway.socket(from), gateway.socket(from.other()));
            let answer = answer(&gateway, &socket, from, v4, &one);
            let (kind, source, quoted) = icmp_error(&answer, v4);
            assert_eq!(kind, if v4 { (11, 0) } else { (3, 0) });
            assert_eq!(source, from.gateway_address(v4));
            assert_eq!(hex(&quoted), hex(&one.bytes()[..quoted.len()]));
            let layer = gateway.layer(from.other());
            let leaked = receiver.receive(Duration::from_millis(100), |f| is_ip(layer, f));
            assert!(leaked.is_none());
        }
        assert_eq!(
            handed_up(&datapath, from.port(), Reason::HopLimit).packets,
            2
        );
    }
}

/// Sends a packet to the gateway and returns the IP packet that comes back.
fn answer(gateway: &Gateway, socket: &RawSocket, from: Side, v4: bool, packet: &Ip) -> Vec<u8> {
    let layer = gateway.layer(from);
    socket.send(&to_gateway(gateway, from, ethertype(v4), &packet.bytes()));
    let frame = socket
        .receive(PATIENCE, |f| is_ip(layer, f))
        .expect("no answer");
    frame[link_len(gateway, from)..].to_vec()
}

/// Fabric MTUs against Ethernet ones (case 18): what does not fit is answered with what would.
#[test]
fn too_big_is_answered_with_the_right_mtu() {
    for (name, setup, fabric, ethernet) in [
        ("2044", FABRIC, 2044, 1500),
        (
            "4092",
            Setup {
                vhca: "mtu=4096",
                ..FABRIC
            },
            4092,
            1500,
        ),
        ("connected", CONNECTED, 65520, 1500),
        ("connected to jumbo", CONNECTED, 65520, 9000),
        ("jumbo to 2044", FABRIC, 2044, 9000),
    ] {
        let (_lab, gateway) = Lab::gateway(setup);
        for (namespace, device) in [(&gateway.gateway, "eth0"), (&gateway.ethernet, "eth1")] {
            let mtu = u32::to_string(&ethernet);
            namespace.ip(&["link", "set", device, "mtu", &mtu]).unwrap();
        }
        let datapath = gateway.datapath();
        let (from, smaller, larger) = if fabric > ethernet {
            (Side::Fabric, ethernet, fabric)
        } else {
            (Side::Ethernet, fabric, ethernet)
        };
        let socket = gateway.socket(from);
        for v4 in [true, false] {
            let header = if v4 { 28 } else { 48 };
            let before = handed_up(&datapath, from.port(), Reason::TooBig).packets;
            for size in [smaller + 1, larger] {
                // Connected mode sends 65520 bytes in one piece, raw sockets only what UDP can say.
                let mut packet = udp(from, v4, (size - header) as usize, 3);
                packet.fragment = 0x4000;
                let answer = answer(&gateway, &socket, from, v4, &packet);
                let (kind, source, quoted) = icmp_error(&answer, v4);
                assert_eq!(kind, if v4 { (3, 4) } else { (2, 0) }, "{name}");
                assert_eq!(source, from.gateway_address(v4));
                assert_eq!(announced_mtu(&answer, v4), smaller, "{name}");
                assert_eq!(hex(&quoted), hex(&packet.bytes()[..quoted.len()]));
            }
            let after = handed_up(&datapath, from.port(), Reason::TooBig).packets;
            assert_eq!(after - before, 2, "{name}");
            // What just fits takes the fast path.
            let packet = udp(from, v4, (smaller - header) as usize, 4);
            let frame = to_gateway(&gateway, from, ethertype(v4), &packet.bytes());
            expect_egress(&gateway, from, &frame, v4, &forwarded(packet));
            assert_eq!(fast(&datapath, from.port(), v4), 1, "{name}");
        }
    }
}

#[test]
fn fragments_and_options_go_up_and_the_kernel_forwards_them() {
    let (_lab, gateway, datapath) = start(FABRIC);
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
        let inner = udp(from, false, 16, 0).payload;
        let fragment = Ip {
            protocol: 44,
            payload: [&[17, 0, 0, 1, 0, 0, 0, 9][..], &inner].concat(),
            ..udp(from, false, 0, 0)
        };
        let frame = to_gateway(&gateway, from, 0x86dd, &fragment.bytes());
        expect_egress(&gateway, from, &frame, false, &forwarded(fragment));
        assert_eq!(
            handed_up(&datapath, from.port(), Reason::Fragment).packets,
            2
        );
    }
}

#[test]
fn an_oversize_packet_that_may_be_fragmented_arrives_in_fragments() {
    let (_lab, gateway, datapath) = start(FABRIC);
    let packet = udp(Side::Fabric, true, 1900, 4);
    let receiver = gateway.socket(Side::Ethernet);
    let frame = to_gateway(&gateway, Side::Fabric, 0x0800, &packet.bytes());
    gateway.socket(Side::Fabric).send(&frame);
    let next = || {
        receiver
            .receive(PATIENCE, |f| is_ip(gateway.layer(Side::Ethernet), f))
            .expect("a fragment")
    };
    let (first, second) = (next(), next());
    assert!(first.len() <= 14 + ETHERNET_MTU as usize);
    assert_eq!(first[14 + 8], 63);
    let payload = [&first[34..], &second[34..]].concat();
    assert_eq!(hex(&payload), hex(&packet.payload));
    assert_eq!(handed_up(&datapath, "ib0", Reason::TooBig).packets, 1);
}
