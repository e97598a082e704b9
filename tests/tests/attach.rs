//! Starting: beside other programs, where something forbids it, and on what is no port. After a
//! refusal nothing is attached and nothing is pinned.

use ipoib_ebpf::tables::CachedPort;
use ipoib_ebpf::verdict::Reason;
use ipoib_tests::gateway::{Gateway, PATIENCE, Side, counters, eventually, handed_up};
use ipoib_tests::packets::{Ip, link_header};
use ipoib_tests::raw_program::Witness;
use ipoib_tests::raw_socket::RawSocket;
use ipoib_user::datapath::{Datapath, Error, Method, Options, Order};
use std::process::{Command, Output};

fn start(gateway: &Gateway, options: &Options) -> Result<Datapath, Error> {
    gateway.gateway.run(|| Datapath::start(options)).unwrap()
}

/// Starts and expects a refusal; its text.
fn refused(gateway: &Gateway, options: &Options) -> String {
    let error = match start(gateway, options) {
        Ok(_) => panic!("it started"),
        Err(error) => error,
    };
    assert!(
        !options.pin_root.exists(),
        "pins stay behind after: {error}"
    );
    for port in ["ib0", "eth0"] {
        gateway.wait_detached(port);
    }
    let text = error.to_string();
    assert!(!text.contains('\n'), "more than one line: {text}");
    text
}

