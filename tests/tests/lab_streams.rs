//! Whole TCP transfers through the gateway over the kernel's own IPoIB driver, byte for byte, with
//! superpackets and without, checksums by the HCA and by the kernel; no checksum error anywhere.

use ipoib_tests::device::{Offload, set_offload};
use ipoib_tests::exchange::{SIDES, checksum_errors, transfer};
use ipoib_tests::gateway::{Gateway, Side, counters};
use ipoib_tests::lab::{Lab, Mode, Setup};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

const BYTES: usize = 10_000_000;

/// Switches offloads of the Ethernet side, where they exist to be switched off.
fn set_offloads(gateway: &Gateway, offloads: &[Offload], on: bool) {
    for (namespace, interface) in [(&gateway.ethernet, "eth1"), (&gateway.gateway, "eth0")] {
        for offload in offloads {
            namespace
                .run(|| set_offload(interface, *offload, on))
                .unwrap()
                .unwrap();
        }
    }
}

/// Transfers both ways over both families; the fast path must carry them all.
fn transfers(name: &str, setup: Setup, off: &[Offload]) {
    let (_lab, gateway) = Lab::gateway(setup);
    set_offloads(&gateway, off, false);
    let datapath = gateway.datapath();
    for from in SIDES {
        for v4 in [true, false] {
            let row = || {
                let row = counters(&datapath, from.port());
                if v4 {
                    row.forwarded_ipv4
                } else {
                    row.forwarded_ipv6
                }
            };
            let (before, kernel) = (row(), gateway.kernel_forwarded(v4));
            let (sent, received) = transfer(&gateway, from, v4, u64::from(v4), BYTES);
            let what = format!("{name}: from {from:?}, IPv4 {v4}");
            assert_eq!(sent, received, "{what}");
            let (packets, bytes) = (row().packets - before.packets, row().bytes - before.bytes);
            println!("{what}: {} bytes a packet", bytes / packets);
            assert!(
                bytes > BYTES as u64,
                "{what}: the fast path carried {bytes} bytes"
            );
            // A path MTU has to be learnt where the sender's link takes more.
            let learnt = gateway.kernel_forwarded(v4) - kernel;
            assert!(learnt <= 3, "{what}: the kernel forwarded {learnt}");
        }
    }
    assert_eq!(checksum_errors(&gateway), 0, "{name}");
}

const FABRIC: Setup = Setup {
    vhca: "",
    mode: Mode::Datagram,
    mtu: None,
    child: false,
};

#[test]
fn tcp_over_datagram_mode_arrives_byte_for_byte() {
    transfers("datagram", FABRIC, &[]);
}

#[test]
fn tcp_arrives_with_checksums_by_the_hca() {
    let setup = Setup {
        vhca: "csum=1",
        ..FABRIC
    };
    transfers("checksums by the HCA", setup, &[]);
}

#[test]
fn tcp_arrives_without_ethernets_offloads() {
    let all = [Offload::Tso, Offload::Gso, Offload::TxChecksum];
    transfers("no offloads", FABRIC, &all);
}

/// Case 9: packets of up to 64 KB.
#[test]
fn tcp_over_connected_mode_arrives_byte_for_byte() {
    let setup = Setup {
        mode: Mode::Connected,
        mtu: Some(65520),
        ..FABRIC
    };
    transfers("connected", setup, &[]);
}

#[test]
fn tcp_over_a_p_key_child_arrives_byte_for_byte() {
    let setup = Setup {
        child: true,
        ..FABRIC
    };
    transfers("a P_Key child", setup, &[]);
}

#[test]
fn udp_sockets_see_every_datagram_unchanged() {
    let (_lab, gateway) = Lab::gateway(FABRIC);
    let datapath = gateway.datapath();
    for from in SIDES {
        for v4 in [true, false] {
            let to = from.other();
            let bind = |side: Side| {
                let address = SocketAddr::new(side.address(v4), 0);
                gateway
                    .host(side)
                    .run(|| UdpSocket::bind(address))
                    .unwrap()
                    .unwrap()
            };
            let (sender, receiver) = (bind(from), bind(to));
            receiver
                .set_read_timeout(Some(Duration::from_secs(5)))
                .unwrap();
            for number in 0..200usize {
                let data: Vec<u8> = (0..2 + number * 7).map(|i| (i ^ number) as u8).collect();
                sender
                    .send_to(&data, receiver.local_addr().unwrap())
                    .unwrap();
                let mut buffer = [0; 2000];
                let (length, source) = receiver.recv_from(&mut buffer).expect("lost");
                assert_eq!(buffer[..length], data[..]);
                assert_eq!(source, sender.local_addr().unwrap());
            }
        }
    }
    for port in ["ib0", "eth0"] {
        assert_eq!(counters(&datapath, port).forwarded_ipv4.packets, 200);
        assert_eq!(counters(&datapath, port).forwarded_ipv6.packets, 200);
    }
    assert_eq!(checksum_errors(&gateway), 0);
}
