//! Whole transfers through the gateway: TCP with and without segmentation offload, both ways, both
//! families, byte for byte; and no checksum error anywhere.

use ipoib_tests::device::{Offload, set_offload};
use ipoib_tests::exchange::{SIDES, checksum_errors, transfer};
use ipoib_tests::gateway::{Gateway, Side, counters};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

const BYTES: usize = 10_000_000;

fn set_offloads(gateway: &Gateway, offloads: &[Offload], on: bool) {
    for side in SIDES {
        for (namespace, interface) in [
            (gateway.host(side), side.interface()),
            (&gateway.gateway, side.port()),
        ] {
            for offload in offloads {
                namespace
                    .run(|| set_offload(interface, *offload, on))
                    .unwrap()
                    .unwrap();
            }
        }
    }
}

/// Case 9 among others: superpackets arrive whole and the fast path carries them.
#[test]
fn tcp_arrives_byte_for_byte_with_and_without_offloads() {
    let (gateway, datapath) = Gateway::start();
    let all = [Offload::Tso, Offload::Gso, Offload::TxChecksum];
    for (off, superpackets) in [(&all[..0], true), (&all[..2], false), (&all[..], false)] {
        set_offloads(&gateway, off, false);
        for from in SIDES {
            for v4 in [true, false] {
                let row = |port| {
                    let c = counters(&datapath, port);
                    if v4 {
                        c.forwarded_ipv4
                    } else {
                        c.forwarded_ipv6
                    }
                };
                let (before, kernel) = (row(from.port()), gateway.kernel_forwarded(v4));
                let (sent, received) = transfer(&gateway, from, v4, u64::from(v4), BYTES);
                assert_eq!(sent, received, "from {from:?}, IPv4 {v4}, off {off:?}");
                let after = row(from.port());
                let (packets, bytes) = (after.packets - before.packets, after.bytes - before.bytes);
                assert!(bytes > BYTES as u64, "the fast path carried {bytes} bytes");
                let mean = bytes / packets;
                assert_eq!(
                    mean > 3000,
                    superpackets,
                    "{mean} bytes a packet, off {off:?}"
                );
                assert_eq!(
                    gateway.kernel_forwarded(v4),
                    kernel,
                    "the kernel forwarded too"
                );
            }
        }
    }
    assert_eq!(checksum_errors(&gateway), 0);
}

#[test]
fn udp_sockets_see_every_datagram_unchanged() {
    let (gateway, datapath) = Gateway::start();
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
                let data: Vec<u8> = (0..number * 7).map(|i| (i ^ number) as u8).collect();
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
