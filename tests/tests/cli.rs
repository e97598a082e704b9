//! The binary itself: verbs, JSON, exit codes, signals, and what a killed one leaves behind.

use ipoib_ebpf::tables::names;
use ipoib_ebpf::wire::link::LinkLayer;
use ipoib_tests::gateway::{Gateway, PATIENCE, Side, eventually};
use ipoib_tests::packets::{Ip, link_header};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::{env, fs};

/// The binary under test, built by `cargo xtask test`.
fn ipoib() -> Command {
    Command::new(env::var_os("IPOIB_BIN").expect("IPOIB_BIN: run `cargo xtask test`"))
}

fn bpftool() -> Command {
    Command::new(env::var_os("IPOIB_BPFTOOL").expect("IPOIB_BPFTOOL: run `cargo xtask test`"))
}

/// Runs the binary inside the gateway to its end.
fn run_inside(gateway: &Gateway, arguments: &[&str]) -> Output {
    gateway
        .gateway
        .run(|| ipoib().args(arguments).output())
        .unwrap()
        .unwrap()
}

/// Expects an exit code and one line of error; the line.
fn fails(output: &Output, code: i32) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(error.starts_with("error: "), "{error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    assert!(!error.contains("panicked"), "{error}");
    error
}

/// A daemon on the gateway's two ports.
struct Daemon {
    child: Child,
    lines: BufReader<Box<dyn Read>>,
    pin_root: PathBuf,
}

impl Daemon {
    fn start(gateway: &Gateway) -> (Self, Value) {
        let pin_root = gateway.options().pin_root;
        let root = pin_root.to_str().unwrap();
        let ports = ["--ib", "ib0", "--eth", "eth0"];
        Self::start_with(gateway, &[&ports[..], &["--pin-root", root]].concat())
    }

