//! Every error at its place, with its remedy; the examples; random files; the time that large ones
//! take.

use super::*;
use proptest::prelude::*;
use serde_json::Value;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PORTS: &str = "[ports.ib0]\n[ports.eth0]\n";

fn docs(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(name)
}

fn example(name: &str) -> String {
    std::fs::read_to_string(docs("examples").join(name)).unwrap()
}

/// One finding with that line, key and words; `text` stands below two ports, so from line 3.
#[track_caller]
fn has(findings: &[Finding], line: usize, key: &str, words: &str) {
    let fits = |f: &Finding| f.line == line && f.key == key && f.text.contains(words);
    assert!(
        findings.iter().any(fits),
        "{line} {key} {words}: {findings:#?}"
    );
}

#[track_caller]
fn error(text: &str, line: usize, key: &str, words: &str) {
    let report = check(&format!("{PORTS}{text}"));
    has(&report.errors, line, key, words);
    assert_eq!(report.errors.len(), 1, "{:#?}", report.errors);
}

#[track_caller]
fn warning(text: &str, line: usize, key: &str, words: &str) {
    let report = check(&format!("{PORTS}{text}"));
    assert_eq!(report.errors, []);
    has(&report.warnings, line, key, words);
    assert_eq!(report.warnings.len(), 1, "{:#?}", report.warnings);
}

/// A policy of those lines: its name stands in line 4, the first of them in line 5.
fn policy(lines: &str) -> String {
    format!("[[policies]]\nname = \"p\"\n{lines}\n")
}

#[test]
fn the_examples_are_good() {
    for name in ["gateway.toml", "dual-homed-node.toml"] {
        let report = check(&example(name));
        assert_eq!((report.errors, report.warnings), (vec![], vec![]), "{name}");
    }
}

#[test]
fn what_is_not_toml_is_said_with_its_place() {
    error("x = \n", 3, "", "not TOML");
    error("[ports.ib0]\n", 3, "", "duplicate");
    let report = check("a = 'x\nb = \n[ports.ib0]\n");
    assert!(report.errors.len() > 1, "{:#?}", report.errors);
}

#[test]
fn unknown_keys_are_refused_everywhere() {
    error("[polices]\n", 3, "polices", "did you mean \"policies\"?");
    error(
        "[daemon]\npinroot = 1\n",
        4,
        "daemon.pinroot",
        "did you mean \"pin_root\"?",
    );
    error(
        "[ports.x]\nodrer = 1\n",
        4,
        "ports.x.odrer",
        "did you mean \"order\"?",
    );
    error(
        &policy("form = \"a\""),
        5,
        "policies[0].form",
        "did you mean \"from\"?",
    );
    error(
        "[classes.a]\ncolour = 1\n",
        4,
        "classes.a.colour",
        "one of dscp, priority, sl",
    );
    error(
        "[profiles.a]\npolicy = 1\n",
        4,
        "profiles.a.policy",
        "use one of policies",
    );
}

#[test]
fn wrong_types_are_all_reported() {
    let text = policy("from = 1\nports = [1, [], 2, {}]\naction = \"alow\"\nprotocol = \"tcp\"");
    let report = check(&format!("{PORTS}{text}"));
    has(&report.errors, 5, "policies[0].from", "expected a string");
    has(
        &report.errors,
        6,
        "policies[0].ports[1]",
        "expected a number or a string",
    );
    has(
        &report.errors,
        6,
        "policies[0].ports[3]",
        "expected a number or a string",
    );
    has(
        &report.errors,
        7,
        "policies[0].action",
        "`allow`, `drop`, `police`",
    );
    assert_eq!(report.errors.len(), 4, "{:#?}", report.errors);
    error(
        "[groups]\na = [\"10.0.0.0/8\", 7]\n",
        4,
        "groups.a[1]",
        "a prefix is expected",
    );
    error(
        "[groups]\na = 7\n",
        4,
        "groups.a",
        "a list of prefixes is expected",
    )
}

/// What can't be read doesn't count as missing.
#[test]
fn one_mistake_is_one_error() {
    error(
        "[[policies]]\nname = 5\n",
        4,
        "policies[0].name",
        "expected a string",
    );
    error(
        &policy("rate = 5\naction = \"police\""),
        5,
        "policies[0].rate",
        "a string",
    );
    error(
        &policy("protocol = []\nports = [1]"),
        5,
        "policies[0].protocol",
        "a number",
    );
    error(
        &policy("ports = [true]\nprotocol = 6"),
        5,
        "policies[0].ports[0]",
        "a number",
    );
    error(
        "[peers.a]\naddresses = 5\n",
        4,
        "peers.a.addresses",
        "a sequence",
    );
}

