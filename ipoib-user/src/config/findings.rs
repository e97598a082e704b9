//! What is wrong with a file: where, which key, and one text for each problem, with the remedy.

use serde::Serialize;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

/// Something that a file has wrong, or that its author may not have meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The key, as a path from the top of the file: `policies[3].ports[1]`.
    pub key: String,
    /// What is wrong and what to do.
    pub text: String,
}

/// Everything that can be wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each text says what the variant means")]
pub enum Problem {
    #[error("this is not TOML: {0}: mend it, the rest is checked then")]
    Syntax(String),
    #[error("there is no such key{hint}: remove it, or use one of {known}")]
    UnknownKey { hint: String, known: String },
    #[error("{0}: write what is expected")]
    WrongType(String),
    #[error("{got} is written here: write a table, [{key}]", key = .key)]
    NoTable { got: &'static str, key: String },
    #[error("no port is configured: add [ports.NAME] for each interface, such as [ports.ib0]")]
    NoPorts,
    #[error("{got} {what} are configured, at most {most} are possible: use fewer")]
    TooMany {
        what: &'static str,
        got: usize,
        most: usize,
    },
    #[error(
        "{0:?} can't be the name of an interface: use 1 to 15 characters without space, / and :"
    )]
    InterfaceName(String),
    #[error(
        "{0:?} can't be a name: use 1 to 64 characters without control characters, and no space at the ends"
    )]
    Name(String),
    #[error("it has no {0}: add `{0} = ...`")]
    Missing(&'static str),
    #[error("the list is empty: add {0}, or remove the key")]
    Empty(&'static str),
    #[error("{name:?} is already the name of the {what} in line {line}: give it another")]
    Duplicate {
        what: &'static str,
        name: String,
        line: usize,
    },
    #[error("there is no {what} {name:?}{hint}: add {add}, or name another")]
    Unknown {
        what: &'static str,
        name: String,
        hint: String,
        add: String,
    },
    #[error("{0:?} is a prefix, not a group: put it into a list in [groups] and name that")]
    PrefixForGroup(String),
    #[error("{value} is out of range: use {least} to {most}")]
    OutOfRange { value: i64, least: i64, most: i64 },
    #[error("{0:#x} is not one run of bits: use a mask like 0x0ff00000")]
    MaskWithHoles(i64),
    #[error("{0:?} is no absolute path: begin it with /")]
    RelativePath(String),
    #[error(
        "{0:?} is no prefix: write an address and a length, like \"10.10.0.0/16\" or \"fd00:10::/32\""
    )]
    NoPrefix(String),
    #[error("the prefix has no length: write \"{remedy}\" if this one address is meant")]
    PrefixWithoutLength { remedy: String },
    #[error(
        "the prefix is too long: an {family} prefix has at most {most} bits, use /{most} or shorter"
    )]
    PrefixTooLong { family: &'static str, most: u8 },
    #[error("bits are set behind the prefix's length: write \"{remedy}\"")]
    HostBits { remedy: String },
    #[error("IPv4-mapped IPv6 addresses never travel in packets: write \"{remedy}\"")]
    MappedPrefix { remedy: String },
    #[error("the group has {0} already: remove it here")]
    DuplicatePrefix(String),
    #[error(
        "{text} is no protocol that is known here{hint}: use tcp, udp, udplite, sctp, dccp, icmp, icmpv6, gre, esp, ah or a number from 0 to 255"
    )]
    UnknownProtocol { text: String, hint: String },
    #[error("ports are given, but no protocol: add protocol = \"tcp\" or another that has ports")]
    PortsWithoutProtocol,
    #[error(
        "packets of protocol {0} have no ports: remove the key, or use tcp, udp, udplite, sctp or dccp"
    )]
    PortsOfPortless(u8),
    #[error("{0} is no port: write a number like 2049, or a range like \"4420-4430\"")]
    NoPort(String),
    #[error("{0} is out of range: ports go from 1 to 65535")]
    PortOutOfRange(String),
    #[error("the range runs backwards: write \"{last}-{first}\"")]
    PortsReversed { first: u16, last: u16 },
    #[error("{0} is no DSCP: use 0 to 63, or a name: ef, va, le, cs0 to cs7, af11 to af43")]
    Dscp(String),
    #[error("\"police\" needs a rate: add one, like rate = \"10gbit\"")]
    PoliceWithoutRate,
    #[error("only \"police\" has a {0}: remove it, or set action = \"police\"")]
    OnlyPolice(&'static str),
    #[error(
        "{0:?} is no rate: write a whole number of bit, kbit, mbit or gbit per second, like \"500mbit\""
    )]
    Rate(String),
    #[error("{0:?} is no burst: write a whole number of b, kb, mb or gb, like \"64kb\"")]
    Burst(String),
    #[error("a dropped packet has no {0}: remove the key, or the action \"drop\"")]
    DropWith(&'static str),
    #[error("{0:?} is no rung: write KIND:PORT, like \"datagram:ib0\"")]
    NoRung(String),
    #[error("{kind:?} is no kind of path{hint}: use connected, datagram or ethernet")]
    RungKind { kind: String, hint: String },
    #[error("the rung stands in the ladder already: remove it here")]
    DuplicateRung,
    #[error(
        "{port} is a fabric port in one rung and an Ethernet port in another (line {line}): it can be one only, correct one of them"
    )]
    TwoKinds { port: String, line: usize },
    #[error("\"next\" needs a next rung: give `path` a second one, or use \"stay\"")]
    NoNextRung,
    #[error("{0:?} is no address: write one like \"10.10.0.1\" or \"fd00:10::1\"")]
    NoAddress(String),
    #[error("no packet can be sent to {0} alone: write the address of a host")]
    NotUnicast(IpAddr),
    #[error("IPv4-mapped IPv6 addresses never travel in packets: write \"{0}\"")]
    MappedAddress(Ipv4Addr),
    #[error("no packet can match: {one} and {other}: use groups and a protocol of one family")]
    NeverMatches { one: String, other: String },
    #[error(
        "the next hop is {next_hop}, but only {packets} packets can match: use a next hop of their family"
    )]
    NextHopFamily {
        next_hop: &'static str,
        packets: &'static str,
    },
    #[error(
        "the next hop serves {next_hop} only, packets of {other} are routed by the kernel: make a second policy for them if they need one"
    )]
    NextHopOneFamily {
        next_hop: &'static str,
        other: &'static str,
    },
    #[error("peer {0:?} has no address: add `addresses` in [peers]")]
    PeerWithoutAddress(String),
    #[error("{0:?} is no key: write its 64 hexadecimal digits")]
    Key(String),
    #[error("{0:?} is no Ethernet address of a host: write 6 bytes, like \"0c:42:a1:00:00:07\"")]
    EthernetAddress(String),
    #[error(
        "{0:?} is no fabric address: write the 20-byte link-layer address, or the 8-byte GUID of the port, like \"00:02:c9:03:00:00:00:07\""
    )]
    FabricAddress(String),
    #[error("{0:?} says no time: write \"always\", \"rdma:DEVICE up\" or \"rdma:DEVICE down\"")]
    When(String),
    #[error(
        "the ladder ends on Ethernet, but no peer has an Ethernet address: add `ethernet` in [peers.NAME], or let the peers run ipoib, which tells it"
    )]
    NoEthernetAddress,
    #[error(
        "no packet gets here: {name:?} in line {line} matches all of them first: move this one before it, or remove it"
    )]
    Covered { name: String, line: usize },
    #[error("{0} checked but not applied yet: remove the key, or use `ipoib check`")]
    NotYet(&'static str),
    #[error("one order for all ports is possible yet, and {port} has {order:?}: give all the same")]
    MixedOrder { port: String, order: &'static str },
}

/// The findings about one file, while they are collected.
pub struct Findings<'a> {
    text: &'a str,
    /// Where each line begins.
    lines: Vec<usize>,
    /// Whether the file could not even be parsed.
    pub broken: bool,
    /// Keys whose value could not be read, and the lists that such a value stood in.
    unread: HashSet<String>,
    /// What makes the file wrong.
    pub errors: Vec<Finding>,
    /// What may not be meant.
    pub warnings: Vec<Finding>,
    /// How many more unknown names are compared with the known ones: each costs a look at all.
    hints: usize,
}

