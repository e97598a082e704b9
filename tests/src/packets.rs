//! Packets: well-formed ones built field by field, and a generator that also cuts, corrupts and
//! mislabels them. The same seed gives the same packets.

use fastrand::Rng;
use ipoib_ebpf::wire::link::LinkLayer;
use std::net::IpAddr;

/// The Internet checksum of a byte string of any length.
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)])))
        .sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An IP packet to build.
#[derive(Clone, Debug)]
pub struct Ip {
    /// Source; decides about the version together with `destination`.
    pub source: IpAddr,
    /// Destination, of the same family.
    pub destination: IpAddr,
    /// Type of service or traffic class.
    pub tos: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// IP protocol.
    pub protocol: u8,
    /// IPv4 options, a multiple of 4 bytes.
    pub options: Vec<u8>,
    /// IPv4 flags and fragment offset.
    pub fragment: u16,
    /// What follows the header.
    pub payload: Vec<u8>,
}

impl Ip {
    /// A UDP packet with `data` behind the header, its checksum right.
    pub fn udp(source: IpAddr, destination: IpAddr, ports: (u16, u16), data: &[u8]) -> Self {
        let mut payload = Vec::new();
        payload.extend(ports.0.to_be_bytes());
        payload.extend(ports.1.to_be_bytes());
        payload.extend((8 + data.len() as u16).to_be_bytes());
        payload.extend([0, 0]);
        payload.extend(data);
        let sum = match transport_checksum(source, destination, 17, &payload) {
            0 => 0xffff,
            sum => sum,
        };
        payload[6..8].copy_from_slice(&sum.to_be_bytes());
        Ip {
            source,
            destination,
            tos: 0,
            hop_limit: 64,
            protocol: 17,
            options: Vec::new(),
            fragment: 0,
            payload,
        }
    }

    /// The packet's bytes, IPv4 header checksum right.
    pub fn bytes(&self) -> Vec<u8> {
        let mut packet = Vec::new();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = 20 + self.options.len();
                packet.extend([0x40 | (header / 4) as u8, self.tos]);
                packet.extend(((header + self.payload.len()) as u16).to_be_bytes());
                packet.extend([0x12, 0x34]);
                packet.extend(self.fragment.to_be_bytes());
                packet.extend([self.hop_limit, self.protocol, 0, 0]);
                packet.extend(source.octets());
                packet.extend(destination.octets());
                packet.extend(&self.options);
                let sum = checksum(&[&packet]);
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                packet.extend([0x60 | self.tos >> 4, self.tos << 4, 0, 0]);
                packet.extend((self.payload.len() as u16).to_be_bytes());
                packet.extend([self.protocol, self.hop_limit]);
                packet.extend(source.octets());
                packet.extend(destination.octets());
            }
            mixed => panic!("addresses of two families: {mixed:?}"),
        }
        packet.extend(&self.payload);
        packet
    }
}

/// Checksum of a transport packet with its pseudo header (RFC 793, RFC 8200 section 8.1).
pub fn transport_checksum(
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    payload: &[u8],
) -> u16 {
    let length = (payload.len() as u32).to_be_bytes();
    let tail = [0, 0, 0, protocol];
    match (source, destination) {
        (IpAddr::V4(s), IpAddr::V4(d)) => {
            checksum(&[&s.octets(), &d.octets(), &length, &tail, payload])
        }
        (IpAddr::V6(s), IpAddr::V6(d)) => {
            checksum(&[&s.octets(), &d.octets(), &length, &tail, payload])
        }
        mixed => panic!("addresses of two families: {mixed:?}"),
    }
}

/// A link header of `layer` for a packet to `destination_mac` (Ethernet only).
pub fn link_header(layer: LinkLayer, destination_mac: [u8; 6], ethertype: u16) -> Vec<u8> {
    let [high, low] = ethertype.to_be_bytes();
    match layer {
        LinkLayer::None => Vec::new(),
        LinkLayer::Ethernet => {
            let [a, b, c, d, e, f] = destination_mac;
            vec![a, b, c, d, e, f, 2, 0, 0, 0, 0, 9, high, low]
        }
        LinkLayer::Ipoib => {
            let mut header = vec![0; 24];
            (header[20], header[21]) = (high, low);
            // Where the test-run reads the protocol; 0 in a real frame, and not read by us.
            (header[12], header[13]) = (high, low);
            header
        }
    }
}

/// Payload bytes of the packets that arrive on a port without link header.
const NO_LINK_PAYLOAD: usize = 40;
/// The first six bytes of such a packet: what the test-run compares with the port's address.
pub const NO_LINK_MAC: [u8; 6] = [0x60, 0, 0, 0, 0, NO_LINK_PAYLOAD as u8];

/// An ingress port for the generator.
#[derive(Clone, Debug)]
pub struct Source {
    /// Interface index.
    pub ifindex: u32,
    /// Its link layer.
    pub layer: LinkLayer,
    /// Its link-layer address (Ethernet), or the first bytes that the kernel compares.
    pub mac: [u8; 6],
}

/// A generated frame.
#[derive(Clone, Debug)]
pub struct Generated {
    /// Interface that it arrives on.
    pub ifindex: u32,
    /// Link layer of that interface.
    pub layer: LinkLayer,
    /// Link header and packet.
    pub frame: Vec<u8>,
    /// Segment size for the context, mostly 0.
    pub gso_size: u32,
    /// Whether the kernel will find it addressed to this host.
    pub for_this_host: bool,
}

