//! What the words of the file mean: prefixes, ports, protocols, rates, rungs, addresses. Each
//! answers a wrong word with the problem and its remedy.

use super::at::Scalar;
use super::findings::Problem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    /// The family of an address.
    pub fn of(address: &IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }
}

/// A prefix of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// Its family.
    pub family: Family,
    /// The network's bits from the top, all others zero.
    pub bits: u128,
    /// How many bits count.
    pub length: u8,
}

impl Prefix {
    /// Reads "10.10.0.0/16" or "fd00::/32".
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let no_prefix = || Problem::NoPrefix(text.to_owned());
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| no_prefix())?;
        let (family, bits, most) = match address {
            IpAddr::V4(v4) => (Family::V4, u128::from(u32::from(v4)) << 96, 32),
            IpAddr::V6(v6) => (Family::V6, u128::from(v6), 128),
        };
        let Some(length) = length else {
            let remedy = format!("{address}/{most}");
            return Err(Problem::PrefixWithoutLength { remedy });
        };
        let length: u8 = match length.bytes().all(|b| b.is_ascii_digit()) {
            true => length.parse().map_err(|_| no_prefix())?,
            false => return Err(no_prefix()),
        };
        if length > most {
            let family = family.name();
            return Err(Problem::PrefixTooLong { family, most });
        }
        if let IpAddr::V6(v6) = address
            && let Some(v4) = v6.to_ipv4_mapped()
            && length >= 96
        {
            let v4 = u32::from(v4) & (u32::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0));
            let remedy = format!("{}/{}", Ipv4Addr::from(v4), length - 96);
            return Err(Problem::MappedPrefix { remedy });
        }
        let prefix = Prefix {
            family,
            bits: bits & mask(length),
            length,
        };
        if prefix.bits != bits {
            let remedy = prefix.to_string();
            return Err(Problem::HostBits { remedy });
        }
        Ok(prefix)
    }

    /// The prefix of that length around this one's network.
    pub fn widened(self, length: u8) -> Self {
        let bits = self.bits & mask(length);
        Prefix {
            bits,
            length,
            ..self
        }
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let length = self.length;
        match self.family {
            Family::V4 => write!(f, "{}/{length}", Ipv4Addr::from((self.bits >> 96) as u32)),
            Family::V6 => write!(f, "{}/{length}", Ipv6Addr::from(self.bits)),
        }
    }
}

fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

/// Protocols that have a name here: name, number, whether it has ports.
const PROTOCOLS: [(&str, u8); 10] = [
    ("icmp", 1),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("sctp", 132),
    ("udplite", 136),
];
/// Protocols that begin with two ports.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// A protocol's number.
pub fn protocol(scalar: &Scalar) -> Result<u8, Problem> {
    let unknown = || Problem::UnknownProtocol {
        text: scalar.to_string(),
        hint: match scalar {
            Scalar::Word(word) => super::near::hint(word, PROTOCOLS.iter().map(|p| p.0)),
            Scalar::Number(_) => String::new(),
        },
    };
    match scalar {
        Scalar::Number(number) => u8::try_from(*number).map_err(|_| unknown()),
        Scalar::Word(word) => PROTOCOLS
            .iter()
            .find(|p| p.0 == word)
            .map(|p| p.1)
            .ok_or_else(unknown),
    }
}

/// Whether packets of the protocol carry ports.
pub fn has_ports(protocol: u8) -> bool {
    WITH_PORTS.contains(&protocol)
}

/// The only family that carries the protocol, where there is one.
pub fn family_of_protocol(protocol: u8) -> Option<Family> {
    match protocol {
        1 => Some(Family::V4),
        58 => Some(Family::V6),
        _ => None,
    }
}

/// A port or a range of ports, both ends included.
pub fn ports(scalar: &Scalar) -> Result<(u16, u16), Problem> {
    let out_of_range = || Problem::PortOutOfRange(scalar.to_string());
    let number = |text: &str| -> Result<u16, Problem> {
        let text = text.trim();
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Problem::NoPort(scalar.to_string()));
        }
        match text.parse() {
            Ok(0) | Err(_) => Err(out_of_range()),
            Ok(port) => Ok(port),
        }
    };
    match scalar {
        Scalar::Number(port) => match u16::try_from(*port) {
            Ok(0) | Err(_) => Err(out_of_range()),
            Ok(port) => Ok((port, port)),
        },
        Scalar::Word(word) => {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let (first, last) = (number(first)?, number(last)?);
            match first <= last {
                true => Ok((first, last)),
                false => Err(Problem::PortsReversed { first, last }),
            }
        }
    }
}

/// A DSCP by number or by its name (RFC 2474, 2597, 3246, 5865, 8622).
pub fn dscp(scalar: &Scalar) -> Result<u8, Problem> {
    let wrong = || Problem::Dscp(scalar.to_string());
    let value = match scalar {
        Scalar::Number(number) => u8::try_from(*number).map_err(|_| wrong())?,
        Scalar::Word(word) => match (word.as_str(), word.as_bytes()) {
            ("ef", _) => 46,
            ("va", _) => 44,
            ("le", _) => 1,
            ("default" | "df", _) => 0,
            (_, [b'c', b's', class @ b'0'..=b'7']) => (class - b'0') * 8,
            (_, [b'a', b'f', class @ b'1'..=b'4', drop @ b'1'..=b'3']) => {
                (class - b'0') * 8 + (drop - b'0') * 2
            }
            _ => return Err(wrong()),
        },
    };
    if value < 64 { Ok(value) } else { Err(wrong()) }
}

