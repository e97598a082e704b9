//! Why the host could not be read: a closed enum, one line each, with what to do about it.

use aya::programs::ProgramError;
use std::io;

/// What ends a look at the host early. Each is one line: what, where, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No interface of the namespace has that name.
    #[error("no interface is called {name:?}: {remedy}")]
    NoSuchLink {
        /// The name that was asked for.
        name: String,
        /// Which names would do.
        remedy: String,
    },
    /// The kernel refused a question over netlink.
    #[error("can't read {what}: {}: {}", reason(.source, .text.as_deref()), remedy(.source))]
    Netlink {
        /// What was read ("the links").
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
        /// The kernel's own words about it, where it gave any (extended acknowledgement).
        text: Option<String>,
    },
    /// Every one of several readings was interrupted by a change.
    #[error("{what} kept changing while they were read: try again when the host has settled")]
    Unsettled {
        /// What was read.
        what: &'static str,
    },
    /// A file of the kernel could not be read.
    #[error("can't read {path}: {source}: {}", remedy(.source))]
    Proc {
        /// The file.
        path: String,
        /// The error.
        source: io::Error,
    },
    /// A file of the kernel holds something else than a number.
    #[error("{path} holds {text:?} where a number is expected: is that /proc the kernel's own?")]
    NotANumber {
        /// The file.
        path: String,
        /// What it holds.
        text: String,
    },
    /// The kernel refused to say which eBPF programs a port has.
    #[error("can't read the programs on {port}: {}", program_reason(.source))]
    Programs {
        /// Name of the port.
        port: String,
        /// The error.
        source: ProgramError,
    },
}

impl Error {
    /// The exit code that the error deserves (see [`crate::cli`]): 2 for a wrong name, 3 where the
    /// host can't.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::NoSuchLink { .. } => 2,
            Error::Netlink { .. }
            | Error::Unsettled { .. }
            | Error::Proc { .. }
            | Error::NotANumber { .. }
            | Error::Programs { .. } => 3,
        }
    }

    /// Whether the kernel answered that it has no such subsystem: built without it, or its module
    /// is not there. Which errno says so differs by subsystem and version.
    pub(super) fn is_absent(&self) -> bool {
        let Error::Netlink { source, .. } = self else {
            return false;
        };
        matches!(
            source.raw_os_error(),
            Some(
                libc::EINVAL
                    | libc::ENOENT
                    | libc::EOPNOTSUPP
                    | libc::EPROTONOSUPPORT
                    | libc::EAFNOSUPPORT
            )
        )
    }
}

fn reason(source: &io::Error, text: Option<&str>) -> String {
    match text {
        Some(text) => format!("{source}, {text}"),
        None => source.to_string(),
    }
}

fn remedy(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "run as root, or with CAP_NET_ADMIN and CAP_BPF",
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (ulimit -n)",
        Some(libc::ENOMEM | libc::ENOBUFS) => "free some memory",
        Some(libc::ENOENT) => "is /proc mounted?",
        Some(libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT | libc::ENOSYS) => {
            "this kernel lacks it: use one that has it"
        }
        _ => "the kernel log (dmesg) may say more",
    }
}

fn program_reason(error: &ProgramError) -> String {
    match error {
        ProgramError::SyscallError(error) => {
            format!(
                "{}: {}: {}",
                error.call,
                error.io_error,
                remedy(&error.io_error)
            )
        }
        other => format!("{other}: the kernel log (dmesg) may say more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn netlink(errno: i32, text: Option<&str>) -> Error {
        Error::Netlink {
            what: "the links",
            source: io::Error::from_raw_os_error(errno),
            text: text.map(str::to_owned),
        }
    }

    #[test]
    fn a_refusal_says_what_why_and_the_remedy() {
        assert_eq!(
            netlink(libc::EPERM, Some("not in this namespace")).to_string(),
            "can't read the links: Operation not permitted (os error 1), not in this namespace: \
             run as root, or with CAP_NET_ADMIN and CAP_BPF"
        );
        assert_eq!(netlink(libc::EPERM, None).exit_code(), 3);
    }

    #[test]
    fn a_missing_subsystem_is_told_from_a_refusal() {
        assert!(netlink(libc::EPROTONOSUPPORT, None).is_absent());
        assert!(!netlink(libc::EPERM, None).is_absent());
        assert!(!Error::Unsettled { what: "the links" }.is_absent());
    }
}