    /// One that is told by `arguments` what to do, with the gateway's own pin root.
    fn start_with(gateway: &Gateway, arguments: &[&str]) -> (Self, Value) {
        let pin_root = gateway.options().pin_root;
        let mut child = gateway
            .gateway
            .run(|| {
                ipoib()
                    .args(["run", "--json"])
                    .args(arguments)
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
            })
            .unwrap()
            .unwrap();
        let stdout: Box<dyn Read> = Box::new(child.stdout.take().unwrap());
        let mut lines = BufReader::new(stdout);
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let mut daemon = Daemon {
            child,
            lines,
            pin_root,
        };
        let started = serde_json::from_str(&line).unwrap_or_else(|_| {
            let mut error = String::new();
            daemon
                .child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut error)
                .unwrap();
            panic!("not started: {line} {error}")
        });
        (daemon, started)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits for the end; the exit code and what was still printed.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

fn send_one(gateway: &Gateway) {
    let side = Side::Fabric;
    let packet = Ip::udp(
        side.address(true),
        side.other().address(true),
        (1, 2),
        &[1; 20],
    );
    let mut frame = link_header(LinkLayer::Ethernet, side.port_mac(), 0x0800);
    frame.extend(packet.bytes());
    let receiver = gateway.socket(side.other());
    gateway.socket(side).send(&frame);
    receiver
        .receive(PATIENCE, |f| f.get(23) == Some(&17))
        .expect("it arrives");
}

#[test]
fn run_forwards_reports_and_leaves_nothing_behind() {
    let gateway = Gateway::build();
    let (daemon, started) = Daemon::start(&gateway);
    assert_eq!(started["v"], 1);
    assert_eq!(started["event"], "started");
    let names: Vec<_> = started["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| &p["name"])
        .collect();
    assert_eq!(names, ["ib0", "eth0"]);
    assert_eq!(started["ports"][0]["link_layer"], "ethernet");
    assert_eq!(
        started["warnings"],
        json!(["port ib0: named with --ib, but it is no IPoIB device"])
    );
    for _ in 0..5 {
        send_one(&gateway);
    }
    let pin_root = daemon.pin_root.clone();
    daemon.signal(Signal::SIGTERM);
    let (code, rest) = daemon.end();
    assert_eq!(code, Some(0));
    let stopped: Value = serde_json::from_str(rest.trim()).expect("one object on one line");
    assert_eq!(stopped["event"], "stopped");
    assert_eq!(stopped["ports"][0]["forwarded"]["ipv4"]["packets"], 5);
    assert_eq!(stopped["ports"][1]["sent"]["ipv4"]["packets"], 5);
    assert!(!pin_root.exists());
    let kernel = gateway.kernel_forwarded(true);
    send_one(&gateway);
    assert_eq!(
        gateway.kernel_forwarded(true),
        kernel + 1,
        "the kernel forwards alone again"
    );
}

/// A file that is removed when the test ends.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, text: impl AsRef<[u8]>) -> Self {
        let path = env::temp_dir().join(format!("ipoib-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        TempFile(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn run_takes_everything_from_a_file() {
    let gateway = Gateway::build();
    let pin_root = gateway.options().pin_root;
    let text = format!(
        "[daemon]\npin_root = {:?}\n[ports.ib0]\n[ports.eth0]\n",
        pin_root.to_str().unwrap()
    );
    let file = TempFile::new("run.toml", &text);
    let (daemon, started) = Daemon::start_with(&gateway, &["--config", file.path()]);
    assert_eq!(started["ports"][0]["name"], "ib0");
    assert_eq!(started["ports"][1]["name"], "eth0");
    assert!(pin_root.join("v1/maps/counters").exists());
    for _ in 0..5 {
        send_one(&gateway);
    }
    daemon.signal(Signal::SIGTERM);
    let (code, rest) = daemon.end();
    assert_eq!(code, Some(0));
    let stopped: Value = serde_json::from_str(rest.trim()).unwrap();
    assert_eq!(stopped["ports"][0]["forwarded"]["ipv4"]["packets"], 5);
    assert!(!pin_root.exists());
}

#[test]
fn run_refuses_a_file_that_asks_for_more() {
    let text = "[ports.ib0]\n[ports.eth0]\n[[policies]]\nname = \"x\"\n";
    let file = TempFile::new("more.toml", text);
    let output = ipoib()
        .args(["run", "--config", file.path()])
        .output()
        .unwrap();
    let error = fails(&output, 2);
    assert!(
        error.contains(":3:1: policies: policies are checked but not applied yet"),
        "{error}"
    );
    let both = ipoib()
        .args(["run", "--ib", "ib0", "--config", file.path()])
        .output()
        .unwrap();
    assert_eq!(both.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&both.stderr).contains("cannot be used with"));
}

#[test]
fn check_tells_all_errors_and_the_exit_code() {
    let check = |arguments: &[&str]| ipoib().arg("check").args(arguments).output().unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples");
    for example in ["gateway.toml", "dual-homed-node.toml"] {
        let path = examples.join(example);
        let output = check(&[path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{example}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(": good: 2 ports, "), "{text}");
        assert!(output.stderr.is_empty());
    }
    let text =
        "[ports.ib0]\n[groups]\na = [\"10.1.0.1/16\"]\n[[policies]]\nname = \"x\"\nto = \"b\"\n";
    let file = TempFile::new("wrong.toml", text);
    let output = check(&[file.path()]);
    assert_eq!(output.status.code(), Some(2));
    let lines = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    let path = file.path();
    assert!(lines[0].starts_with(&format!("error: {path}:3:6: groups.a[0]: ")));
    assert!(lines[0].contains("10.1.0.0/16"));
    assert!(lines[1].starts_with(&format!("error: {path}:6:6: policies[0].to: ")));
    let output = check(&["--json", path]);
    assert_eq!(output.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["v"], 1);
    assert_eq!(report["valid"], false);
    assert_eq!(report["file"], path);
    assert_eq!(report["errors"][1]["line"], 6);
    assert_eq!(report["errors"][1]["key"], "policies[0].to");
    assert_eq!(report["warnings"], json!([]));
    assert_eq!(report["summary"]["policies"], 1);
    let error = fails(&check(&["/"]), 2);
    assert!(error.contains("is a directory"), "{error}");
    let error = fails(&check(&["/nonexistent"]), 2);
    assert!(error.contains("can't read /nonexistent"), "{error}");
    let binary = TempFile::new("binary.toml", b"\xff");
    let error = fails(&check(&[binary.path()]), 2);
    assert!(error.contains("not UTF-8"), "{error}");
}

/// A change of the host reaches the datapath without a restart.
#[test]
fn run_follows_the_host() {
    let gateway = Gateway::build();
    let (daemon, _) = Daemon::start(&gateway);
    let addresses = daemon.pin_root.join("v1/maps/addresses");
    let count = || {
        let dump = bpftool()
            .args(["-j", "map", "dump", "pinned"])
            .arg(&addresses)
            .output()
            .unwrap();
        let rows: Value = serde_json::from_slice(&dump.stdout).expect("bpftool prints JSON");
        rows.as_array().unwrap().len()
    };
    let before = count();
    gateway
        .gateway
        .ip(&["address", "add", "10.1.0.44/24", "dev", "ib0"])
        .unwrap();
    eventually("the address is known", || count() == before + 1);
    gateway
        .gateway
        .ip(&["address", "del", "10.1.0.44/24", "dev", "ib0"])
        .unwrap();
    eventually("the address is forgotten", || count() == before);
    let host = daemon.pin_root.join("v1/maps/host");
    let smallest = || {
        let dump = bpftool()
            .args(["-j", "map", "dump", "pinned"])
            .arg(&host)
            .output()
            .unwrap();
        let rows: Value = serde_json::from_slice(&dump.stdout).expect("bpftool prints JSON");
        rows[0]["formatted"]["value"]["smallest_route_mtu"].as_u64()
    };
    gateway
        .gateway
        .ip(&["route", "add", "10.66.0.0/16", "dev", "eth0", "mtu", "1234"])
        .unwrap();
    eventually("the route's MTU is known", || smallest() == Some(1234));
    // A port that goes away is said and survived.
    gateway.gateway.ip(&["link", "del", "eth0"]).unwrap();
    gateway
        .gateway
        .ip(&["link", "set", "ib0", "mtu", "1999"])
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    daemon.signal(Signal::SIGINT);
    let (code, rest) = daemon.end();
    assert_eq!(code, Some(0));
    let stopped: Value = serde_json::from_str(rest.trim()).unwrap();
    assert_eq!(stopped["ports"][0]["mtu"], 1999);
    assert_eq!(stopped["ports"][1]["present"], false);
}

#[test]
fn bpftool_reads_the_pins_with_names() {
    let gateway = Gateway::build();
    let (daemon, _) = Daemon::start(&gateway);
    send_one(&gateway);
    let show = |arguments: &[&str], path: &str| -> Value {
        let path = daemon.pin_root.join("v1").join(path);
        let output = bpftool()
            .arg("-j")
            .args(arguments)
            .arg(path)
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
            panic!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr))
        })
    };
    let program = show(&["prog", "show", "pinned"], "progs/ingress");
    assert_eq!(program["name"], names::INGRESS);
    assert_eq!(program["type"], "sched_cls");
    let ports = show(&["map", "dump", "pinned"], "maps/ports");
    let rows = ports.as_array().unwrap();
    assert_eq!(rows.len(), 2);
    let row = rows
        .iter()
        .find(|r| r["formatted"]["value"]["slot"] == 1)
        .unwrap();
    assert_eq!(row["formatted"]["value"]["link_layer"], 1);
    let counters = show(&["map", "dump", "pinned"], "maps/counters");
    let per_cpu = counters[1]["formatted"]["values"].as_array().unwrap();
    let packets = |field: &str| -> u64 {
        per_cpu
            .iter()
            .map(|cpu| cpu["value"][field]["packets"].as_u64().unwrap())
            .sum()
    };
    assert_eq!(packets("forwarded_ipv4"), 1);
    let reasons = &per_cpu[0]["value"]["handed_up"];
    assert!(reasons["hop_limit"]["packets"].is_u64(), "{reasons}");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.end().0, Some(0));
}

