//! The library and the loaded program agree: same verdict, same bytes, same counters, on tens of
//! thousands of generated packets. The program runs in the kernel by `BPF_PROG_TEST_RUN`, against a
//! real routing table; the library runs here, against a model of it.

use aya::programs::SchedClassifier;
use ipoib_ebpf::frame::{Frame, HEADROOM};
use ipoib_ebpf::ingress::ingress;
use ipoib_ebpf::tables::{Host, LocalAddress, Port, PortCounters};
use ipoib_ebpf::verdict::{Forward, NextHop, Reason, Verdict};
use ipoib_ebpf::wire::link::LinkLayer;
use ipoib_tests::model::{Entry, Model, To, address};
use ipoib_tests::packets::{Generated, Generator, Ip, NO_LINK_MAC, Source, link_header};
use ipoib_tests::test_run::{self, CHECKSUM_COMPLETE};
use ipoib_user::datapath::{self, Maps, OBJECT};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::Command;

const PACKETS: usize = 40_000;
const TC_ACT_UNSPEC: i32 = -1;
const TC_ACT_SHOT: i32 = 2;
const TC_ACT_REDIRECT: i32 = 7;
const ROUTE_MTU: u32 = 1300;

/// Neighbours with a link-layer address. IPv4 has one for all on `fab0` and `fab1`, which are
/// point-to-point devices.
const NEIGHBOURS: [(&str, &str); 18] = [
    ("fab0", "10.1.0.2"),
    ("fab0", "fd00:1::2"),
    ("fab0", "fd00:1::3"),
    ("fab0", "fd00:1::77"),
    ("fab1", "10.2.0.2"),
    ("fab1", "fd00:2::2"),
    ("eth0", "10.3.0.2"),
    ("eth0", "10.3.0.3"),
    ("eth0", "10.3.9.9"),
    ("eth0", "10.3.0.9"),
    ("eth0", "fd00:3::2"),
    ("eth0", "fd00:3::3"),
    ("eth0", "fd00:3::98"),
    ("eth0", "fd00:3::99"),
    ("eth0", "fd00:3::9"),
    ("eth1", "10.5.0.2"),
    ("eth1", "fd00:5::2"),
    ("strange0", "fd00:6::2"),
];

/// Ports: name, link layer, link-layer address, rp_filter, forwarding. IPv6 is off on `strict0`.
const PORTS: [(&str, LinkLayer, [u8; 6], u8, bool); 9] = [
    ("fab0", LinkLayer::Ipoib, [0; 6], 0, true),
    ("fab1", LinkLayer::Ipoib, [0; 6], 0, true),
    ("bare0", LinkLayer::None, [0; 6], 0, true),
    ("eth0", LinkLayer::Ethernet, [2, 0, 0, 0, 0, 1], 0, true),
    ("eth1", LinkLayer::Ethernet, [2, 0, 0, 0, 0, 2], 0, true),
    ("strict0", LinkLayer::Ethernet, [2, 0, 0, 0, 0, 3], 1, true),
    ("loose0", LinkLayer::Ethernet, [2, 0, 0, 0, 0, 8], 2, true),
    ("off0", LinkLayer::Ethernet, [2, 0, 0, 0, 0, 4], 0, false),
    ("none0", LinkLayer::None, NO_LINK_MAC, 0, true),
];

/// The port with a loose rp_filter.
const LOOSE: usize = 6;