#[test]
fn sections_of_the_wrong_kind_are_named() {
    error("[policies]\n", 3, "policies", "[[policies]]");
    error(
        "[classes]\na = 1\n",
        4,
        "classes.a",
        "write a table, [classes.a]",
    );
    let report = check("ports = 3\n");
    has(&report.errors, 1, "ports", "write a table, [ports]");
    has(&check("").errors, 1, "ports", "add [ports.NAME]");
}

#[test]
fn prefixes_are_corrected() {
    let group = |prefix: &str, words: &str| {
        let text = format!("[groups]\na = [\"10.0.0.0/8\", \"{prefix}\"]\n");
        error(&text, 4, "groups.a[1]", words);
    };
    group("10.1.2.3/16", "write \"10.1.0.0/16\"");
    group("fd00::1/64", "write \"fd00::/64\"");
    group("1.2.3.4/0", "write \"0.0.0.0/0\"");
    group("10.1.2.3", "write \"10.1.2.3/32\"");
    group("10.1.0.0/33", "use /32 or shorter");
    group("fd00::/129", "use /128 or shorter");
    group("::ffff:10.1.2.0/120", "write \"10.1.2.0/24\"");
    group("::ffff:10.1.2.3/96", "write \"0.0.0.0/0\"");
    for wrong in [
        "",
        "x",
        "10.1/16",
        "10.0.0.0/",
        "10.0.0.0/+8",
        "10.0.0.0/999",
        "/8",
    ] {
        group(wrong, "is no prefix");
    }
    error("[groups]\na = []\n", 4, "groups.a", "add a prefix");
    let twice = "[groups]\na = [\"10.0.0.0/8\", \"fd00::/8\", \"10.0.0.0/8\"]\n";
    warning(twice, 4, "groups.a[2]", "remove it here");
}

#[test]
fn names_must_exist() {
    let groups = "[groups]\nstorage = [\"10.0.0.0/8\"]\n[classes.bulk]\n";
    let one = |line: &str, key: &str, words: &str| {
        error(&format!("{groups}{}", policy(line)), 8, key, words);
    };
    one(
        "from = \"strage\"",
        "policies[0].from",
        "did you mean \"storage\"?",
    );
    one("to = \"elsewhere\"", "policies[0].to", "add it to [groups]");
    one(
        "to = \"10.0.0.0/8\"",
        "policies[0].to",
        "put it into a list in [groups]",
    );
    one(
        "class = \"bluk\"",
        "policies[0].class",
        "did you mean \"bulk\"?",
    );
    one(
        "ingress = \"ib1\"",
        "policies[0].ingress",
        "did you mean \"ib0\"?",
    );
    one(
        "tenant = \"defualt\"",
        "policies[0].tenant",
        "did you mean \"default\"?",
    );
    one(
        "next_hop = \"node7\"",
        "policies[0].next_hop",
        "add it to [peers]",
    );
    one(
        "path = [\"datagram:ib7\"]",
        "policies[0].path[0]",
        "add it to [ports]",
    );
    error(
        "[ports.\"a/b\"]\n",
        3,
        "ports.\"a/b\"",
        "1 to 15 characters",
    );
    error(
        "[classes.\" a\"]\n",
        3,
        "classes.\" a\"",
        "no space at the ends",
    );
    error("[[policies]]\n", 3, "policies[0].name", "add `name");
    let two = format!("{}{}", policy(""), policy(""));
    error(&two, 7, "policies[1].name", "in line 4: give it another");
}

#[test]
fn ports_need_a_protocol_and_a_right_range() {
    let one = |lines: &str, key: &str, words: &str| error(&policy(lines), 5, key, words);
    one("ports = [1]", "policies[0].ports", "add protocol = \"tcp\"");
    one(
        "source_ports = [1]\nprotocol = \"icmp\"",
        "policies[0].source_ports",
        "have no ports",
    );
    let range = |item: &str, words: &str| {
        let lines = format!("ports = [9, {item}]\nprotocol = \"tcp\"");
        one(&lines, "policies[0].ports[1]", words);
    };
    range("\"30-20\"", "write \"20-30\"");
    range("0", "1 to 65535");
    range("65536", "1 to 65535");
    range("-1", "1 to 65535");
    range("\"1-70000\"", "1 to 65535");
    range("\"http\"", "is no port");
    range("\"1-\"", "is no port");
    one(
        "ports = []\nprotocol = 6",
        "policies[0].ports",
        "add a port",
    );
    one(
        "protocol = \"tpc\"",
        "policies[0].protocol",
        "did you mean \"tcp\"?",
    );
    one("protocol = 256", "policies[0].protocol", "from 0 to 255");
}