#[test]
fn what_makes_forwarding_doubtful_is_said_at_the_start() {
    let gateway = Gateway::build();
    for (key, value) in [
        ("net.ipv4.conf.eth0.forwarding", "0"),
        ("net.ipv6.conf.all.forwarding", "0"),
    ] {
        gateway.gateway.sysctl(key, value).unwrap();
    }
    gateway
        .gateway
        .ip(&["link", "set", "eth0", "down"])
        .unwrap();
    let pin_root = gateway.options().pin_root;
    let mut child = gateway
        .gateway
        .run(|| {
            ipoib()
                .args(["run", "--eth", "eth0", "--pin-root"])
                .arg(&pin_root)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
        })
        .unwrap()
        .unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    while !line.contains("forwarding; look at it") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended");
    }
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    let mut warnings = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut warnings).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    for words in [
        "one port alone",
        "eth0 is down: ip link set eth0 up",
        "sysctl -w net.ipv4.ip_forward=1",
        "sysctl -w net.ipv6.conf.all.forwarding=1",
    ] {
        assert!(warnings.contains(words), "no {words} in: {warnings}");
    }
    assert_eq!(warnings.lines().count(), 4, "{warnings}");
}

#[test]
fn a_killed_daemon_takes_its_program_off_and_the_next_one_starts() {
    let gateway = Gateway::build();
    let (daemon, _) = Daemon::start(&gateway);
    let pin_root = daemon.pin_root.clone();
    daemon.signal(Signal::SIGKILL);
    assert_eq!(daemon.end().0, None);
    let kernel = gateway.kernel_forwarded(true);
    eventually("the kernel forwards alone", || {
        send_one(&gateway);
        gateway.kernel_forwarded(true) > kernel
    });
    assert!(pin_root.exists(), "pins outlive a kill");
    let (daemon, _) = Daemon::start(&gateway);
    daemon.signal(Signal::SIGKILL);
    daemon.end();
    let root = pin_root.to_str().unwrap();
    let detached = run_inside(&gateway, &["detach", "--json", "--pin-root", root]);
    assert_eq!(detached.status.code(), Some(0));
    let detached: Value = serde_json::from_slice(&detached.stdout).unwrap();
    assert_eq!(detached["pins"], true);
    assert!(!pin_root.exists());
    let again = run_inside(&gateway, &["detach", "--pin-root", root]);
    assert_eq!(
        String::from_utf8_lossy(&again.stdout),
        "nothing was left behind in this network namespace\n"
    );
}

