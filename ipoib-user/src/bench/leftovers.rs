//! What benchmarks that were killed left behind: their namespaces, with everything in them, and
//! their pins.

use super::topology::PURPOSE;
use crate::{datapath, netns};
use std::fs;
use std::path::{Path, PathBuf};

const BPFFS: &str = "/sys/fs/bpf";
const PREFIX: &str = "ipoib-bench-";

/// This process's pin root.
pub fn pin_root() -> PathBuf {
    Path::new(BPFFS).join(format!("{PREFIX}{}", std::process::id()))
}

/// Removes it all and returns what was removed. Pins that can't be removed stay: they harm nobody.
pub fn remove() -> Result<Vec<String>, netns::Error> {
    let mut removed = netns::remove_leftovers(PURPOSE)?;
    for entry in fs::read_dir(BPFFS).into_iter().flatten().flatten() {
        let root = entry.path();
        // A process of ours takes the lock of its pins a moment after it has made them.
        let owner = root.file_name().and_then(|name| owner(name.to_str()?));
        if owner.is_some_and(|pid| !is_ours(pid)) && datapath::remove_leftovers(&root).is_ok() {
            removed.push(root.display().to_string());
        }
    }
    Ok(removed)
}

/// The process whose pin root has that name.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// Whether there is a process of that id which is an `ipoib`, or this one.
fn is_ours(pid: u32) -> bool {
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    pid == std::process::id() || program.starts_with("ipoib")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pin_roots_of_benchmarks_have_an_owner() {
        let this = pin_root();
        assert_eq!(
            owner(this.file_name().unwrap().to_str().unwrap()),
            Some(std::process::id())
        );
        for other in ["ipoib", "ipoib-demo-17", "ipoib-bench-", "ipoib-bench-x"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    fn this_process_is_spared_and_a_foreign_one_is_not() {
        assert!(is_ours(std::process::id()));
        assert!(!is_ours(1));
    }
}
