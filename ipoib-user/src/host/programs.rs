//! Programs of others (and leftovers of ours) at the hook where ours goes: tcx programs, and filters
//! of a clsact or ingress qdisc.

use super::netlink::{Question, ask_if_present, attributes, attributes_after, string, u32_at};
use super::{Error, Link, links};
use aya::programs::{ProgramError, SchedClassifier, TcAttachType, loaded_programs};
use std::path::Path;
use std::{fmt, fs, io};

/// `struct tcmsg`: family, 3 bytes of padding, index, handle, parent, info.
const TCMSG_LEN: usize = 20;
/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`. It finds the filters of an ingress qdisc too, which
/// has the same major number and doesn't look at the minor (`ingress_find()`).
const CLSACT_INGRESS: u32 = 0xffff_fff2;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_ID: u16 = 11;
const KIND_BPF: &str = "bpf";
/// What the kernel keeps of a program's name (`BPF_OBJ_NAME_LEN` without the NUL).
const NAME_LEN: usize = 15;
/// The name of our own program.
const OUR_NAME: &str = "ipoib_ingress";
/// Readings that a program's end may interrupt.
const ATTEMPTS: usize = 10;

/// Where a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// The port's own list of programs (Linux 6.6); it is run first.
    Tcx,
    /// A filter of the port's clsact or ingress qdisc.
    Filter,
}

/// A program or filter on a port's ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignProgram {
    /// Name of the port.
    pub port: String,
    /// Where it is attached.
    pub hook: Hook,
    /// Its name (up to 15 bytes), or the kind of a filter that is no eBPF program (`u32`, `flower`).
    pub name: String,
    /// The program's id; filters that are no eBPF programs have none.
    pub id: Option<u32>,
    /// Priority and handle of a filter.
    pub filter: Option<(u16, u32)>,
    /// Whether it has the name of our own program: left by an instance of ours, or in use by one.
    pub ours: bool,
}

impl fmt::Display for ForeignProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ForeignProgram { port, name, .. } = self;
        match (self.hook, self.id) {
            (Hook::Tcx, _) => write!(f, "program {name}")?,
            (Hook::Filter, Some(_)) => write!(f, "filter program {name}")?,
            (Hook::Filter, None) => write!(f, "{name} filter")?,
        }
        if let Some(id) = self.id {
            write!(f, " (id {id})")?;
        }
        write!(f, " on the ingress of {port}")?;
        match self.filter {
            Some((priority, _)) => write!(
                f,
                " (removed by `tc filter del dev {port} ingress pref {priority}`)"
            ),
            None => write!(f, " (shown by `bpftool net show dev {port}`)"),
        }
    }
}

/// The programs on a port's ingress, in the order in which they run. Needs CAP_NET_ADMIN and, to
/// name them, CAP_BPF.
pub fn foreign_programs(port: &Link) -> Result<Vec<ForeignProgram>, Error> {
    let mut found = tcx(port)?;
    found.extend(filters(port)?);
    Ok(found)
}

/// Whether a process has the program open, as every ipoib that runs has its own. `None` where that
/// can't be told, because processes of others can't be looked into.
pub fn is_open(id: u32) -> Option<bool> {
    let line = format!("prog_id:\t{id}");
    let mut unseen = false;
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let path = process.path();
        let files = match fs::read_dir(path.join("fd")) {
            Ok(files) => files,
            Err(error) => {
                // No process, or one that has just ended.
                unseen |= error.kind() == io::ErrorKind::PermissionDenied;
                continue;
            }
        };
        for file in files.flatten() {
            let target = fs::read_link(file.path()).unwrap_or_default();
            if target != Path::new("anon_inode:bpf-prog") {
                continue;
            }
            let info = path.join("fdinfo").join(file.file_name());
            let info = fs::read_to_string(info).unwrap_or_default();
            if info.lines().any(|l| l == line) {
                return Some(true);
            }
        }
    }
    (!unseen).then_some(false)
}

fn tcx(port: &Link) -> Result<Vec<ForeignProgram>, Error> {
    let mut attempt = 0;
    let programs = loop {
        attempt += 1;
        match SchedClassifier::query_tcx(&port.name, TcAttachType::Ingress) {
            Ok((_, programs)) => break programs,
            Err(error) => match errno(&error) {
                // Kernels before 6.6 don't know the attach type.
                Some(libc::EINVAL) => break Vec::new(),
                // Gone; or renamed and back, if its name is found again.
                Some(libc::ENODEV) if attempt < ATTEMPTS => {
                    links::link(&port.name)?;
                }
                // One of the programs ended between the list and the look at it.
                Some(libc::ENOENT) if attempt < ATTEMPTS => {}
                _ => {
                    return Err(Error::Programs {
                        port: port.name.clone(),
                        source: error,
                    });
                }
            },
        }
    };
    let named = programs.iter().map(|program| {
        let name = String::from_utf8_lossy(program.name()).into_owned();
        ForeignProgram {
            port: port.name.clone(),
            hook: Hook::Tcx,
            ours: is_ours(&name),
            name,
            id: Some(program.id()),
            filter: None,
        }
    });
    Ok(named.collect())
}

fn errno(error: &ProgramError) -> Option<i32> {
    let io: &io::Error = match error {
        ProgramError::SyscallError(error) => &error.io_error,
        ProgramError::IOError(error) => error,
        ProgramError::TcError(aya::programs::tc::TcError::IoError(error)) => error,
        _ => return None,
    };
    io.raw_os_error()
}

fn filters(port: &Link) -> Result<Vec<ForeignProgram>, Error> {
    let mut body = [0; TCMSG_LEN];
    body[4..8].copy_from_slice(&port.ifindex.to_ne_bytes());
    body[12..16].copy_from_slice(&CLSACT_INGRESS.to_ne_bytes());
    let question = Question {
        protocol: libc::NETLINK_ROUTE as isize,
        what: "the filters of a port",
        ask: libc::RTM_GETTFILTER,
        answer: libc::RTM_NEWTFILTER,
        dump: true,
        body: &body,
    };
    let filters = ask_if_present(&question, read)?;
    let found = filters.into_iter().map(|filter| {
        // The name in the kernel is the program's; that of the filter is what its maker liked.
        let name = filter.id.and_then(program_name).or(filter.name);
        let name = name.unwrap_or(filter.kind);
        ForeignProgram {
            port: port.name.clone(),
            hook: Hook::Filter,
            ours: is_ours(&name),
            name,
            id: filter.id,
            filter: Some((filter.priority, filter.handle)),
        }
    });
    Ok(found.collect())
}

/// A filter on an ingress.
#[derive(Debug, PartialEq, Eq)]
struct Filter {
    kind: String,
    priority: u16,
    handle: u32,
    name: Option<String>,
    id: Option<u32>,
}

/// Reads an RTM_NEWTFILTER. A dump tells each classifier once with handle 0 and then its elements:
/// of a `bpf` one those are the programs, so the classifier itself is `None`; others are counted
/// once.
fn read(body: &[u8]) -> Option<Filter> {
    let handle = u32_at(body, 8)?;
    let priority = (u32_at(body, 16)? >> 16) as u16;
    let (mut kind, mut name, mut id) = (None, None, None);
    let mut options: &[u8] = &[];
    for (attribute, value) in attributes_after(body, TCMSG_LEN) {
        match attribute {
            TCA_KIND => kind = Some(string(value)),
            TCA_OPTIONS => options = value,
            _ => {}
        }
    }
    let kind = kind?;
    if (kind == KIND_BPF) == (handle == 0) {
        return None;
    }
    if kind == KIND_BPF {
        for (attribute, value) in attributes(options) {
            match attribute {
                TCA_BPF_NAME => name = Some(string(value)),
                TCA_BPF_ID => id = u32_at(value, 0),
                _ => {}
            }
        }
    }
    Some(Filter {
        kind,
        priority,
        handle,
        name,
        id,
    })
}

/// The kernel's name of a program; `None` where it has gone or we may not look.
fn program_name(id: u32) -> Option<String> {
    let mut programs = loaded_programs().filter_map(Result::ok);
    let program = programs.find(|program| program.id() == id)?;
    let name = String::from_utf8_lossy(program.name()).into_owned();
    (!name.is_empty()).then_some(name)
}

fn is_ours(name: &str) -> bool {
    name == OUR_NAME.get(..NAME_LEN).unwrap_or(OUR_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::link;
    use crate::host::netlink::push_attribute;
    use crate::host::testing::{command, in_namespace, ip, run};
    use netlink_sys::{Socket, SocketAddr};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    fn message(kind: &[u8], handle: u32, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![0; TCMSG_LEN];
        body[8..12].copy_from_slice(&handle.to_ne_bytes());
        body[16..20].copy_from_slice(&(5u32 << 16 | 3).to_ne_bytes());
        push_attribute(&mut body, 200, b"unknown");
        push_attribute(&mut body, TCA_KIND, kind);
        let mut nested = Vec::new();
        push_attribute(&mut nested, 200, b"unknown");
        for (kind, value) in options {
            push_attribute(&mut nested, *kind, value);
        }
        push_attribute(&mut body, TCA_OPTIONS, &nested);
        body
    }

    #[test]
    fn a_filter_is_read_past_what_is_unknown_and_cut() {
        let whole = message(
            b"bpf\0",
            1,
            &[(TCA_BPF_NAME, b"guard\0"), (TCA_BPF_ID, &[9, 0, 0, 0])],
        );
        assert_eq!(
            read(&whole),
            Some(Filter {
                kind: "bpf".to_owned(),
                priority: 5,
                handle: 1,
                name: Some("guard".to_owned()),
                id: Some(9),
            })
        );
        for len in 0..whole.len() {
            read(&whole[..len]);
        }
    }

    #[test]
    fn a_classifier_counts_once_and_an_empty_bpf_one_not_at_all() {
        assert!(read(&message(b"u32\0", 0, &[])).is_some());
        assert!(read(&message(b"u32\0", 0x8000_0000, &[])).is_none());
        assert!(read(&message(b"bpf\0", 0, &[])).is_none());
    }

    #[test]
    fn ours_is_told_by_its_name() {
        assert!(is_ours("ipoib_ingress"));
        assert!(!is_ours("ipoib_ingres"));
        assert!(!is_ours("ipoib_ingress2"));
        assert!(!is_ours(""));
    }

    /// Calls `bpf(2)`.
    fn bpf<T>(command: libc::c_long, attributes: &T) -> OwnedFd {
        // SAFETY: the kernel reads at most the size that is given of `attributes`, plain data whose
        // pointers the callers keep alive.
        let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
        assert!(fd >= 0, "bpf: {}", io::Error::last_os_error());
        // SAFETY: both commands used here return a new file descriptor.
        unsafe { OwnedFd::from_raw_fd(fd as i32) }
    }

    /// Loads a classifier that returns TC_ACT_UNSPEC.
    fn program(name: &str) -> OwnedFd {
        const BPF_PROG_LOAD: libc::c_long = 5;
        const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
        /// The beginning of `union bpf_attr` for BPF_PROG_LOAD.
        #[repr(C)]
        struct Load {
            prog_type: u32,
            insn_cnt: u32,
            insns: u64,
            license: u64,
            log: [u32; 4],
            kern_version: u32,
            prog_flags: u32,
            prog_name: [u8; 16],
        }
        // r0 = -1; exit
        let instructions: [u64; 2] = [0xffff_ffff_0000_00b7, 0x95];
        let mut prog_name = [0; 16];
        prog_name[..name.len()].copy_from_slice(name.as_bytes());
        let load = Load {
            prog_type: BPF_PROG_TYPE_SCHED_CLS,
            insn_cnt: 2,
            insns: instructions.as_ptr() as u64,
            license: c"MIT".as_ptr() as u64,
            log: [0; 4],
            kern_version: 0,
            prog_flags: 0,
            prog_name,
        };
        bpf(BPF_PROG_LOAD, &load)
    }

    /// Attaches a program by tcx, as long as the result lives.
    fn attach_tcx(program: &OwnedFd, port: &Link) -> OwnedFd {
        const BPF_LINK_CREATE: libc::c_long = 28;
        const BPF_TCX_INGRESS: u32 = 46;
        #[repr(C)]
        struct Create {
            prog_fd: u32,
            target_ifindex: u32,
            attach_type: u32,
            flags: u32,
            tcx: [u64; 2],
        }
        let create = Create {
            prog_fd: program.as_raw_fd() as u32,
            target_ifindex: port.ifindex,
            attach_type: BPF_TCX_INGRESS,
            flags: 0,
            tcx: [0; 2],
        };
        bpf(BPF_LINK_CREATE, &create)
    }

    /// Adds a program as a filter, named `name` there, with priority 7.
    fn add_filter(program: &OwnedFd, port: &Link, name: &str) {
        const TCA_BPF_FD: u16 = 6;
        let mut options = Vec::new();
        let fd = program.as_raw_fd().to_ne_bytes();
        push_attribute(&mut options, TCA_BPF_FD, &fd);
        push_attribute(
            &mut options,
            TCA_BPF_NAME,
            &[name.as_bytes(), &[0]].concat(),
        );
        let mut body = vec![0; TCMSG_LEN];
        body[4..8].copy_from_slice(&port.ifindex.to_ne_bytes());
        body[8..12].copy_from_slice(&1u32.to_ne_bytes());
        body[12..16].copy_from_slice(&CLSACT_INGRESS.to_ne_bytes());
        let all = (libc::ETH_P_ALL as u16).to_be() as u32;
        body[16..20].copy_from_slice(&(7 << 16 | all).to_ne_bytes());
        push_attribute(&mut body, TCA_KIND, b"bpf\0");
        push_attribute(&mut body, TCA_OPTIONS, &options);
        let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE;
        let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
        message.extend(libc::RTM_NEWTFILTER.to_ne_bytes());
        message.extend((flags as u16).to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        let socket = Socket::new(libc::NETLINK_ROUTE as isize).unwrap();
        socket.send_to(&message, &SocketAddr::new(0, 0), 0).unwrap();
        let (answer, _) = socket.recv_from_full().unwrap();
        assert_eq!(u32_at(&answer, 16), Some(0), "the kernel's error");
    }

    #[test]
    fn nothing_is_found_on_a_plain_port() {
        in_namespace(|| {
            ip("link add v0 type veth peer name v1");
            let port = link("v0").unwrap();
            assert_eq!(foreign_programs(&port).unwrap(), []);
            run("tc", "qdisc add dev v0 clsact");
            assert_eq!(foreign_programs(&port).unwrap(), []);
            run("tc", "filter add dev v0 egress pref 3 u32 match u32 0 0");
            assert_eq!(foreign_programs(&port).unwrap(), [], "egress");
            run("tc", "qdisc replace dev v0 root pfifo");
            assert_eq!(foreign_programs(&port).unwrap(), []);
        });
    }

    #[test]
    fn filters_are_found_behind_a_clsact_and_an_ingress_qdisc() {
        for qdisc in ["clsact", "ingress"] {
            in_namespace(move || {
                ip("link add v0 type veth peer name v1");
                run("tc", &format!("qdisc add dev v0 {qdisc}"));
                run("tc", "filter add dev v0 ingress pref 3 u32 match u32 0 0");
                let classic = "filter add dev v0 ingress pref 4 bpf bytecode".split(' ');
                command("tc", classic.chain(["1,6 0 0 0"]));
                let other = program("guard");
                add_filter(&other, &link("v0").unwrap(), "obj:[classifier]");
                let found = foreign_programs(&link("v0").unwrap()).unwrap();
                let texts: Vec<String> = found.iter().map(|p| p.to_string()).collect();
                let id = found.last().unwrap().id.unwrap();
                assert_eq!(
                    texts,
                    [
                        "u32 filter on the ingress of v0 \
                         (removed by `tc filter del dev v0 ingress pref 3`)",
                        "bpf filter on the ingress of v0 \
                         (removed by `tc filter del dev v0 ingress pref 4`)",
                        &format!(
                            "filter program guard (id {id}) on the ingress of v0 \
                             (removed by `tc filter del dev v0 ingress pref 7`)"
                        ),
                    ]
                );
                assert!(found.iter().all(|p| p.hook == Hook::Filter && !p.ours));
                assert_eq!(found[2].filter, Some((7, 1)));
                assert_eq!(foreign_programs(&link("v1").unwrap()).unwrap(), []);
            });
        }
    }

    #[test]
    fn filters_of_a_shared_block_are_found() {
        in_namespace(|| {
            ip("link add v0 type veth peer name v1");
            run("tc", "qdisc add dev v0 ingress_block 22 clsact");
            run("tc", "qdisc add dev v1 ingress_block 22 clsact");
            run("tc", "filter add block 22 pref 3 u32 match u32 0 0");
            let found = foreign_programs(&link("v0").unwrap()).unwrap();
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].name, "u32");
        });
    }

    #[test]
    fn tcx_programs_are_found_in_their_order_and_ours_is_recognised() {
        in_namespace(|| {
            ip("link add v0 type veth peer name v1");
            let port = link("v0").unwrap();
            let (other, own) = (program("guard"), program(OUR_NAME));
            run("tc", "qdisc add dev v0 clsact");
            add_filter(&own, &port, "left behind");
            let (mut links, mut expected) = (Vec::new(), Vec::new());
            // Linux 6.6; older ones only have the filter.
            if SchedClassifier::query_tcx("v0", TcAttachType::Ingress).is_ok() {
                links = vec![attach_tcx(&other, &port), attach_tcx(&own, &port)];
                expected = vec![(Hook::Tcx, "guard", false), (Hook::Tcx, OUR_NAME, true)];
            }
            expected.push((Hook::Filter, OUR_NAME, true));
            let found = foreign_programs(&port).unwrap();
            let seen: Vec<_> = found
                .iter()
                .map(|p| (p.hook, p.name.as_str(), p.ours))
                .collect();
            assert_eq!(seen, expected);
            let ids = found.iter().filter(|p| p.ours).map(|p| p.id);
            assert!(
                ids.clone()
                    .all(|id| id.is_some() && id == found.last().unwrap().id)
            );
            drop(links);
            // A child that another test forks holds copies of the links until it runs its program.
            let deadline = Instant::now() + Duration::from_secs(10);
            while foreign_programs(&port).unwrap().len() != 1 {
                assert!(Instant::now() < deadline, "the dropped links stay");
                sleep(Duration::from_millis(5));
            }
        });
    }

    #[test]
    fn a_port_that_has_gone_is_an_error() {
        in_namespace(|| {
            ip("link add v0 type veth peer name v1");
            let port = link("v0").unwrap();
            ip("link del v0");
            let error = foreign_programs(&port).unwrap_err();
            assert!(matches!(error, Error::NoSuchLink { .. }), "{error}");
        });
    }
}