#[test]
fn numbers_have_their_range() {
    error(&policy("dscp = 64"), 5, "policies[0].dscp", "use 0 to 63");
    error(
        &policy("dscp = \"af44\""),
        5,
        "policies[0].dscp",
        "af11 to af43",
    );
    error("[classes.a]\nsl = 16\n", 4, "classes.a.sl", "use 0 to 15");
    error(
        "[classes.a]\npriority = -1\n",
        4,
        "classes.a.priority",
        "use 0 to 4294967295",
    );
    error(
        "[classes.a]\ndscp = \"x\"\n",
        4,
        "classes.a.dscp",
        "use 0 to 63",
    );
    error(
        "[daemon]\nlease_ms = 1\n",
        4,
        "daemon.lease_ms",
        "use 500 to 60000",
    );
    error(
        "[daemon]\nmark_mask = 0xf0f0\n",
        4,
        "daemon.mark_mask",
        "like 0x0ff00000",
    );
    error(
        "[daemon]\nroute_protocol = 4\n",
        4,
        "daemon.route_protocol",
        "use 5 to 255",
    );
    error(
        "[daemon]\npin_root = \"x\"\n",
        4,
        "daemon.pin_root",
        "begin it with /",
    );
    for (name, value) in [("ef", 46), ("af41", 34), ("cs7", 56), ("default", 0)] {
        assert_eq!(values::dscp(&Scalar::Word(name.to_owned())), Ok(value));
    }
}

#[test]
fn actions_and_their_keys_go_together() {
    let one = |lines: &str, key: &str, words: &str| error(&policy(lines), 5, key, words);
    one(
        "action = \"police\"",
        "policies[0].rate",
        "add one, like rate = \"10gbit\"",
    );
    one(
        "rate = \"1gbit\"",
        "policies[0].rate",
        "set action = \"police\"",
    );
    one(
        "burst = \"64kb\"",
        "policies[0].burst",
        "set action = \"police\"",
    );
    for wrong in ["10", "gbit", "1.5gbit", "0mbit", "99999999999gbit", "-1bit"] {
        let lines = format!("rate = \"{wrong}\"\naction = \"police\"");
        one(&lines, "policies[0].rate", "like \"500mbit\"");
    }
    one(
        "burst = \"1\"\nrate = \"1gbit\"\naction = \"police\"",
        "policies[0].burst",
        "like \"64kb\"",
    );
    one(
        "path = [\"datagram:ib0\"]\naction = \"drop\"",
        "policies[0].path",
        "remove the key",
    );
    one(
        "next_hop = \"10.0.0.1\"\naction = \"drop\"",
        "policies[0].next_hop",
        "remove the key",
    );
    one("when = \"night\"", "policies[0].when", "rdma:DEVICE up");
    one(
        "on_degraded = \"next\"",
        "policies[0].on_degraded",
        "use \"stay\"",
    );
}

#[test]
fn ladders_have_right_rungs() {
    let one = |path: &str, key: &str, words: &str| {
        error(
            &policy(&format!("path = [{path}]")),
            5,
            &format!("policies[0].{key}"),
            words,
        );
    };
    one("", "path", "add a rung");
    one("\"ib0\"", "path[0]", "write KIND:PORT");
    one("\"datagrm:ib0\"", "path[0]", "did you mean \"datagram\"?");
    one(
        "\"datagram:ib0\", \"datagram:ib0\"",
        "path[1]",
        "remove it here",
    );
    one(
        "\"datagram:ib0\", \"ethernet:ib0\"",
        "path[1]",
        "in another (line 5)",
    );
    warning(
        &policy("path = [\"datagram:ib0\", \"ethernet:eth0\"]"),
        5,
        "policies[0].path",
        "add `ethernet`",
    );
}