/// Behind a filter of tc the datapath is a filter too, and filters outlive their process.
#[test]
fn a_killed_daemons_filter_is_removed_by_the_next_one() {
    let gateway = Gateway::build();
    let pin_root = gateway.options().pin_root;
    let tc = |arguments: &[&str]| {
        let output = gateway
            .gateway
            .run(|| Command::new("tc").args(arguments).output())
            .unwrap()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let witness = ipoib_tests::raw_program::Witness::load().unwrap();
    let pin = format!("{}-witness", pin_root.display());
    witness.pin(&pin).unwrap();
    tc(&["qdisc", "add", "dev", "ib0", "clsact"]);
    tc(&[
        "filter",
        "add",
        "dev",
        "ib0",
        "ingress",
        "prio",
        "9",
        "bpf",
        "da",
        "object-pinned",
        &pin,
    ]);
    fs::remove_file(&pin).unwrap();
    let spawn = || {
        let mut child = gateway
            .gateway
            .run(|| {
                ipoib()
                    .args([
                        "run", "--ib", "ib0", "--eth", "eth0", "--json", "--order", "after",
                    ])
                    .arg("--pin-root")
                    .arg(&pin_root)
                    .stdout(Stdio::piped())
                    .spawn()
            })
            .unwrap()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.contains("\"clsact\""), "{line}");
        child
    };
    let ours = || {
        tc(&["filter", "show", "dev", "ib0", "ingress"])
            .matches("name ipoib_ingress")
            .count()
    };
    let mut child = spawn();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(ours(), 1, "a filter outlives its process");
    let mut child = spawn();
    assert_eq!(ours(), 1, "the old one is gone, the new one is there");
    let root = pin_root.to_str().unwrap();
    let detach = |root: &str| {
        let detached = run_inside(&gateway, &["detach", "--pin-root", root]);
        String::from_utf8_lossy(&detached.stdout).into_owned()
    };
    // One that runs is spared, whatever directory is named.
    let elsewhere = format!("{root}-elsewhere");
    assert!(detach(&elsewhere).starts_with("nothing was left behind"));
    assert_eq!(ours(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    // Its pins are taken away elsewhere, as by a detach in another network namespace.
    fs::remove_dir_all(&pin_root).unwrap();
    let text = detach(root);
    assert!(text.contains("removed our filter from ib0"), "{text}");
    assert_eq!(ours(), 0);
}

#[test]
fn bad_input_is_one_line_with_the_right_exit_code() {
    let gateway = Gateway::build();
    let run = |arguments: &[&str]| run_inside(&gateway, arguments);
    assert_eq!(run(&["run", "--nonsense"]).status.code(), Some(2));
    assert_eq!(run(&[]).status.code(), Some(2));
    let error = fails(&run(&["run"]), 2);
    assert!(error.contains("--ib"), "{error}");
    let error = fails(&run(&["run", "--ib", "nosuch0"]), 2);
    assert!(error.contains("nosuch0"), "{error}");
    let error = fails(&run(&["run", "--ib", "ib0", "--eth", "ib0"]), 2);
    assert!(error.contains("ib0"), "{error}");
    let error = fails(&run(&["run", "--ib", "lo", "--eth", "eth0"]), 3);
    assert!(error.contains("lo"), "{error}");
    let error = fails(
        &run(&["run", "--ib", "ib0", "--pin-root", "/tmp/ipoib-nowhere"]),
        3,
    );
    assert!(error.contains("bpf file system"), "{error}");
    assert!(!Path::new("/tmp/ipoib-nowhere").exists());
}

#[test]
fn without_privileges_the_missing_ones_are_named() {
    let gateway = Gateway::build();
    // The binary may lie where only root can read.
    let copy = env::temp_dir().join(format!("ipoib-unprivileged-{}", std::process::id()));
    fs::copy(env::var_os("IPOIB_BIN").unwrap(), &copy).unwrap();
    let output = gateway
        .gateway
        .run(|| {
            Command::new("setpriv")
                .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
                .arg(&copy)
                .args(["run", "--ib", "ib0", "--eth", "eth0"])
                .output()
        })
        .unwrap()
        .unwrap();
    fs::remove_file(&copy).unwrap();
    let error = fails(&output, 3);
    assert!(
        error.contains("CAP_BPF") && error.contains("sudo"),
        "{error}"
    );
}

#[test]
fn a_kernel_without_btf_is_named() {
    let gateway = Gateway::build();
    let binary = env::var("IPOIB_BIN").unwrap();
    let script =
        format!("mount -t tmpfs none /sys/kernel/btf && exec {binary} run --ib ib0 --eth eth0");
    let output = gateway
        .gateway
        .run(|| {
            Command::new("unshare")
                .args(["--mount", "sh", "-c", &script])
                .output()
        })
        .unwrap()
        .unwrap();
    let error = fails(&output, 3);
    assert!(error.contains("CONFIG_DEBUG_INFO_BTF"), "{error}");
}

/// Whoever reads the output may go away.
#[test]
fn a_closed_stdout_does_not_end_the_daemon() {
    let gateway = Gateway::build();
    let (mut daemon, _) = Daemon::start(&gateway);
    let (reader, _) = std::io::pipe().unwrap();
    daemon.lines = BufReader::new(Box::new(reader));
    send_one(&gateway);
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
}

/// A rule that comes up while the daemon runs is obeyed, and its end is noticed.
#[test]
fn new_netfilter_rules_hold_the_fast_path() {
    let gateway = Gateway::build();
    let (mut daemon, _) = Daemon::start(&gateway);
    send_one(&gateway);
    let nft = |script: &str| {
        let done = gateway
            .gateway
            .run(|| Command::new("nft").arg(script).output())
            .unwrap()
            .unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    };
    let mut event = || -> Value {
        let mut line = String::new();
        daemon.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"))
    };
    nft("add table inet late
        add chain inet late onward { type filter hook forward priority 0; }
        add rule inet late onward meta l4proto tcp drop");
    let held = event();
    assert_eq!(held["event"], "held");
    assert_eq!(held["obstacles"][0]["kind"], "nft_chain");
    let kernel = gateway.kernel_forwarded(true);
    send_one(&gateway);
    assert_eq!(
        gateway.kernel_forwarded(true),
        kernel + 1,
        "the kernel, and its rules, forward"
    );
    nft("delete table inet late");
    let resumed = event();
    assert_eq!(
        (&resumed["event"], &resumed["obstacles"]),
        (&"resumed".into(), &Value::Array(vec![]))
    );
    send_one(&gateway);
    assert_eq!(
        gateway.kernel_forwarded(true),
        kernel + 1,
        "the fast path again"
    );
    daemon.signal(Signal::SIGTERM);
    let (code, rest) = daemon.end();
    assert_eq!(code, Some(0));
    let stopped: Value = serde_json::from_str(rest.trim()).unwrap();
    assert!(
        stopped["ports"][0]["handed_up"]["held"]["packets"]
            .as_u64()
            .unwrap()
            > 0
    );
    assert_eq!(stopped["ports"][0]["forwarded"]["ipv4"]["packets"], 2);
}
