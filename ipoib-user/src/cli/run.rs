//! `ipoib run`: the daemon on real ports.

use super::{Failure, check, say, warn};
use crate::config;
use crate::datapath::{Datapath, Error, Options, Order, PortReport};
use crate::host::{self, Changes, Obstacle};
use crate::show::{PortRow, VERSION, port_lines};
use ipoib_ebpf::tables::PortCounters;
use ipoib_ebpf::wire::link::LinkLayer;
use serde::Serialize;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How often to look for what packets would pass by: none of it is announced by rtnetlink.
const WATCH: Duration = Duration::from_secs(1);
/// Let a burst of changes (a routing daemon, an interface with many addresses) end before the host
/// is read again.
const SETTLE: Duration = Duration::from_millis(5);

/// Run the datapath on ports of this host until stopped
///
/// Packets between the ports take the fast path wherever the host's own routing sends them; all
/// others stay with the kernel. While netfilter rules, IPsec policies or foreign mark rules exist
/// that accelerated packets would pass by, everything stays with the kernel. Ctrl-C or SIGTERM takes
/// everything off again.
#[derive(clap::Args)]
#[command(after_help = "Examples: ipoib run --ib ib0 --eth eth0\n          \
    ipoib run --config /etc/ipoib/config.toml\n\n\
    Exit codes: 0 stopped, 2 wrong use, 3 this host can't (the error says why).")]
pub struct Args {
    /// A port on the fabric side; give it once a port
    #[arg(long = "ib", value_name = "IFNAME")]
    ib: Vec<String>,
    /// A port on the Ethernet side; give it once a port
    #[arg(long = "eth", value_name = "IFNAME")]
    eth: Vec<String>,
    /// Take ports, order and pin root from this file instead; `ipoib check` tells what is wrong in it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ib", "eth", "order", "pin_root"])]
    config: Option<PathBuf>,
    /// Where to stand when another program is attached to a port
    #[arg(long, value_enum, default_value = "refuse")]
    order: Order,
    /// Directory on a bpffs for maps and programs
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/ipoib")]
    pin_root: PathBuf,
    /// One JSON object a line: when started, held, resumed, and with the counters when stopped
    #[arg(long)]
    json: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::new(error.exit_code(), &error)
    }
}

pub fn main(args: Args) -> Result<ExitCode, Failure> {
    let Some(options) = options(&args)? else {
        return Ok(ExitCode::from(2));
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(3, format_args!("starting the runtime: {error}")))?;
    runtime.block_on(run(args, options))
}