/// Runs a command inside the gateway.
fn inside(gateway: &Gateway, command: &[&str]) -> Output {
    // Not `ip netns exec`: it mounts another /sys, without the bpffs.
    let output = gateway
        .gateway
        .run(|| Command::new(command[0]).args(&command[1..]).output())
        .unwrap()
        .expect("it runs");
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// One packet that takes the fast path; waits until it is through.
fn forward_one(gateway: &Gateway, datapath: &Datapath) {
    let before = counters(datapath, "ib0").forwarded_ipv4.packets;
    let side = Side::Fabric;
    let packet = Ip::udp(
        side.address(true),
        side.other().address(true),
        (1, 2),
        &[1; 20],
    );
    let mut frame = link_header(
        ipoib_ebpf::wire::link::LinkLayer::Ethernet,
        side.port_mac(),
        0x0800,
    );
    frame.extend(packet.bytes());
    let receiver = gateway.socket(side.other());
    gateway.socket(side).send(&frame);
    receiver
        .receive(PATIENCE, |f| f.get(23) == Some(&17))
        .expect("it arrives");
    assert_eq!(counters(datapath, "ib0").forwarded_ipv4.packets, before + 1);
}

#[test]
fn another_tcx_program_is_refused_unless_an_order_is_given() {
    let gateway = Gateway::build();
    let index = gateway.index("ib0");
    let witness = gateway
        .gateway
        .run(|| Witness::attach(index))
        .unwrap()
        .unwrap();
    let mut options = gateway.options();
    let text = refused(&gateway, &options);
    assert!(text.contains("ib0") && text.contains("witness"), "{text}");
    assert!(text.contains("--order before"), "{text}");

    options.order = Order::Before;
    let datapath = start(&gateway, &options).unwrap();
    assert_eq!(gateway.tcx("ib0"), ["ipoib_ingress", "witness"]);
    let seen = witness.packets();
    forward_one(&gateway, &datapath);
    assert_eq!(
        witness.packets(),
        seen,
        "in front, we take our packets from it"
    );
    gateway.stop(datapath);

    options.order = Order::After;
    let datapath = start(&gateway, &options).unwrap();
    assert_eq!(gateway.tcx("ib0"), ["witness", "ipoib_ingress"]);
    forward_one(&gateway, &datapath);
    eventually("behind it, it sees them", || witness.packets() == seen + 1);
    gateway.stop(datapath);
    assert_eq!(gateway.tcx("ib0"), ["witness"]);
}

#[test]
fn a_filter_of_tc_is_refused_unless_an_order_is_given() {
    let gateway = Gateway::build();
    let witness = Witness::load().unwrap();
    let pin = format!("{}-witness", gateway.options().pin_root.display());
    witness.pin(&pin).unwrap();
    inside(&gateway, &["tc", "qdisc", "add", "dev", "ib0", "clsact"]);
    let filter = [
        "tc", "filter", "add", "dev", "ib0", "ingress", "prio", "7", "bpf", "da",
    ];
    inside(&gateway, &[&filter[..], &["object-pinned", &pin]].concat());
    std::fs::remove_file(&pin).unwrap();

    let mut options = gateway.options();
    let text = refused(&gateway, &options);
    assert!(text.contains("ib0"), "{text}");

    options.order = Order::Before;
    let datapath = start(&gateway, &options).unwrap();
    let seen = witness.packets();
    forward_one(&gateway, &datapath);
    assert_eq!(witness.packets(), seen);
    gateway.stop(datapath);

    options.order = Order::After;
    let datapath = start(&gateway, &options).unwrap();
    assert_eq!(datapath.report().unwrap()[0].method, Method::Clsact);
    forward_one(&gateway, &datapath);
    eventually("behind it, it sees them", || witness.packets() == seen + 1);
    gateway.stop(datapath);
    let filters = inside(&gateway, &["tc", "filter", "show", "dev", "ib0", "ingress"]);
    let filters = String::from_utf8_lossy(&filters.stdout).into_owned();
    assert!(
        filters.contains("pref 7") && !filters.contains("name ipoib_ingress"),
        "{filters}"
    );
}

/// The road of kernels before 6.6, taken here by standing behind a filter: what must go up goes on
/// to later filters there too.
#[test]
fn a_clsact_filter_hands_on_to_the_next_one() {
    let gateway = Gateway::build();
    let (first, last) = (Witness::load().unwrap(), Witness::load().unwrap());
    inside(&gateway, &["tc", "qdisc", "add", "dev", "ib0", "clsact"]);
    for (witness, priority) in [(&first, "7"), (&last, "40000")] {
        let pin = format!("{}-{priority}", gateway.options().pin_root.display());
        witness.pin(&pin).unwrap();
        let filter = [
            "tc", "filter", "add", "dev", "ib0", "ingress", "prio", priority,
        ];
        inside(
            &gateway,
            &[&filter[..], &["bpf", "da", "object-pinned", &pin]].concat(),
        );
        std::fs::remove_file(&pin).unwrap();
        if priority == "7" {
            continue;
        }
        inside(
            &gateway,
            &[
                "tc", "filter", "del", "dev", "ib0", "ingress", "prio", priority,
            ],
        );
    }
    let options = Options {
        order: Order::After,
        ..gateway.options()
    };
    let datapath = start(&gateway, &options).unwrap();
    let pin = format!("{}-last", options.pin_root.display());
    last.pin(&pin).unwrap();
    let filter = [
        "tc", "filter", "add", "dev", "ib0", "ingress", "prio", "40000", "bpf", "da",
    ];
    inside(&gateway, &[&filter[..], &["object-pinned", &pin]].concat());
    std::fs::remove_file(&pin).unwrap();
    let (before_us, behind_us) = (first.packets(), last.packets());
    forward_one(&gateway, &datapath);
    assert_eq!(last.packets(), behind_us);
    eventually("the first filter sees it", || {
        first.packets() == before_us + 1
    });
    // A hop limit of 1 goes up, through the last filter.
    let side = Side::Fabric;
    let packet = Ip {
        hop_limit: 1,
        ..Ip::udp(
            side.address(true),
            side.other().address(true),
            (1, 2),
            &[1; 20],
        )
    };
    let mut frame = link_header(
        ipoib_ebpf::wire::link::LinkLayer::Ethernet,
        side.port_mac(),
        0x0800,
    );
    frame.extend(packet.bytes());
    gateway.socket(side).send(&frame);
    eventually("it went up", || {
        handed_up(&datapath, "ib0", Reason::HopLimit).packets == 1
    });
    eventually("past the last filter", || last.packets() == behind_us + 1);
}

/// Netfilter, IPsec and foreign mark rules would be passed by: each is named, with the remedy.
#[test]
fn what_the_fast_path_would_pass_by_forbids_the_start() {
    let obstacles: [(&[&[&str]], &[&str]); 6] = [
        (
            &[
                &["nft", "add", "table", "inet", "guard"],
                &[
                    "nft",
                    "add chain inet guard onward { type filter hook forward priority 0; }",
                ],
                &["nft", "add rule inet guard onward ip daddr 192.0.2.1 drop"],
            ],
            &["guard", "onward", "forward"],
        ),
        (
            &[
                &["nft", "add", "table", "ip", "nat"],
                &[
                    "nft",
                    "add chain ip nat post { type nat hook postrouting priority 100; }",
                ],
                &["nft", "add rule ip nat post oifname eth0 masquerade"],
            ],
            &["nat", "post"],
        ),
        (
            &[
                &["nft", "add", "table", "netdev", "edge"],
                &[
                    "nft",
                    "add chain netdev edge in { type filter hook ingress device eth0 priority 0; }",
                ],
                &["nft", "add rule netdev edge in ip saddr 192.0.2.9 drop"],
            ],
            &["edge", "eth0"],
        ),
        (
            &[&[
                "ip",
                "xfrm",
                "policy",
                "add",
                "src",
                "10.1.0.0/16",
                "dst",
                "10.2.0.0/16",
                "dir",
                "fwd",
                "tmpl",
                "proto",
                "esp",
                "mode",
                "tunnel",
            ]],
            &["IPsec"],
        ),
        (
            &[&["ip", "rule", "add", "fwmark", "0x7", "lookup", "100"]],
            &["fwmark", "0x7"],
        ),
        (
            &[&["ip", "-6", "rule", "add", "fwmark", "0x8", "lookup", "100"]],
            &["fwmark", "0x8"],
        ),
    ];
    for (commands, words) in obstacles {
        let gateway = Gateway::build();
        for command in commands {
            inside(&gateway, command);
        }
        let text = refused(&gateway, &gateway.options());
        for word in words {
            assert!(text.contains(word), "no {word} in: {text}");
        }
    }
    // Rules that ours would follow, and hooks that forwarded packets never meet, don't.
    let gateway = Gateway::build();
    for command in [
        &["ip", "rule", "add", "from", "10.77.0.0/16", "lookup", "100"][..],
        &["nft", "add", "table", "inet", "host"],
        &[
            "nft",
            "add chain inet host in { type filter hook input priority 0; }",
        ],
        &["nft", "add rule inet host in tcp dport 22 accept"],
    ] {
        inside(&gateway, command);
    }
    start(&gateway, &gateway.options()).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn what_is_no_port_is_named() {
    let gateway = Gateway::build();
    for command in [
        &["link", "add", "br0", "type", "bridge"][..],
        &[
            "link", "add", "slave0", "type", "veth", "peer", "name", "slave1",
        ],
        &["link", "set", "slave0", "master", "br0"],
    ] {
        gateway.gateway.ip(command).unwrap();
    }
    for (ports, words) in [
        (&[][..], "--ib"),
        (&["ib0", "nosuch0"], "nosuch0"),
        (&["ib0", "eth0", "ib0"], "twice"),
        (&["ib0", "lo"], "lo"),
        (&["ib0", "slave0"], "br0"),
    ] {
        let mut options = gateway.options();
        options.ports = ports.iter().map(|&p| p.to_owned()).collect();
        let text = refused(&gateway, &options);
        assert!(text.contains(words), "no {words} in: {text}");
    }
}

#[test]
fn a_second_datapath_is_refused_by_its_pins_and_by_its_ports() {
    let (gateway, datapath) = Gateway::start();
    let same = gateway.options();
    let Err(Error::AlreadyRunning { path }) = start(&gateway, &same) else {
        panic!("it started twice");
    };
    assert_eq!(path, same.pin_root);
    let mut elsewhere = gateway.options();
    elsewhere.pin_root.as_mut_os_string().push("-second");
    let Err(Error::PortTaken(programs)) = start(&gateway, &elsewhere) else {
        panic!("it started twice");
    };
    assert!(programs.iter().any(|p| p.ours), "{programs:?}");
    // The refused ones took nothing away.
    forward_one(&gateway, &datapath);
    gateway.stop(datapath);
    start(&gateway, &elsewhere).unwrap_or_else(|error| panic!("{error}"));
}

/// Two ports whose interface indices share a row of the cache are told apart.
#[test]
fn ports_that_share_a_cache_row_are_told_apart() {
    let gateway = Gateway::build();
    for (name, index) in [("ib2", 1000), ("eth2", 1000 + CachedPort::ROWS)] {
        let (peer, index) = (format!("{name}p"), index.to_string());
        gateway
            .gateway
            .ip(&[
                "link",
                "add",
                name,
                "index",
                &index,
                "address",
                "02:00:00:00:03:01",
                "type",
                "veth",
                "peer",
                "name",
                &peer,
            ])
            .unwrap();
        gateway.gateway.ip(&["link", "set", name, "up"]).unwrap();
        gateway.gateway.ip(&["link", "set", &peer, "up"]).unwrap();
    }
    let options = Options {
        ports: ["ib0", "eth0", "ib2", "eth2"].map(str::to_owned).to_vec(),
        ..gateway.options()
    };
    let datapath = start(&gateway, &options).unwrap_or_else(|error| panic!("{error}"));
    for (peer, frames) in [("ib2p", 3), ("eth2p", 5)] {
        let socket = gateway.gateway.run(|| RawSocket::open(peer));
        let socket = socket.unwrap().unwrap();
        let mut frame = [2, 0, 0, 0, 3, 1].to_vec();
        // An ethertype for experiments, which nobody else sends (IEEE 802).
        frame.extend([2, 0, 0, 0, 3, 2, 0x88, 0xb5]);
        frame.resize(64, 0);
        for _ in 0..frames {
            socket.send(&frame);
        }
    }
    for (port, frames) in [("ib2", 3), ("eth2", 5)] {
        let counted = || handed_up(&datapath, port, Reason::NotCarriedByIpoib).packets;
        eventually("all are counted", || counted() >= frames);
        assert_eq!(counted(), frames, "{port}");
    }
    forward_one(&gateway, &datapath);
}

/// The chain of ports of a datapath may be longer than two, in any mix.
#[test]
fn several_ports_each_way() {
    let gateway = Gateway::build();
    for name in ["ib2", "eth2"] {
        let peer = format!("{name}p");
        gateway
            .gateway
            .ip(&["link", "add", name, "type", "veth", "peer", "name", &peer])
            .unwrap();
        gateway.gateway.ip(&["link", "set", name, "up"]).unwrap();
    }
    let options = Options {
        ports: ["ib0", "ib2", "eth0", "eth2"].map(str::to_owned).to_vec(),
        ..gateway.options()
    };
    let datapath = start(&gateway, &options).unwrap_or_else(|error| panic!("{error}"));
    forward_one(&gateway, &datapath);
    let names: Vec<_> = datapath
        .report()
        .unwrap()
        .into_iter()
        .map(|port| port.link.name)
        .collect();
    assert_eq!(names, options.ports);
}