/// Set-up in a fresh network namespace; `strange0` is no port.
const IP: &str = "
    link set lo up
    tuntap add dev fab0 mode tun
    tuntap add dev fab1 mode tun
    tuntap add dev bare0 mode tun
    link add eth0 address 02:00:00:00:00:01 type veth peer name eth0p
    link add eth1 address 02:00:00:00:00:02 type veth peer name eth1p
    link add strict0 address 02:00:00:00:00:03 type veth peer name strict0p
    link add loose0 address 02:00:00:00:00:08 type veth peer name loose0p
    link add off0 address 02:00:00:00:00:04 type veth peer name off0p
    link add none0 address 60:00:00:00:00:28 type veth peer name none0p
    link add strange0 address 02:00:00:00:00:06 type veth peer name strange0p
    link set fab0 mtu 2044 up
    link set fab1 mtu 2044 up
    link set bare0 mtu 1500 up
    link set eth0 up
    link set eth0p up
    link set eth1 up
    link set eth1p up
    link set strict0 up
    link set strict0p up
    link set loose0 mtu 9000 up
    link set loose0p up
    link set off0 up
    link set off0p up
    link set none0 up
    link set none0p up
    link set strange0 up
    link set strange0p up
    address add 10.1.0.1/16 dev fab0
    address add 10.3.0.1/16 dev eth0
    address add fd00:1::1/64 dev fab0 nodad
    address add fd00:3::1/64 dev eth0 nodad
    route add 10.2.0.0/16 dev fab1
    route add 10.4.0.0/16 via 10.3.0.9
    route add 10.5.0.0/16 dev eth1 mtu lock 600
    route add 10.6.0.0/16 dev strange0
    route add 10.7.0.0/16 dev bare0
    route add blackhole 10.8.1.0/24
    route add unreachable 10.8.2.0/24
    route add prohibit 10.8.3.0/24
    route add 10.9.0.0/16 encap seg6 mode encap segs fd00:99::1 dev eth1
    route add 10.10.0.0/16 via inet6 fd00:3::9 dev eth0
    route add fd00:2::/64 dev fab1
    route add fd00:4::/64 via fd00:3::9
    route add fd00:5::/64 dev eth1 mtu lock 1280
    route add fd00:6::/64 dev strange0
    route add fd00:7::/64 dev bare0
    route add blackhole fd00:8:1::/64
    route add unreachable fd00:8:2::/64
    route add prohibit fd00:8:3::/64
    route add fd00:9::/64 encap seg6 mode encap segs fd00:99::1 dev eth1
";

/// Addresses that packets are drawn from: hosts of every network above, and the odd ones.
const ADDRESSES: [&str; 62] = [
    "10.1.0.2",
    "10.1.0.3",
    "10.1.77.7",
    "10.2.0.2",
    "10.2.0.9",
    "10.3.0.2",
    "10.3.0.3",
    "10.3.0.4",
    "10.4.0.2",
    "10.4.1.1",
    "10.4.2.2",
    "10.5.0.2",
    "10.6.0.2",
    "10.7.0.2",
    "10.8.1.1",
    "10.8.2.1",
    "10.8.3.1",
    "10.9.0.2",
    "10.10.0.2",
    "10.1.0.1",
    "10.3.0.1",
    "10.1.255.255",
    "192.0.2.1",
    "224.0.0.5",
    "255.255.255.255",
    "127.0.0.1",
    "0.0.0.0",
    "10.4.9.9",
    "10.3.9.9",
    "10.1.9.9",
    "fd00:1::2",
    "fd00:1::3",
    "fd00:1::77",
    "fd00:2::2",
    "fd00:2::9",
    "fd00:3::2",
    "fd00:3::3",
    "fd00:3::4",
    "fd00:4::2",
    "fd00:4::11",
    "fd00:4::22",
    "fd00:5::2",
    "fd00:6::2",
    "fd00:7::2",
    "fd00:8:1::1",
    "fd00:8:2::1",
    "fd00:8:3::1",
    "fd00:9::2",
    "fd00:1::1",
    "fd00:3::1",
    "2001:db8::1",
    "ff02::1",
    "ff0e::7",
    "::1",
    "::",
    "fe80::1",
    "::ffff:10.1.0.2",
    "fd00:4::99",
    "fd00:3::99",
    "fd00:1::99",
    "fd00:2::99",
    "fd00:3::98",
];

fn ip(address: &str) -> IpAddr {
    address.parse().expect(address)
}

/// The interface index in the namespace of this thread.
fn index(name: &str) -> u32 {
    if_nametoindex(name).expect(name)
}