/// Bits per second.
pub fn rate(text: &str) -> Result<u64, Problem> {
    const UNITS: [(&str, u64); 4] = [
        ("kbit", 1_000),
        ("mbit", 1_000_000),
        ("gbit", 1_000_000_000),
        ("bit", 1),
    ];
    quantity(text, &UNITS).ok_or_else(|| Problem::Rate(text.to_owned()))
}

/// Bytes.
pub fn burst(text: &str) -> Result<u64, Problem> {
    const UNITS: [(&str, u64); 4] = [("kb", 1024), ("mb", 1 << 20), ("gb", 1 << 30), ("b", 1)];
    quantity(text, &UNITS).ok_or_else(|| Problem::Burst(text.to_owned()))
}

/// A whole number above zero and a unit, which is what the unit's end says first.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?.trim_end(), factor)))?;
    if !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    number.checked_mul(*factor).filter(|n| *n > 0)
}

/// How a rung carries packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reliable-connected queue pairs.
    Connected,
    /// Plain IPoIB.
    Datagram,
    /// Ethernet.
    Ethernet,
}

impl Kind {
    /// Whether the rung is on the fabric.
    pub fn is_fabric(self) -> bool {
        self != Kind::Ethernet
    }
}

/// A rung of a ladder: its kind and its port.
pub fn rung(text: &str) -> Result<(Kind, &str), Problem> {
    const KINDS: [(&str, Kind); 3] = [
        ("connected", Kind::Connected),
        ("datagram", Kind::Datagram),
        ("ethernet", Kind::Ethernet),
    ];
    let Some((word, port)) = text.split_once(':') else {
        return Err(Problem::NoRung(text.to_owned()));
    };
    match KINDS.iter().find(|kind| kind.0 == word) {
        Some((_, kind)) => Ok((*kind, port)),
        None => Err(Problem::RungKind {
            kind: word.to_owned(),
            hint: super::near::hint(word, KINDS.map(|kind| kind.0)),
        }),
    }
}

/// An address that packets can be sent to.
pub fn unicast(text: &str) -> Result<IpAddr, Problem> {
    let address: IpAddr = text
        .parse()
        .map_err(|_| Problem::NoAddress(text.to_owned()))?;
    if let IpAddr::V6(v6) = address
        && let Some(v4) = v6.to_ipv4_mapped()
    {
        return Err(Problem::MappedAddress(v4));
    }
    let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    if address.is_unspecified() || address.is_multicast() || address.is_loopback() || broadcast {
        return Err(Problem::NotUnicast(address));
    }
    Ok(address)
}

/// A 6-byte Ethernet address of one host.
pub fn ethernet(text: &str) -> Result<[u8; 6], Problem> {
    let wrong = || Problem::EthernetAddress(text.to_owned());
    let bytes: [u8; 6] = bytes(text)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(wrong)?;
    match bytes[0] & 1 == 1 || bytes == [0; 6] {
        true => Err(wrong()),
        false => Ok(bytes),
    }
}

/// The GUID of a fabric port, given alone or as the end of a 20-byte link-layer address.
pub fn guid(text: &str) -> Result<[u8; 8], Problem> {
    let wrong = || Problem::FabricAddress(text.to_owned());
    let bytes = bytes(text).ok_or_else(wrong)?;
    let guid = match bytes.len() {
        8 => &bytes[..],
        20 => &bytes[12..],
        _ => return Err(wrong()),
    };
    match guid.try_into() {
        Ok(guid) if guid != [0; 8] => Ok(guid),
        _ => Err(wrong()),
    }
}

/// Pairs of hexadecimal digits between colons, or a GUID as `ibstat` prints it: 0x and 16 digits.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let pair = |pair: &str| match pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit()) {
        true => u8::from_str_radix(pair, 16).ok(),
        false => None,
    };
    let Some(digits) = text.strip_prefix("0x") else {
        return text.split(':').map(pair).collect();
    };
    (0..digits.len())
        .step_by(2)
        .map(|at| pair(digits.get(at..at + 2)?))
        .collect()
}

/// When a policy is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At any time.
    Always,
    /// While an RDMA device is up, or down.
    Rdma,
}

/// Reads "always", "rdma:mlx5_0 up" or "rdma:mlx5_0 down".
pub fn when(text: &str) -> Result<When, Problem> {
    if text == "always" {
        return Ok(When::Always);
    }
    let device = text
        .strip_prefix("rdma:")
        .and_then(|rest| rest.strip_suffix(" up").or(rest.strip_suffix(" down")));
    match device {
        Some(name) if !name.is_empty() && !name.contains(|c: char| c.is_whitespace()) => {
            Ok(When::Rdma)
        }
        _ => Err(Problem::When(text.to_owned())),
    }
}

/// Whether the kernel lets an interface have that name (`dev_valid_name()`).
pub fn is_interface_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..")
        && name.len() < 16
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control())
}
