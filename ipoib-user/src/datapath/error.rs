//! Why a datapath does not start or goes wrong: one line each, with the remedy.

use crate::host::{self, ForeignProgram, Obstacle, PortProblem};
use std::io;
use std::path::PathBuf;

/// Everything that can go wrong with a datapath.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each text says what the variant means")]
pub enum Error {
    #[error("this binary was built without the eBPF object: build it with `cargo xtask build`")]
    NoObject,
    #[error(
        "loading needs root or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; missing: {missing}: run it with sudo"
    )]
    Capabilities { missing: String },
    #[error("Linux {release} is too old: 6.1 or newer is needed")]
    KernelTooOld { release: String },
    #[error("this kernel has no BTF at {path}: use one built with CONFIG_DEBUG_INFO_BTF=y")]
    NoBtf { path: &'static str },
    #[error("this kernel has no bpf() system call: use one built with CONFIG_BPF_SYSCALL=y")]
    NoBpf,
    #[error("no port named: give at least one interface with --ib or --eth")]
    NoPorts,
    #[error("interface {0} is named twice: name each port once")]
    DuplicatePort(String),
    #[error("{got} ports are named, {max} are possible: name fewer")]
    TooManyPorts { got: usize, max: u32 },
    #[error("{0}")]
    PortProblem(PortProblem),
    #[error("refusing to accelerate, because packets would pass by {}", join(.0))]
    Obstacles(Vec<Obstacle>),
    #[error("another program is attached: {}: say `--order before` or `--order after` to share the port with it", join(.0))]
    PortTaken(Vec<ForeignProgram>),
    #[error("{path} is in use by a running ipoib: stop that one, or give another --pin-root")]
    AlreadyRunning { path: PathBuf },
    #[error(
        "{path} is not on a bpf file system: mount one (`mount -t bpf bpf /sys/fs/bpf`) or give another --pin-root"
    )]
    NotBpffs { path: PathBuf },
    #[error("{what} {path}: {error}")]
    Pin {
        what: &'static str,
        path: PathBuf,
        error: String,
    },
    #[error("the kernel's verifier refused the program {program} ({error}): {log}")]
    Verifier {
        program: &'static str,
        error: io::Error,
        log: String,
    },
    #[error(
        "loading the eBPF object: {0}: is this binary of one build with its object? rebuild it"
    )]
    Load(String),
    #[error("attaching to {port}: {error}")]
    Attach { port: String, error: String },
    #[error("map {name}: {error}")]
    Map { name: &'static str, error: String },
    #[error("this host has more than {max} addresses: the datapath can't know them all")]
    TooManyAddresses { max: u32 },
    #[error(transparent)]
    Host(#[from] host::Error),
}

impl Error {
    /// The exit code that the error deserves (see [`crate::cli`]).
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::NoPorts | Error::DuplicatePort(_) | Error::TooManyPorts { .. } => 2,
            Error::Host(error) => error.exit_code(),
            _ => 3,
        }
    }
}

fn join<T: ToString>(items: &[T]) -> String {
    items
        .iter()
        .map(T::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}