#[test]
fn families_must_fit() {
    let groups = "[groups]\nfour = [\"10.0.0.0/8\"]\nsix = [\"fd00::/8\"]\n";
    let one = |lines: &str, line: usize, key: &str, words: &str| {
        error(&format!("{groups}{}", policy(lines)), line, key, words);
    };
    one(
        "from = \"four\"\nto = \"six\"",
        6,
        "policies[0]",
        "`from` has IPv4 prefixes only",
    );
    one(
        "to = \"six\"\nprotocol = \"icmp\"",
        6,
        "policies[0]",
        "one family",
    );
    one(
        "to = \"six\"\nnext_hop = \"10.0.0.1\"",
        9,
        "policies[0].next_hop",
        "of their family",
    );
    one(
        "next_hop = \"10.0.0.256\"",
        8,
        "policies[0].next_hop",
        "is no address",
    );
    one(
        "next_hop = \"224.0.0.1\"",
        8,
        "policies[0].next_hop",
        "the address of a host",
    );
    one(
        "next_hop = \"::ffff:1.2.3.4\"",
        8,
        "policies[0].next_hop",
        "write \"1.2.3.4\"",
    );
    let both = policy("next_hop = \"10.0.0.1\"");
    warning(
        &both,
        5,
        "policies[0].next_hop",
        "packets of IPv6 are routed by the kernel",
    );
}

#[test]
fn peers_are_checked() {
    let one = |lines: &str, key: &str, words: &str| {
        error(
            &format!("[peers.a]\n{lines}\n"),
            4,
            &format!("peers.a.{key}"),
            words,
        );
    };
    one("key = \"00\"", "key", "64 hexadecimal digits");
    one(
        "ethernet = \"01:00:00:00:00:01\"",
        "ethernet",
        "write 6 bytes",
    );
    one("addresses = []", "addresses", "add an address");
    one(
        "addresses = [\"::\"]",
        "addresses[0]",
        "the address of a host",
    );
    one(
        "fabric = \"00:01:02:03:04:05:06:07:08:09:0a:0b\"",
        "fabric",
        "20-byte",
    );
    error("[peers.a]\n", 3, "peers.a.addresses", "add `addresses");
    let two = "[peers.b]\naddresses = [\"10.0.0.1\"]\n[peers.a]\naddresses = [\"10.0.0.1\"]\n";
    error(two, 6, "peers.a.addresses[0]", "in line 4");
    let guid = values::guid("00:02:c9:03:00:00:00:07").unwrap();
    let long = "80:00:04:04:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:07";
    assert_eq!(values::guid(long), Ok(guid));
    assert_eq!(values::guid("0x0002c90300000007"), Ok(guid));
}

#[test]
fn policies_that_no_packet_reaches_are_found() {
    let groups = "[groups]\nwide = [\"10.0.0.0/8\", \"fd00::/8\"]\nnarrow = [\"10.1.0.0/16\"]\n";
    let two = |first: &str, second: &str| {
        let text = format!(
            "{groups}[[policies]]\nname = \"first\"\n{first}\n[[policies]]\nname = \"second\"\n{second}\n"
        );
        let report = check(&format!("{PORTS}{text}"));
        assert_eq!(report.errors, []);
        let covered = |f: &Finding| f.text.contains("no packet gets here: \"first\" in line 6");
        report.warnings.iter().any(covered)
    };
    assert!(two("", ""));
    assert!(two("from = \"wide\"", "from = \"narrow\""));
    assert!(!two("from = \"narrow\"", "from = \"wide\""));
    let ports = |list: &str| format!("protocol = \"tcp\"\nports = {list}");
    assert!(two(&ports("[\"1-5\", \"6-9\"]"), &ports("[\"4-8\"]")));
    assert!(!two(&ports("[\"1-5\", \"7-9\"]"), &ports("[\"4-8\"]")));
    assert!(two("protocol = 6", &ports("[7]")));
    assert!(!two("ingress = \"ib0\"", "ingress = \"eth0\""));
    assert!(!two("when = \"rdma:mlx5_0 down\"", ""));
    assert!(two("", "when = \"rdma:mlx5_0 down\""));
}

#[test]
fn limits_are_named() {
    let mut text = String::new();
    for index in 0..257 {
        writeln!(text, "[ports.p{index}]").unwrap();
    }
    has(&check(&text).errors, 1, "ports", "at most 256");
}