/// Puts this thread into a fresh network namespace and sets it up.
fn build_namespace() {
    unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace needs root: cargo xtask test");
    for key in ["ipv4/conf/all", "ipv6/conf/all"] {
        fs::write(format!("/proc/sys/net/{key}/forwarding"), "1").unwrap();
    }
    for line in IP.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let family = if line.contains("fd00") && !line.starts_with("route add 10.") {
            "-6"
        } else {
            "-4"
        };
        let mut command = Command::new("ip");
        let done = command
            .arg(family)
            .args(line.split_whitespace())
            .output()
            .expect("ip runs");
        assert!(
            done.status.success(),
            "ip {line}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
    for family in ["ipv4", "ipv6"] {
        fs::write(format!("/proc/sys/net/{family}/conf/off0/forwarding"), "0").unwrap();
    }
    fs::write("/proc/sys/net/ipv6/conf/strict0/disable_ipv6", "1").unwrap();
    for (port, address) in NEIGHBOURS {
        add_neighbour(port, address);
    }
}

fn add_neighbour(port: &str, address: &str) {
    let mut ip = Command::new("ip");
    ip.args(["neighbour", "add", address, "dev", port, "nud", "permanent"]);
    if !port.starts_with("fab") {
        ip.args(["lladdr", "02:00:00:00:00:99"]);
    }
    let done = ip.output().expect("ip runs");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{ip:?}: {errors}");
}

fn model(route_mtu: u32) -> Model {
    let mut model = Model::default();
    for (slot, (name, layer, _, rp_filter, forwarding)) in PORTS.into_iter().enumerate() {
        let slot = slot as u32 + 1;
        let port = Port {
            slot,
            link_layer: layer as u8,
            rp_filter,
            ipv6_off: (name == "strict0") as u8,
            reserved: 0,
        };
        model.ports.insert(index(name), port);
        if !forwarding {
            model.forwarding_off.insert(index(name));
        }
        // TUN devices have no link header of their own.
        let (mtu, header) = match name {
            "fab0" | "fab1" => (2044, 0),
            "bare0" => (1500, 0),
            "loose0" => (9000, 14),
            _ => (1500, 14),
        };
        model.frame_limits.insert(index(name), mtu + header);
    }
    model.host = Host {
        smallest_route_mtu: route_mtu,
        ipv6_forwarding: 1,
        update_priority: 1,
        held: 0,
        own: 0,
    };
    for own in [
        "10.1.0.1",
        "10.3.0.1",
        "fd00:1::1",
        "fd00:3::1",
        "127.0.0.1",
        "::1",
    ] {
        let (family, address) = address(ip(own));
        let own = LocalAddress {
            family: family as u32,
            address,
        };
        model.host.own |= own.bit();
        model.local.insert(own);
    }
    let next_hop = |(_, to)| {
        let (family, address) = address(ip(to));
        NextHop {
            family: family as u32,
            address,
        }
    };
    model.neighbours = Some(NEIGHBOURS.into_iter().map(next_hop).collect());
    model.point_to_point = ["fab0", "fab1"].map(index).into();
    let via = |name: &str, gateway: Option<&str>, mtu| To::Via {
        ifindex: index(name),
        gateway: gateway.map(ip),
        mtu,
    };
    let mut add = |prefix: &str, length, to| {
        model.routes.push(Entry {
            prefix: ip(prefix),
            length,
            to,
        });
    };
    for own in ["10.1.0.1", "10.3.0.1", "10.1.255.255", "10.3.255.255"] {
        add(own, 32, To::Local);
    }
    for own in ["fd00:1::1", "fd00:3::1", "fd00:1::", "fd00:3::"] {
        add(own, 128, To::Local);
    }
    add("10.1.0.0", 16, via("fab0", None, 2044));
    add("10.2.0.0", 16, via("fab1", None, 2044));
    add("10.3.0.0", 16, via("eth0", None, 1500));
    add("10.4.0.0", 16, via("eth0", Some("10.3.0.9"), 1500));
    add("10.5.0.0", 16, via("eth1", None, 600));
    add("10.6.0.0", 16, via("strange0", None, 1500));
    add("10.7.0.0", 16, via("bare0", None, 1500));
    for refusing in ["10.8.1.0", "10.8.2.0", "10.8.3.0"] {
        add(refusing, 24, To::Refused);
    }
    // The outer IPv6 header and the segment routing header take 40 + 24 bytes.
    add("10.9.0.0", 16, To::Encapsulated { mtu: 1500 - 64 });
    add("10.10.0.0", 16, via("eth0", Some("fd00:3::9"), 1500));
    add("fd00:1::", 64, via("fab0", None, 2044));
    add("fd00:2::", 64, via("fab1", None, 2044));
    add("fd00:3::", 64, via("eth0", None, 1500));
    add("fd00:4::", 64, via("eth0", Some("fd00:3::9"), 1500));
    add("fd00:5::", 64, via("eth1", None, 1280));
    add("fd00:6::", 64, via("strange0", None, 1500));
    add("fd00:7::", 64, via("bare0", None, 1500));
    for refusing in ["fd00:8:1::", "fd00:8:2::", "fd00:8:3::"] {
        add(refusing, 64, To::Refused);
    }
    add("fd00:9::", 64, To::Encapsulated { mtu: 1500 - 64 });
    model
}

/// What the library did with a frame.
struct Ours {
    verdict: Verdict,
    frame: Vec<u8>,
    priority: u32,
    counters: BTreeMap<u32, PortCounters>,
}

type Library = fn(&mut Frame<'_>, &Model) -> Verdict;

fn run_library(library: Library, model: &Model, packet: &Generated) -> Ours {
    let mut buffer = vec![0; HEADROOM];
    buffer.extend(&packet.frame);
    let mut frame = Frame::new(&mut buffer, packet.ifindex);
    frame.for_this_host = packet.for_this_host;
    frame.gso_size = packet.gso_size;
    // The test-run's superpackets have a segment size and no kind.
    frame.gso_resizable = false;
    model.counters.borrow_mut().clear();
    let verdict = library(&mut frame, model);
    let counters = model.counters.borrow().clone();
    Ours {
        verdict,
        frame: frame.data().to_vec(),
        priority: frame.priority,
        counters,
    }
}

fn action(verdict: Verdict) -> i32 {
    match verdict {
        Verdict::HandUp(_) => TC_ACT_UNSPEC,
        Verdict::Drop(_) => TC_ACT_SHOT,
        Verdict::Forward(_) => TC_ACT_REDIRECT,
    }
}

/// A packet that fits the way it goes, and whose source is reached through a port it would not fit:
/// the helper says so, and it is no reason to doubt the source.
fn longer_than_the_way_back() -> Generated {
    let packet = Ip::udp(ip("10.3.0.2"), ip("10.1.0.2"), (7, 7), &[5; 1800]);
    let (_, layer, mac, ..) = PORTS[LOOSE];
    let mut frame = link_header(layer, mac, 0x0800);
    frame.extend(packet.bytes());
    Generated {
        ifindex: index(PORTS[LOOSE].0),
        layer,
        frame,
        gso_size: 0,
        for_this_host: true,
    }
}

/// The outcome of comparing many packets.
#[derive(Default)]
struct Comparison {
    compared: usize,
    /// Frames that the test-run itself refuses (an IP ethertype without a whole IP header).
    refused: usize,
    mismatches: Vec<String>,
    verdicts: BTreeMap<String, usize>,
}

fn compare(library: Library, packets: usize, seed: u64) -> Comparison {
    let mut ebpf = datapath::load(OBJECT).expect("the program loads");
    let mut maps = Maps::of(&mut ebpf).unwrap();
    let mut model = model(u32::MAX);
    for (ifindex, port) in &model.ports {
        maps.set_port(*ifindex, *port).unwrap();
    }
    maps.set_addresses(model.local.iter().copied().collect())
        .unwrap();
    let program: &SchedClassifier = datapath::ingress(&mut ebpf).unwrap();
    let program = program.fd().unwrap().as_fd().try_clone_to_owned().unwrap();

    let mut sources: Vec<_> = PORTS
        .iter()
        .filter(|p| p.0 != "bare0")
        .map(|&(name, layer, mac, ..)| Source {
            ifindex: index(name),
            layer,
            mac,
        })
        .collect();
    // The roads of the gateway weigh more than the odd ports.
    sources.extend_from_within(..1);
    sources.extend_from_within(2..4);
    sources.push(Source {
        ifindex: index("strange0"),
        layer: LinkLayer::Ethernet,
        mac: [2, 0, 0, 0, 0, 6],
    });
    let mut generator = Generator::new(seed, sources, ADDRESSES.iter().map(|a| ip(a)).collect());

    // Kernels before 6.13 don't know the flag.
    let probe = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 6, 0, 0];
    let flags = match test_run::run(program.as_fd(), &probe, index("eth0"), 0, CHECKSUM_COMPLETE) {
        Ok(_) => CHECKSUM_COMPLETE,
        Err(_) => 0,
    };
    let mut before: BTreeMap<u32, PortCounters> = (0..=PORTS.len() as u32)
        .map(|slot| (slot, maps.counters(slot).unwrap()))
        .collect();
    let mut result = Comparison::default();
    while result.compared < packets {
        // Half of the packets meet a route with an MTU of its own, some a host without IPv6.
        let route_mtu = if result.compared % 2000 < 1000 {
            u32::MAX
        } else {
            ROUTE_MTU
        };
        let ipv6_forwarding = u32::from(result.compared % 500 < 480);
        model.host = Host {
            smallest_route_mtu: route_mtu,
            ipv6_forwarding,
            update_priority: u32::from(result.compared % 300 < 200),
            held: u32::from(result.compared % 700 > 690),
            own: model.host.own,
        };
        maps.set_host(model.host).unwrap();

        let packet = if result.compared % 200 == 0 {
            longer_than_the_way_back()
        } else {
            generator.frame()
        };
        let ours = run_library(library, &model, &packet);
        // Two sums that the test-run asks for in vain: it takes 14 bytes for a link header that a
        // bare frame has not, and it looks at a sum that the kernel gave up when it cut padding.
        let unsummed = packet.layer == LinkLayer::None || is_trimmed(&packet, &ours);
        let sum = if unsummed { 0 } else { flags };
        let theirs = test_run::run(
            program.as_fd(),
            &packet.frame,
            packet.ifindex,
            packet.gso_size,
            sum,
        );
        let theirs = match theirs {
            Ok(theirs) => theirs,
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                result.refused += 1;
                continue;
            }
            Err(error) => {
                result.mismatches.push(format!("{error} on {packet:02x?}"));
                result.compared += 1;
                continue;
            }
        };
        let mut moved = BTreeMap::new();
        for (slot, old) in &mut before {
            let new = maps.counters(*slot).unwrap();
            if new != *old {
                moved.insert(*slot, difference(&new, old));
                *old = new;
            }
        }
        let same = theirs.action == action(ours.verdict)
            && theirs.frame == ours.frame
            && theirs.priority == ours.priority
            && moved == ours.counters;
        if !same {
            result.mismatches.push(format!(
                "{packet:02x?}\n  library {:?} {:02x?} {}\n  program {} {:02x?} {}",
                ours.verdict,
                ours.frame,
                brief(&ours.counters),
                theirs.action,
                theirs.frame,
                brief(&moved)
            ));
        }
        *result
            .verdicts
            .entry(describe(&packet, ours.verdict))
            .or_default() += 1;
        result.compared += 1;
    }
    result
}

