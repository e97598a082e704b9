//! Exchanges between a gateway's two hosts, judged by what arrives: frames of either framing byte
//! for byte, the kernel's error messages, whole TCP transfers by their hash.

use crate::gateway::{Gateway, PATIENCE, Side, snmp, snmp6};
use crate::packets::{Ip, link_header};
use ipoib_ebpf::wire::link::LinkLayer;
use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Both sides.
pub const SIDES: [Side; 2] = [Side::Fabric, Side::Ethernet];

/// How long a transfer may stand still.
const STALL: Duration = Duration::from_secs(30);

/// The ethertype of a family.
pub fn ethertype(v4: bool) -> u16 {
    if v4 { 0x0800 } else { 0x86dd }
}

/// A frame from the host of a side to the gateway's port.
pub fn to_gateway(gateway: &Gateway, side: Side, ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = match gateway.layer(side) {
        LinkLayer::Ipoib => ipoib_header(&gateway.port_lladdr(side), ethertype),
        layer => link_header(layer, side.port_mac(), ethertype),
    };
    frame.extend(packet);
    frame
}

/// The header of an IPoIB frame as the driver takes and gives it: 20 bytes of address (RFC 4391
/// section 9.1.1; zero in a received frame), ethertype, reserved.
pub fn ipoib_header(address: &[u8], ethertype: u16) -> Vec<u8> {
    [address, &ethertype.to_be_bytes(), &[0, 0]].concat()
}

/// The header with which a packet reaches the host of a side.
fn arriving_header(gateway: &Gateway, side: Side, ethertype: u16) -> Vec<u8> {
    match gateway.layer(side) {
        LinkLayer::Ipoib => ipoib_header(&[0; 20], ethertype),
        _ => [
            &side.mac()[..],
            &side.port_mac(),
            &ethertype.to_be_bytes()[..],
        ]
        .concat(),
    }
}

/// The bytes in front of the IP packet at the host of a side.
pub fn link_len(gateway: &Gateway, side: Side) -> usize {
    match gateway.layer(side) {
        LinkLayer::Ipoib => 24,
        _ => 14,
    }
}

/// Whether a frame carries IP to one host, and not neighbour discovery: that and group reports are
/// what hosts send by themselves.
pub fn is_ip(layer: LinkLayer, frame: &[u8]) -> bool {
    let (at, packet) = match layer {
        LinkLayer::Ipoib => (20, 24),
        _ => (12, 14),
    };
    let byte = |offset: usize| frame.get(packet + offset).copied().unwrap_or_default();
    match frame.get(at..at + 2) {
        Some([8, 0]) => byte(16) < 224,
        Some([0x86, 0xdd]) => {
            byte(24) != 0xff && !(byte(6) == 58 && (133..=137).contains(&byte(40)))
        }
        _ => false,
    }
}

/// UDP between the hosts with a payload of `size` bytes that carries `tag` where it has room.
pub fn udp(from: Side, v4: bool, size: usize, tag: u8) -> Ip {
    let data: Vec<u8> = (0..size)
        .map(|i| (i as u8).wrapping_mul(31) ^ tag)
        .collect();
    Ip::udp(
        from.address(v4),
        from.other().address(v4),
        (4000, 5000 + u16::from(tag)),
        &data,
    )
}

/// What a router must make of a packet: everything as it was but hop limit and header checksum.
pub fn forwarded(mut packet: Ip) -> Vec<u8> {
    packet.hop_limit -= 1;
    packet.bytes()
}

/// Sends a frame from one host and expects exactly `wanted` to arrive at the other, framed by the
/// gateway's port.
pub fn expect_egress(gateway: &Gateway, from: Side, frame: &[u8], v4: bool, wanted: &[u8]) {
    let to = from.other();
    let receiver = gateway.socket(to);
    gateway.socket(from).send(frame);
    let arrived = receiver
        .receive(PATIENCE, |f| is_ip(gateway.layer(to), f))
        .expect("nothing left the gateway");
    let mut expected = arriving_header(gateway, to, ethertype(v4));
    expected.extend(wanted);
    assert_eq!(hex(&arrived), hex(&expected));
}

/// Bytes as text, for messages.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Type and code, source, and the packet that an ICMP error quotes; `packet` begins with its IP
/// header.
pub fn icmp_error(packet: &[u8], v4: bool) -> ((u8, u8), IpAddr, Vec<u8>) {
    if v4 {
        let source: [u8; 4] = packet[12..16].try_into().unwrap();
        let end = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        (
            (packet[20], packet[21]),
            source.into(),
            packet[28..end].to_vec(),
        )
    } else {
        let source: [u8; 16] = packet[8..24].try_into().unwrap();
        let end = 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]));
        (
            (packet[40], packet[41]),
            source.into(),
            packet[48..end].to_vec(),
        )
    }
}

/// The MTU that an ICMP error announces.
pub fn announced_mtu(packet: &[u8], v4: bool) -> u32 {
    let at = if v4 { 24 } else { 44 };
    u32::from_be_bytes(packet[at..at + 4].try_into().unwrap())
}

/// A payload in which no two places look alike.
fn payload(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..))
        .take(bytes)
        .collect()
}

fn hash(data: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(data);
    hasher.finish()
}

/// Sends `bytes` over TCP from one host to the other; both hashes.
pub fn transfer(gateway: &Gateway, from: Side, v4: bool, seed: u64, bytes: usize) -> (u64, u64) {
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
            stream.set_read_timeout(Some(STALL)).unwrap();
            let mut data = Vec::with_capacity(bytes);
            stream.read_to_end(&mut data).unwrap();
            assert_eq!(data.len(), bytes);
            hash(&data)
        })
        .unwrap();
    let data = payload(seed, bytes);
    let sent = hash(&data);
    gateway
        .host(from)
        .run(|| {
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
            stream.set_write_timeout(Some(STALL)).unwrap();
            stream.write_all(&data).unwrap();
        })
        .unwrap();
    (sent, receiver.join().unwrap())
}

/// Every counter of packets whose checksum was wrong, in all three namespaces.
pub fn checksum_errors(gateway: &Gateway) -> u64 {
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
