//! Whole transfers through the gateway: TCP with and without segmentation offload, both ways, both
//! families, byte for byte; and no checksum error anywhere.

use ipoib_tests::device::{Offload, set_offload};
use ipoib_tests::gateway::{Gateway, Side, counters, snmp, snmp6};
use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

const BYTES: usize = 10_000_000;
const SIDES: [Side; 2] = [Side::Fabric, Side::Ethernet];

/// A payload in which no two places look alike, and its hash.
fn payload(seed: u64) -> (Vec<u8>, u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let data: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
        .take(BYTES)
        .collect();
    let hash = hash(&data);
    (data, hash)
}

fn hash(data: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(data);
    hasher.finish()
}

/// Sends [`BYTES`] from one host to the other; both hashes.
fn transfer(gateway: &Gateway, from: Side, v4: bool, seed: u64) -> (u64, u64) {
    let to = from.other();
    let listener = gateway
        .host(to)
        .run(|| TcpListener::bind(SocketAddr::new(to.address(v4), 0)))
        .unwrap()
        .unwrap();
    let address = listener.local_addr().unwrap();
    let receiver = gateway
        .host(to)
        .spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            let mut data = Vec::with_capacity(BYTES);
            stream.read_to_end(&mut data).unwrap();
            assert_eq!(data.len(), BYTES);
            hash(&data)
        })
        .unwrap();
    let (data, sent) = payload(seed);
    gateway
        .host(from)
        .run(|| {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).unwrap();
            stream
                .set_write_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            stream.write_all(&data).unwrap();
        })
        .unwrap();
    (sent, receiver.join().unwrap())
}

/// Every counter of packets whose checksum was wrong.
fn checksum_errors(gateway: &Gateway) -> u64 {
    [&gateway.fabric, &gateway.gateway, &gateway.ethernet]
        .into_iter()
        .map(|namespace| {
            ["Tcp", "Udp", "Icmp"]
                .map(|g| snmp(namespace, g, "InCsumErrors"))
                .iter()
                .sum::<u64>()
                + snmp6(namespace, "Udp6InCsumErrors")
                + snmp6(namespace, "Icmp6InCsumErrors")
                + snmp(namespace, "Ip", "InHdrErrors")
                + snmp6(namespace, "Ip6InHdrErrors")
        })
        .sum()
}

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
                let (sent, received) = transfer(&gateway, from, v4, u64::from(v4));
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