/// 100,000 policies and as many prefixes, once all different and once each like another; one more
/// of each is refused.
#[test]
fn large_files_are_checked_in_seconds() {
    for different in [true, false] {
        let mut text = format!("{PORTS}[groups]\n");
        for group in 0..1000 {
            write!(text, "g{group} = [").unwrap();
            for net in 0..100 {
                let (high, low) = (group / 250, group % 250);
                write!(text, "\"{}.{low}.{net}.0/24\", ", 10 + high).unwrap();
            }
            text.push_str("]\n");
        }
        for index in 0..100_000 {
            let (from, port) = (index % 1000, if different { 1 + index / 1000 } else { 7 });
            writeln!(
                text,
                "[[policies]]\nname = \"p{index}\"\nfrom = \"g{from}\"\nto = \"g0\"\nprotocol = \"tcp\"\nports = [{port}]"
            )
            .unwrap();
        }
        let start = Instant::now();
        let report = check(&text);
        let took = start.elapsed();
        println!("{took:?}");
        assert_eq!(report.errors, []);
        assert_eq!(report.warnings.len(), if different { 0 } else { 99_000 });
        assert!(took < Duration::from_secs(20), "{took:?}");
        if different {
            text.insert_str(
                text.find("[[").unwrap(),
                "more = [\"fd00::/8\"]\n[[policies]]\nname = \"more\"\n",
            );
            let errors = check(&text).errors;
            has(&errors, 4, "prefixes", "at most 100000");
            has(&errors, 1005, "policies", "at most 100000");
        }
    }
}

#[test]
fn findings_come_by_line_and_keep_to_one_each() {
    let text = "[[policies]]\nname = \"a\\nb\"\nfrom = \"x\\ny\"\n[ports.\"bad name\"]\n[zoo]\n";
    let report = check(text);
    let lines: Vec<_> = report.errors.iter().map(|f| f.line).collect();
    assert_eq!(lines, [2, 3, 4, 5], "{:#?}", report.errors);
    assert!(
        report
            .errors
            .iter()
            .all(|f| !f.text.contains('\n') && !f.key.contains('\n'))
    );
}

#[test]
fn columns_count_characters() {
    let report = check("[ports.ib0]\n[classes]\n\"äö\" = { sl = 99 }\n");
    assert_eq!((report.errors[0].line, report.errors[0].column), (3, 15));
}

#[test]
fn what_this_version_cannot_do_is_refused_by_name_when_run() {
    let (report, plan) = plan(&example("gateway.toml"));
    assert_eq!(plan, None);
    for (key, words) in [
        ("policies", "policies are checked but not applied yet"),
        ("peers.filer", "use `ipoib check`"),
        ("profiles.maintenance", "profiles are checked"),
    ] {
        let fits = |f: &&Finding| f.key == key && f.text.contains(words);
        assert!(
            report.errors.iter().any(|f| fits(&f)),
            "{key}: {:#?}",
            report.errors
        );
    }
    let refused = |text: &str, line: usize, key: &str, words: &str| {
        let (report, plan) = super::plan(text);
        assert_eq!(plan, None);
        has(&report.errors, line, key, words);
    };
    refused(
        "[ports.a]\nguard = true\n",
        2,
        "ports.a.guard",
        "the guard is",
    );
    refused(
        "[ports.a]\ntenant = \"x\"\n",
        2,
        "ports.a.tenant",
        "remove the key",
    );
    refused(
        "[ports.a]\n[daemon]\nflows = 5000\n",
        3,
        "daemon.flows",
        "this setting is",
    );
    refused(
        "[ports.b]\norder = \"after\"\n[ports.a]\n",
        3,
        "ports.a.order",
        "b has \"after\"",
    );
}