/// Generates frames between ports and addresses.
#[derive(Debug)]
pub struct Generator {
    rng: Rng,
    sources: Vec<Source>,
    addresses: Vec<IpAddr>,
}

impl Generator {
    /// A generator over these ports; addresses are drawn from `addresses` and sometimes at random.
    pub fn new(seed: u64, sources: Vec<Source>, addresses: Vec<IpAddr>) -> Self {
        Generator {
            rng: Rng::with_seed(seed),
            sources,
            addresses,
        }
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }

    fn pick(&mut self, v4: bool) -> IpAddr {
        if self.one_in(20) {
            return if v4 {
                IpAddr::from(self.rng.u32(..).to_be_bytes())
            } else {
                IpAddr::from(self.rng.u128(..).to_be_bytes())
            };
        }
        let fitting: Vec<_> = self
            .addresses
            .iter()
            .filter(|a| a.is_ipv4() == v4)
            .copied()
            .collect();
        fitting[self.rng.usize(..fitting.len())]
    }

    /// The next frame.
    pub fn frame(&mut self) -> Generated {
        let source = self.sources[self.rng.usize(..self.sources.len())].clone();
        let v4 = self.rng.bool() && source.layer != LinkLayer::None;
        let (from, to) = (self.pick(v4), self.pick(v4));
        let protocol = *self
            .rng
            .choice(&[6, 6, 6, 17, 17, 17, 1, 58, 47, 132])
            .unwrap();
        let size = match self.rng.u32(..10) {
            0 => self.rng.usize(..12),
            // Around every MTU.
            1 => self.rng.usize(1000..2100),
            _ => self.rng.usize(12..120),
        };
        // The length that `Source::mac` of a port without link header stands for.
        let size = match (source.layer, protocol) {
            (LinkLayer::None, 17) => NO_LINK_PAYLOAD - 8,
            (LinkLayer::None, _) => NO_LINK_PAYLOAD,
            _ => size,
        };
        let mut packet = match protocol {
            17 => Ip::udp(
                from,
                to,
                (self.rng.u16(..), self.rng.u16(..)),
                &self.noise(size),
            ),
            _ => {
                let mut payload = self.noise(size.max(if protocol == 6 { 20 } else { 0 }));
                if protocol == 6 {
                    payload[12] = 0x50;
                }
                Ip {
                    payload,
                    protocol,
                    ..Ip::udp(from, to, (0, 0), &[])
                }
            }
        };
        packet.hop_limit = *self
            .rng
            .choice(&[0, 1, 2, 2, 64, 64, 64, 64, 255, 255])
            .unwrap();
        if source.layer != LinkLayer::None {
            packet.tos = self.rng.u8(..);
        }
        if v4 && self.one_in(15) {
            packet.options = vec![1; 4 * self.rng.usize(1..11)];
        }
        if v4 && self.one_in(15) {
            packet.fragment = *self.rng.choice(&[0x2000, 0x00b9, 0x20b9]).unwrap();
        }
        if v4 && self.one_in(6) {
            packet.fragment |= 0x4000;
        }
        if !v4 && self.one_in(12) {
            packet.protocol = *self.rng.choice(&[0, 43, 44, 51, 59, 60, 135, 253]).unwrap();
        }
        let mut ethertype = if v4 { 0x0800 } else { 0x86dd };
        if self.one_in(25) {
            ethertype = *self
                .rng
                .choice(&[
                    0x0806, 0x8100, 0x88a8, 0x88cc, 0x8847, 0x0800, 0x86dd, 0x0026,
                ])
                .unwrap();
        }
        let mut mac = source.mac;
        if self.one_in(20) {
            mac = *self
                .rng
                .choice(&[[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [2, 9, 9, 9, 9, 9]])
                .unwrap();
        }
        let mut bytes = packet.bytes();
        if source.layer == LinkLayer::None {
            // The test-run takes the first 14 bytes for an Ethernet header: only packets that look
            // like one to this port reach the program as addressed to this host.
            (bytes[12], bytes[13]) = (0x86, 0xdd);
        }
        let mut frame = link_header(source.layer, mac, ethertype);
        frame.extend(bytes);
        if self.one_in(8) {
            let padding = self.rng.usize(1..40);
            frame.extend(self.noise(padding));
        }
        self.spoil(&mut frame, source.layer);
        let gso_size = if self.one_in(8) {
            self.rng.u32(1..1600)
        } else {
            0
        };
        let for_this_host = frame.get(..6) == Some(&source.mac[..]);
        Generated {
            ifindex: source.ifindex,
            layer: source.layer,
            frame,
            gso_size,
            for_this_host,
        }
    }

    /// Cuts or corrupts one frame in four.
    fn spoil(&mut self, frame: &mut Vec<u8>, layer: LinkLayer) {
        if self.one_in(8) {
            for _ in 0..self.rng.usize(1..4) {
                let at = self.rng.usize(..frame.len().min(90));
                frame[at] = self.rng.u8(..);
            }
        }
        if self.one_in(8) {
            frame.truncate(self.rng.usize(14..=frame.len()));
        }
        if layer == LinkLayer::Ipoib && frame.len() >= 22 {
            // Keep the test-run's view of the protocol what the frame says.
            (frame[12], frame[13]) = (frame[20], frame[21]);
        }
    }

    fn noise(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.rng.u8(..)).collect()
    }
}