fn difference(new: &PortCounters, old: &PortCounters) -> PortCounters {
    let mut difference = *new;
    for (d, o) in difference.as_array_mut().iter_mut().zip(old.as_array()) {
        d.packets -= o.packets;
        d.bytes -= o.bytes;
    }
    difference
}

/// The counters that moved, without the many that did not.
fn brief(rows: &BTreeMap<u32, PortCounters>) -> String {
    let text = format!("{rows:?}");
    let moved = |part: &&str| part.contains("packets: ") && !part.contains("packets: 0");
    text.split("}, ")
        .filter(moved)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Whether padding was cut: the frame is shorter by more than its link header became.
fn is_trimmed(packet: &Generated, ours: &Ours) -> bool {
    let header = |layer| match layer {
        LinkLayer::None => 0,
        LinkLayer::Ethernet => 14,
        LinkLayer::Ipoib => 24,
    };
    let Verdict::Forward(Forward { ifindex, .. }) = ours.verdict else {
        return false;
    };
    let out = PORTS.iter().find(|p| index(p.0) == ifindex).map(|p| p.1);
    let before = header(packet.layer);
    let after = match (packet.layer, out) {
        (LinkLayer::Ipoib, Some(LinkLayer::Ethernet)) => 14,
        _ => before,
    };
    packet.frame.len() - before > ours.frame.len() - after
}

/// A verdict with its road, to see that each was taken.
fn describe(packet: &Generated, verdict: Verdict) -> String {
    let layer = |ifindex: u32| {
        PORTS
            .iter()
            .find(|p| index(p.0) == ifindex)
            .map_or("?", |p| p.1.name())
    };
    match verdict {
        Verdict::Forward(Forward { ifindex, .. }) => {
            format!("forward {} to {}", layer(packet.ifindex), layer(ifindex))
        }
        Verdict::HandUp(reason) => format!("hand_up {}", reason.name()),
        Verdict::Drop(reason) => format!("drop {}", reason.name()),
    }
}

fn in_namespace<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::spawn(move || {
        build_namespace();
        work()
    })
    .join()
    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What a test-run can't bring about: the kernel running out of memory half-way.
const OUT_OF_REACH: [Reason; 1] = [Reason::RewriteFailed];

#[test]
fn the_library_and_the_loaded_program_agree_on_every_packet() {
    let result = in_namespace(|| compare(|frame, model| ingress(frame, model), PACKETS, 7));
    println!(
        "compared {}, refused {}: {:#?}",
        result.compared, result.refused, result.verdicts
    );
    assert_eq!(
        result.mismatches.len(),
        0,
        "first: {}",
        result.mismatches[0]
    );
    assert!(result.compared >= PACKETS);
    for reason in Reason::ALL
        .into_iter()
        .filter(|r| !OUT_OF_REACH.contains(r))
    {
        let hits = result
            .verdicts
            .get(&format!("hand_up {}", reason.name()))
            .copied();
        assert!(
            hits.unwrap_or(0) >= 20,
            "{} was reached {hits:?} times only",
            reason.name()
        );
    }
    for (from, to) in [
        ("ipoib", "ethernet"),
        ("ipoib", "none"),
        ("ethernet", "ipoib"),
        ("ethernet", "ethernet"),
        ("ethernet", "none"),
        ("none", "ethernet"),
        ("none", "ipoib"),
    ] {
        let hits = result
            .verdicts
            .get(&format!("forward {from} to {to}"))
            .copied();
        assert!(
            hits.unwrap_or(0) >= 50,
            "{from} to {to} was taken {hits:?} times only"
        );
    }
}

/// A test of the test: faults put into the library on purpose are found.
#[test]
fn a_library_broken_on_purpose_is_caught() {
    const BROKEN: [(&str, Library); 6] = [
        ("forgets the priority", |frame, model| {
            let verdict = ingress(frame, model);
            frame.priority = 0;
            verdict
        }),
        ("the hop limit goes down twice", |frame, model| {
            use ipoib_ebpf::packet::Packet;
            let verdict = ingress(frame, model);
            if let (Verdict::Forward(_), Some(header)) = (verdict, frame.bytes_mut::<40>(14)) {
                header[7] = header[7].wrapping_sub(1);
            }
            verdict
        }),
        ("one reason is mistaken for another", |frame, model| {
            let verdict = ingress(frame, model);
            if verdict == Verdict::HandUp(Reason::HopLimit) {
                let mut counters = model.counters.borrow_mut();
                for row in counters.values_mut() {
                    std::mem::swap(&mut row.handed_up.hop_limit, &mut row.handed_up.fragment);
                }
            }
            verdict
        }),
        ("drops what should go up", |frame, model| {
            match ingress(frame, model) {
                Verdict::HandUp(Reason::Martian) => Verdict::Drop(Reason::Martian),
                verdict => verdict,
            }
        }),
        ("counts the bytes of the changed frame", |frame, model| {
            use ipoib_ebpf::packet::Packet;
            let before = frame.len() as u64;
            let verdict = ingress(frame, model);
            let after = frame.len() as u64;
            for row in model.counters.borrow_mut().values_mut() {
                for counter in [&mut row.sent_ipv4, &mut row.sent_ipv6] {
                    if counter.packets > 0 {
                        counter.bytes = counter.bytes - before + after;
                    }
                }
            }
            verdict
        }),
        ("keeps padding", |frame, model| {
            use ipoib_ebpf::packet::{Packet, ResizeError};
            let len = frame.len();
            let verdict = ingress(frame, model);
            if let Verdict::Forward(_) = verdict {
                let kept: Result<(), ResizeError> =
                    frame.trim(len.min(frame.len()).saturating_sub(1));
                kept.unwrap();
            }
            verdict
        }),
    ];
    for (fault, library) in BROKEN {
        let result = in_namespace(move || compare(library, 2_000, 11));
        assert!(!result.mismatches.is_empty(), "not caught: {fault}");
    }
}