#[test]
fn the_part_above_the_policies_of_the_gateway_runs() {
    let text = example("gateway.toml");
    let (above, _) = text.split_once("\n# --- policies").unwrap();
    let (report, plan) = plan(above);
    assert_eq!(report.errors, []);
    let plan = plan.unwrap();
    assert_eq!(plan.ports, ["ib0", "eth0"]);
    assert_eq!(plan.order, crate::datapath::Order::Refuse);
    assert_eq!(plan.pin_root.as_deref(), Some("/sys/fs/bpf/ipoib"));
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = std::env::temp_dir().join(format!("ipoib-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let said = |path: &std::path::Path| read(path).unwrap_err().to_string();
    assert!(said(&folder).contains("is a directory"));
    assert!(said(&folder.join("none")).contains("that you may read"));
    let file = folder.join("file");
    std::fs::write(&file, b"a = 1\n\xff").unwrap();
    assert!(said(&file).contains(":2: this is not UTF-8"));
    let large = std::fs::File::create(&file).unwrap();
    large.set_len(MAX_BYTES + 1).unwrap();
    assert!(said(&file).contains("larger than 64 MiB"));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// After a change of the types: `IPOIB_WRITE_SCHEMA=1 cargo test -p ipoib-user schema`.
#[test]
fn the_schema_in_the_repository_is_the_generated_one() {
    let path = docs("config.schema.json");
    if std::env::var_os("IPOIB_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, schema::text()).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == schema::text(),
        "docs/config.schema.json is not what the types say: run \
         `IPOIB_WRITE_SCHEMA=1 cargo test -p ipoib-user schema`"
    );
}

#[test]
fn the_examples_are_valid_by_the_schema() {
    let schema: Value = serde_json::from_str(&schema::text()).unwrap();
    let valid = |text: &str| {
        let value: Value = toml::from_str(text).unwrap();
        is_valid(&value, &schema, &schema)
    };
    for name in ["gateway.toml", "dual-homed-node.toml"] {
        assert!(valid(&example(name)), "{name}");
    }
    for wrong in [
        "",
        "[ports.a]\nodrer = 1",
        "[ports.a]\norder = \"x\"",
        "[ports.a]\n[zoo]",
        "[ports.a]\n[classes.a]\nsl = 16",
        "[ports.a]\n[[policies]]\nto = \"x\"",
        "[ports.a]\n[[policies]]\nname = \"x\"\nports = [true]",
    ] {
        assert!(!valid(wrong), "{wrong}");
    }
}

/// As much of JSON Schema as ours uses; a word that is not known here fails.
fn is_valid(value: &Value, schema: &Value, root: &Value) -> bool {
    let Value::Object(words) = schema else {
        return schema.as_bool().unwrap();
    };
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64(),
        "null" => value.is_null(),
        other => panic!("type {other}"),
    };
    let any = |list: &Value| {
        let mut schemas = list.as_array().unwrap().iter();
        schemas.any(|schema| is_valid(value, schema, root))
    };
    words.iter().all(|(word, says)| match word.as_str() {
        "$ref" => {
            let pointer = says.as_str().unwrap().trim_start_matches('#');
            is_valid(value, root.pointer(pointer).unwrap(), root)
        }
        "anyOf" | "oneOf" => any(says),
        "type" => match says {
            Value::Array(names) => names.iter().any(|name| is(name.as_str().unwrap())),
            name => is(name.as_str().unwrap()),
        },
        "const" => value == says,
        "enum" => says.as_array().unwrap().contains(value),
        "minimum" => value.as_i64().is_none_or(|v| v >= says.as_i64().unwrap()),
        "maximum" => value.as_i64().is_none_or(|v| v <= says.as_i64().unwrap()),
        "required" => value.as_object().is_none_or(|object| {
            let mut names = says.as_array().unwrap().iter();
            names.all(|name| object.contains_key(name.as_str().unwrap()))
        }),
        "items" => value
            .as_array()
            .is_none_or(|list| list.iter().all(|item| is_valid(item, says, root))),
        "properties" => value.as_object().is_none_or(|object| {
            object
                .iter()
                .all(|(name, value)| says.get(name).is_none_or(|s| is_valid(value, s, root)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|object| {
            let listed = |name: &String| {
                words
                    .get("properties")
                    .is_some_and(|p| p.get(name).is_some())
            };
            let mut others = object.iter().filter(|(name, _)| !listed(name));
            others.all(|(_, value)| is_valid(value, says, root))
        }),
        "$schema" | "$defs" | "title" | "description" | "default" | "format" => true,
        other => panic!("{other} is not known to this test"),
    })
}

proptest! {
    #[test]
    fn random_text_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = plan(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_changes_of_an_example_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0usize..6, any::<char>()), 1..12)
    ) {
        let mut text: Vec<char> = example("gateway.toml").chars().collect();
        for (at, count, character) in changes {
            let at = at.index(text.len());
            let end = (at + count).min(text.len());
            text.splice(at..end, [character]);
        }
        let text: String = text.into_iter().collect();
        let (report, _) = plan(&text);
        let lines = text.matches('\n').count() + 1;
        prop_assert!(report.errors.iter().all(|f| (1..=lines).contains(&f.line)));
    }

    #[test]
    fn random_words_for_values_never_panic(word in "[-a-z0-9:./ ]{0,24}") {
        let scalar = Scalar::Word(word.clone());
        let _ = (values::Prefix::parse(&word), values::ports(&scalar), values::dscp(&scalar));
        let _ = (values::rate(&word), values::burst(&word), values::rung(&word));
        let _ = (values::unicast(&word), values::ethernet(&word), values::guid(&word));
        let _ = (values::when(&word), values::protocol(&scalar));
    }
}