/// What the command line or the file asks for; `None` where the file is wrong, which has been said.
fn options(args: &Args) -> Result<Option<Options>, Failure> {
    let Some(file) = &args.config else {
        return Ok(Some(Options {
            ports: args.ib.iter().chain(&args.eth).cloned().collect(),
            order: args.order,
            pin_root: args.pin_root.clone(),
        }));
    };
    let (report, plan) = config::plan(&config::read(file)?);
    for line in check::lines(file, &report) {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
    Ok(plan.map(|plan| Options {
        ports: plan.ports,
        order: plan.order,
        pin_root: plan
            .pin_root
            .map_or_else(|| args.pin_root.clone(), PathBuf::from),
    }))
}

async fn run(args: Args, options: Options) -> Result<ExitCode, Failure> {
    let failed = |error| Failure::new(3, format_args!("watching for signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
    // Subscribed before the host is first read, so that no change falls between.
    let mut changes = Changes::new().map_err(Error::from)?;
    let mut datapath = Datapath::start(&options)?;
    let started = datapath.report()?;
    announce(&started, &args.ib, &options, args.json)?;
    let mut watch = interval(WATCH);
    watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            _ = hang_up.recv() => break,
            _ = watch.tick() => {
                if let Some(obstacles) = datapath.watch()? {
                    held(obstacles, args.json);
                }
            }
            changed = changes.next() => {
                changed.map_err(Error::from)?;
                sleep(SETTLE).await;
                let before = datapath.report()?;
                datapath.refresh()?;
                lost_ports(&before, &datapath.report()?);
            }
        }
    }
    let ports = datapath.report()?;
    drop(datapath);
    if args.json {
        say(event("stopped", &ports));
    } else {
        let rows: Vec<_> = ports.iter().map(row).collect();
        // Two ports fill a line; the table of more is cut into pairs.
        for pair in rows.chunks(2) {
            say(port_lines(pair, usize::MAX).join("\n"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn announce(
    ports: &[PortReport],
    ib: &[String],
    options: &Options,
    json: bool,
) -> Result<(), Error> {
    let doubts = doubts(ports, ib)?;
    if json {
        let mut started = event("started", ports);
        started["warnings"] = json!(doubts);
        say(started);
        return Ok(());
    }
    for port in ports {
        let layer = port.link.link_layer.map_or("unknown", LinkLayer::name);
        say(format!(
            "port {}: {layer}, mtu {}, {}",
            port.link.name,
            port.link.mtu,
            port.method.name()
        ));
    }
    for doubt in doubts {
        warn(doubt);
    }
    say(format!(
        "forwarding; look at it with: bpftool map dump pinned {}/v1/maps/counters",
        options.pin_root.display()
    ));
    Ok(())
}

/// What makes it doubtful that packets will be forwarded as meant: each with the remedy.
fn doubts(ports: &[PortReport], ib: &[String]) -> Result<Vec<String>, Error> {
    let mut doubts = Vec::new();
    if ports.len() == 1 {
        doubts.push(
            "one port alone forwards nothing: name the one that packets leave by too".to_owned(),
        );
    }
    for PortReport { link, .. } in ports {
        let name = &link.name;
        if ib.contains(name) && link.link_layer != Some(LinkLayer::Ipoib) {
            doubts.push(format!(
                "port {name}: named with --ib, but it is no IPoIB device"
            ));
        }
        if !link.up {
            doubts.push(format!("port {name} is down: ip link set {name} up"));
        }
        if !host::ipv4_forwarding(name)? {
            doubts.push(format!(
                "port {name}: the host does not forward IPv4 that arrives there: sysctl -w \
                 net.ipv4.ip_forward=1"
            ));
        }
    }
    if !host::ipv6_forwarding()? {
        doubts.push(
            "the host does not forward IPv6: sysctl -w net.ipv6.conf.all.forwarding=1".to_owned(),
        );
    }
    Ok(doubts)
}

/// Says that accelerating is held, and by what, or that it goes on.
fn held(obstacles: &[Obstacle], json: bool) {
    if json {
        let object = |o: &Obstacle| json!({ "kind": o.word(), "text": o.to_string() });
        let objects: Vec<_> = obstacles.iter().map(object).collect();
        let event = if objects.is_empty() {
            "resumed"
        } else {
            "held"
        };
        say(json!({ "v": VERSION, "event": event, "obstacles": objects }));
    } else if obstacles.is_empty() {
        say("forwarding again");
    } else {
        for obstacle in obstacles {
            warn(format!(
                "the kernel forwards alone while this lasts: {obstacle}"
            ));
        }
    }
}

fn lost_ports(before: &[PortReport], now: &[PortReport]) {
    for (old, new) in before.iter().zip(now) {
        if old.present && !new.present {
            warn(format!(
                "port {} is gone; restart ipoib when it is back",
                new.link.name
            ));
        }
    }
    let any = |ports: &[PortReport]| ports.iter().any(|port| port.present);
    if any(before) && !any(now) {
        warn("no port is left, nothing is forwarded any more");
    }
}

/// A port in the stream of `--json`.
#[derive(Serialize)]
struct PortObject {
    #[serde(flatten)]
    row: PortRow,
    ifindex: u32,
    mtu: u32,
    up: bool,
    /// Whether the interface still exists.
    present: bool,
    /// `tcx` or `clsact`.
    attached: &'static str,
}

/// One line of the stream: what happened, and the ports with their counters.
fn event(event: &str, ports: &[PortReport]) -> serde_json::Value {
    let object = |port: &PortReport| PortObject {
        row: row(port),
        ifindex: port.link.ifindex,
        mtu: port.link.mtu,
        up: port.link.up,
        present: port.present,
        attached: port.method.name(),
    };
    let ports: Vec<_> = ports.iter().map(object).collect();
    json!({ "v": VERSION, "event": event, "ports": ports })
}

/// Everything that a port has counted since the start.
fn row(port: &PortReport) -> PortRow {
    PortRow::between(&PortCounters::default(), port)
}
