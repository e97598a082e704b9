//! The eBPF object: can this kernel take it, load it, and say in one line why not.

use super::error::Error;
use aya::programs::{ProgramError, SchedClassifier};
use aya::{Ebpf, EbpfError, EbpfLoader, VerifierLogLevel};
use ipoib_ebpf::tables::names;
use std::path::Path;
use std::{fs, io};

/// The object that `cargo xtask build` embedded; empty in a plain `cargo build`.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/ipoib-ebpf.o"));

const VMLINUX_BTF: &str = "/sys/kernel/btf/vmlinux";
/// Bits of the capability sets (`linux/capability.h`).
const NEEDED: [(u32, &str); 3] = [(39, "CAP_BPF"), (12, "CAP_NET_ADMIN"), (38, "CAP_PERFMON")];
const CAP_SYS_ADMIN: u32 = 21;
/// How often a program is offered again to a verifier that a signal has interrupted.
const RETRIES: usize = 3;
/// Oldest release that the project is tried on.
const OLDEST: (u32, u32) = (6, 1);

/// Checks what loading needs, before anything is changed.
pub fn check_kernel() -> Result<(), Error> {
    let release = nix::sys::utsname::uname()
        .map(|u| u.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    if version(&release).is_some_and(|v| v < OLDEST) {
        return Err(Error::KernelTooOld { release });
    }
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let missing = missing_capabilities(effective_capabilities(&status));
    if !missing.is_empty() {
        return Err(Error::Capabilities {
            missing: missing.join(", "),
        });
    }
    if !Path::new(VMLINUX_BTF).exists() {
        return Err(Error::NoBtf { path: VMLINUX_BTF });
    }
    Ok(())
}

/// Loads the maps and verifies the program; attaches nothing.
pub fn load(object: &[u8]) -> Result<Ebpf, Error> {
    if object.is_empty() {
        return Err(Error::NoObject);
    }
    let mut loader = EbpfLoader::new();
    loader.verifier_log_level(VerifierLogLevel::VERBOSE);
    let mut ebpf = loader.load(object).map_err(|error| match &error {
        EbpfError::MapError(aya::maps::MapError::CreateError { io_error, .. })
            if io_error.raw_os_error() == Some(libc::ENOSYS) =>
        {
            Error::NoBpf
        }
        _ => Error::Load(chain(&error)),
    })?;
    let mut verified = ingress(&mut ebpf)?.load();
    for _ in 0..RETRIES {
        match &verified {
            // A signal interrupts the verifier; what aya then asks it for is a log without an end.
            Err(ProgramError::LoadError { io_error, .. })
                if matches!(
                    io_error.raw_os_error(),
                    Some(libc::EINTR | libc::EAGAIN | libc::ENOSPC)
                ) =>
            {
                verified = ingress(&mut ebpf)?.load();
            }
            _ => break,
        }
    }
    match verified {
        Ok(()) => Ok(ebpf),
        Err(ProgramError::LoadError {
            io_error,
            verifier_log,
        }) => Err(Error::Verifier {
            program: names::INGRESS,
            error: io_error,
            log: what_matters(&format!("{verifier_log}")),
        }),
        Err(error) => Err(Error::Load(chain(&error))),
    }
}

/// The ingress program of a loaded object.
pub fn ingress(ebpf: &mut Ebpf) -> Result<&mut SchedClassifier, Error> {
    ebpf.program_mut(names::INGRESS)
        .ok_or_else(|| Error::Load(format!("it has no program {}", names::INGRESS)))?
        .try_into()
        .map_err(|error: ProgramError| Error::Load(chain(&error)))
}

/// An error and its causes on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !line.contains(&cause_text) {
            line = format!("{line}: {cause_text}");
        }
        next = cause.source();
    }
    line.lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// The end of a verifier log without its statistics: the instruction that was refused and why.
fn what_matters(log: &str) -> String {
    let lines: Vec<&str> = log
        .lines()
        .map(str::trim)
        .filter(|line| {
            let statistics = [
                "processed ",
                "verification time",
                "stack depth",
                "max_states",
            ];
            !line.is_empty() && !statistics.iter().any(|s| line.starts_with(s))
        })
        .collect();
    if lines.is_empty() {
        return "it gave no reason (a sandbox or a security module may forbid bpf())".to_owned();
    }
    lines[lines.len().saturating_sub(2)..].join(" | ")
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn effective_capabilities(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

fn missing_capabilities(effective: u64) -> Vec<&'static str> {
    let has = |bit: u32| effective & 1 << bit != 0;
    let admin = has(CAP_SYS_ADMIN);
    NEEDED
        .into_iter()
        // CAP_SYS_ADMIN contained CAP_BPF and CAP_PERFMON before they were split off, and still does.
        .filter(|&(bit, name)| !(has(bit) || admin && name != "CAP_NET_ADMIN"))
        .map(|(_, name)| name)
        .collect()
}

/// The error of a system call on one line, from aya's syscall error.
pub fn io_of(error: &ProgramError) -> Option<&io::Error> {
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_as_distributions_write_them() {
        assert_eq!(version("6.1.0-57-amd64"), Some((6, 1)));
        assert_eq!(version("5.15.0-1034-aws"), Some((5, 15)));
        assert_eq!(version("6.18.44-fc-v782"), Some((6, 18)));
        assert_eq!(version("odd"), None);
    }

    #[test]
    fn missing_capabilities_are_named() {
        assert_eq!(
            missing_capabilities(0),
            ["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"]
        );
        assert_eq!(missing_capabilities(1 << 21), ["CAP_NET_ADMIN"]);
        assert_eq!(missing_capabilities(1 << 39 | 1 << 12 | 1 << 38), [""; 0]);
        assert_eq!(
            effective_capabilities("Name:\tx\nCapEff:\t0000000000001000\n"),
            1 << 12
        );
    }

    #[test]
    fn a_verifier_log_is_cut_to_what_matters() {
        let log = "func#0 @0\n0: R1=ctx() R10=fp0\n0: (61) r2 = *(u32 *)(r1 +9999)\n\
                   invalid bpf_context access off=9999 size=4\nprocessed 1 insns (limit 1000000)\n";
        assert_eq!(
            what_matters(log),
            "0: (61) r2 = *(u32 *)(r1 +9999) | invalid bpf_context access off=9999 size=4"
        );
        assert!(what_matters("processed 0 insns\n").contains("no reason"));
    }

    /// The object with a first instruction that reads past the context.
    #[test]
    fn a_program_that_the_verifier_refuses_is_said_in_one_line() {
        use object::{Object, ObjectSection};
        let mut bytes = OBJECT.to_vec();
        assert!(!bytes.is_empty(), "no eBPF object: run `cargo xtask test`");
        let (at, _) = object::File::parse(OBJECT)
            .unwrap()
            .section_by_name("classifier")
            .expect("a section of programs")
            .file_range()
            .unwrap();
        // r0 = *(u64 *)(r1 + 0x7ff8)
        let instruction = [0x79, 0x10, 0xf8, 0x7f, 0, 0, 0, 0];
        bytes[at as usize..][..8].copy_from_slice(&instruction);
        let Err(error) = load(&bytes) else {
            panic!("the verifier took it");
        };
        let text = error.to_string();
        assert!(matches!(error, Error::Verifier { .. }), "{text}");
        assert!(text.contains("invalid bpf_context access"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.len() < 600, "{text}");
    }

    #[test]
    fn an_empty_object_says_how_to_build_one() {
        assert!(matches!(load(&[]), Err(Error::NoObject)));
        assert!(matches!(load(b"not an ELF"), Err(Error::Load(_))));
    }
}
