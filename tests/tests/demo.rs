//! `ipoib demo` through the binary: what it proves, what it admits, and what it leaves behind.

use ipoib_tests::gateway::eventually;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

struct Demo {
    child: Child,
    progress: BufReader<std::process::ChildStderr>,
    said: String,
}

fn ipoib() -> Command {
    Command::new(env::var_os("IPOIB_BIN").expect("IPOIB_BIN: run `cargo xtask test`"))
}

impl Demo {
    fn start(arguments: &[&str]) -> Self {
        let mut child = ipoib()
            .args(["demo", "--json"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let progress = BufReader::new(child.stderr.take().unwrap());
        Demo {
            child,
            progress,
            said: String::new(),
        }
    }

    /// Reads what it says until a line starts with `beginning`; that line.
    fn read_until(&mut self, beginning: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.progress.read_line(&mut line).unwrap();
            self.said.push_str(&line);
            assert!(read > 0, "no line `{beginning}` in: {}", self.said);
            if line.starts_with(beginning) {
                return line;
            }
        }
    }

    /// Its namespaces as it announces them: n1, gateway, n2.
    fn namespaces(&mut self) -> [String; 3] {
        let line = self.read_until("namespaces: ");
        let name = |role: &str| {
            let start = format!("{role}=");
            let word = line
                .split_whitespace()
                .find_map(|word| word.strip_prefix(&start));
            word.unwrap_or_else(|| panic!("no {role} in {line}"))
                .to_owned()
        };
        [name("n1"), name("gateway"), name("n2")]
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    fn pins(&self) -> PathBuf {
        PathBuf::from(format!("/sys/fs/bpf/ipoib-demo-{}", self.child.id()))
    }

    /// Waits for the end: exit status and the JSON object, if one was printed.
    fn end(mut self) -> (ExitStatus, Option<Value>) {
        let mut text = String::new();
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        self.progress.read_to_string(&mut self.said).unwrap();
        let status = self.child.wait().unwrap();
        assert!(!self.said.contains("panicked"), "{}", self.said);
        assert!(
            text.is_empty() || text.trim_end().lines().count() == 1,
            "{text}"
        );
        (
            status,
            text.lines()
                .last()
                .map(|line| serde_json::from_str(line).expect("JSON")),
        )
    }
}

fn exists(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists()
}

#[test]
fn everything_arrives_and_takes_the_fast_path() {
    let mut demo = Demo::start(&["--for", "3s"]);
    let (namespaces, pins) = (demo.namespaces(), demo.pins());
    demo.read_until("traffic runs");
    assert!(namespaces.iter().all(|n| exists(n)) && pins.exists());
    let (status, summary) = demo.end();
    let summary = summary.expect("a summary");
    assert_eq!(status.code(), Some(0), "{summary}");
    assert_eq!(
        (&summary["v"], &summary["ok"], &summary["lost"]),
        (&1.into(), &true.into(), &0.into())
    );
    for family in ["ipv4", "ipv6"] {
        let fast = &summary["fast_path"][family];
        assert!(fast["packets"].as_u64().unwrap() > 500, "{summary}");
        assert!(fast["share"].as_f64().unwrap() >= 0.9, "{summary}");
    }
    assert!(summary["kernel"]["packets"].is_u64());
    let flows = summary["flows"].as_array().unwrap();
    for flow in flows {
        assert_eq!(flow["sent"], flow["received"], "{flow}");
        assert!(flow["received"].as_u64().unwrap() > 0, "{flow}");
        assert_eq!(flow["corrupt"], 0, "{flow}");
    }
    // TCP, UDP and ping, both families, both ways.
    assert_eq!(flows.len(), 12);
    assert!(!namespaces.iter().any(|n| exists(n)) && !pins.exists());
}

#[test]
fn injected_drops_are_counted_and_said() {
    let mut demo = Demo::start(&["--for", "3s"]);
    let [_, _, n2] = demo.namespaces();
    demo.read_until("traffic runs");
    // Two flows that alternate would meet an even number always in the same one.
    let rules = "add table inet lossy
        add chain inet lossy in { type filter hook input priority 0; }
        add rule inet lossy in meta l4proto udp numgen inc mod 7 0 counter drop";
    let nft = Command::new("ip")
        .args(["netns", "exec", &n2, "nft", rules])
        .output()
        .unwrap();
    assert!(
        nft.status.success(),
        "{}",
        String::from_utf8_lossy(&nft.stderr)
    );
    let (status, summary) = demo.end();
    let summary = summary.expect("a summary");
    assert_eq!(status.code(), Some(1), "{summary}");
    assert_eq!(summary["ok"], false);
    let lost = summary["lost"].as_u64().unwrap();
    assert!(lost > 50, "{summary}");
    for flow in summary["flows"].as_array().unwrap() {
        let (sent, received) = (
            flow["sent"].as_u64().unwrap(),
            flow["received"].as_u64().unwrap(),
        );
        assert_eq!(flow["lost"].as_u64().unwrap(), sent - received, "{flow}");
        let hit = flow["protocol"] == "udp" && flow["to"] == "n2";
        assert_eq!(sent > received, hit, "{flow}");
    }
}

#[test]
fn ctrl_c_ends_it_with_a_summary_and_nothing_behind() {
    let mut demo = Demo::start(&[]);
    let (namespaces, pins) = (demo.namespaces(), demo.pins());
    demo.read_until("0:01");
    demo.signal(Signal::SIGINT);
    let (status, summary) = demo.end();
    assert_eq!(status.code(), Some(0), "{summary:?}");
    assert_eq!(summary.unwrap()["lost"], 0);
    assert!(!namespaces.iter().any(|n| exists(n)) && !pins.exists());
}

/// Killed at any moment, it leaves nothing that `ipoib detach` or the next start does not clean up.
#[test]
fn what_a_killed_demo_leaves_detach_and_the_next_one_remove() {
    let mut killed = Demo::start(&[]);
    let (namespaces, pins) = (killed.namespaces(), killed.pins());
    killed.read_until("traffic runs");
    killed.signal(Signal::SIGKILL);
    killed.end();
    assert!(exists(&namespaces[1]) && pins.exists());
    let mut text = String::new();
    eventually("they are gone", || {
        // Pins of daemons are another test's.
        let none = "/sys/fs/bpf/ipoib-test-no-daemon";
        let detach = ipoib().args(["detach", "--pin-root", none]).output();
        let detach = detach.unwrap();
        text += &String::from_utf8_lossy(&detach.stdout);
        !namespaces.iter().any(|n| exists(n)) && !pins.exists()
    });
    assert!(text.contains(&namespaces[1]), "{text}");

    let mut left = Vec::new();
    for moment in ["namespaces: ", "traffic runs", "0:01"] {
        let mut demo = Demo::start(&[]);
        let (namespaces, pins) = (demo.namespaces(), demo.pins());
        if moment != "namespaces: " {
            demo.read_until(moment);
        }
        demo.signal(Signal::SIGKILL);
        let (status, _) = demo.end();
        assert_eq!(status.code(), None);
        left.push((namespaces, pins));
    }
    assert!(
        left.iter().any(|(namespaces, _)| exists(&namespaces[1])),
        "nothing to clean up"
    );
    let mut next = Demo::start(&[]);
    next.read_until("traffic runs");
    for (namespaces, pins) in &left {
        eventually("they are gone", || {
            !namespaces.iter().any(|n| exists(n)) && !pins.exists()
        });
    }
    next.signal(Signal::SIGTERM);
    assert_eq!(next.end().0.code(), Some(0));
    let kept: Vec<_> = fs::read_dir("/sys/fs/bpf")
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    for (_, pins) in &left {
        assert!(
            !kept
                .iter()
                .any(|name| Some(name.as_os_str()) == pins.file_name())
        );
    }
}