impl<'a> Findings<'a> {
    /// No findings about `text` so far.
    pub fn new(text: &'a str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Findings {
            text,
            lines: std::iter::once(0)
                .chain(ends.map(|(at, _)| at + 1))
                .collect(),
            broken: false,
            unread: HashSet::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
            hints: 100,
        }
    }

    /// The line of a byte, from 1.
    pub fn line(&self, offset: usize) -> usize {
        self.lines.partition_point(|start| *start <= offset).max(1)
    }

    /// An error at that byte of the file.
    pub fn error(&mut self, offset: usize, key: impl Into<String>, problem: Problem) {
        let finding = self.finding(offset, key.into(), &problem);
        self.errors.push(finding);
    }

    /// An error about a value that could not be read: what seems to lack for it is not reported too.
    pub fn unread(&mut self, offset: usize, key: String, text: String) {
        if let Some((list, _)) = key.rsplit_once('[') {
            self.unread.insert(list.to_owned());
        }
        self.unread.insert(key.clone());
        self.error(offset, key, Problem::WrongType(text));
    }

    /// Whether the file has that key, with a value that could not be read.
    pub fn is_unread(&self, key: &str) -> bool {
        self.unread.contains(key)
    }

    /// A warning, likewise.
    pub fn warning(&mut self, offset: usize, key: impl Into<String>, problem: Problem) {
        let finding = self.finding(offset, key.into(), &problem);
        self.warnings.push(finding);
    }

    /// `value`, or an error about it.
    pub fn ok<T>(&mut self, offset: usize, key: &str, value: Result<T, Problem>) -> Option<T> {
        value
            .map_err(|problem| self.error(offset, key, problem))
            .ok()
    }

    /// "Did you mean", for the first hundred unknown names of a file.
    pub fn hint<'n>(&mut self, wrong: &str, known: impl IntoIterator<Item = &'n str>) -> String {
        match self.hints.checked_sub(1) {
            Some(left) => {
                self.hints = left;
                super::near::hint(wrong, known)
            }
            None => String::new(),
        }
    }

    /// Sorts by place in the file.
    pub fn sort(&mut self) {
        for findings in [&mut self.errors, &mut self.warnings] {
            findings.sort_by_key(|finding| (finding.line, finding.column));
        }
    }

    fn finding(&self, offset: usize, key: String, problem: &Problem) -> Finding {
        let line = self.line(offset);
        let start = self.lines.get(line - 1).copied().unwrap_or(0);
        let before = self.text.get(start..offset).unwrap_or("");
        Finding {
            line,
            column: before.chars().count() + 1,
            key,
            text: one_line(&problem.to_string()),
        }
    }
}

/// Control characters written so that the text stays on its line.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    line
}

/// A key below another, quoted where TOML would.
pub fn join(parent: &str, key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let key = match !key.is_empty() && key.chars().all(bare) {
        true => key.to_owned(),
        false => format!("{key:?}"),
    };
    match parent.is_empty() {
        true => key,
        false => format!("{parent}.{key}"),
    }
}
