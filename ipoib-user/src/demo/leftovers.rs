//! What demos that were killed left behind: their namespaces, with everything in them, and their
//! pins.

use super::topology::PURPOSE;
use crate::netns;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const BPFFS: &str = "/sys/fs/bpf";
const PREFIX: &str = "ipoib-demo-";

/// This process's pin root.
pub fn pin_root() -> PathBuf {
    Path::new(BPFFS).join(format!("{PREFIX}{}", std::process::id()))
}

/// Removes it all and returns what was removed.
pub fn remove() -> Result<Vec<String>, netns::Error> {
    let mut removed = netns::remove_leftovers(PURPOSE)?;
    removed.extend(remove_pins(Path::new(BPFFS)));
    Ok(removed)
}

/// A directory that can't be removed is left: it harms nobody.
fn remove_pins(bpffs: &Path) -> Vec<String> {
    let entries = fs::read_dir(bpffs).into_iter().flatten().flatten();
    let dead = entries
        .map(|entry| entry.path())
        .filter(|path| is_dead(path));
    dead.filter(|path| fs::remove_dir_all(path).is_ok())
        .map(|path| path.display().to_string())
        .collect()
}

/// A running datapath holds a lock on its pin root. It is taken a moment after the directory is
/// made, so a process of that id that looks like ours is spared, too.
fn is_dead(root: &Path) -> bool {
    let name = root
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let Some(pid) = name
        .strip_prefix(PREFIX)
        .and_then(|pid| pid.parse::<u32>().ok())
    else {
        return false;
    };
    let locked = || File::open(root).is_ok_and(|file| file.try_lock().is_err());
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    pid != std::process::id() && !program.starts_with("ipoib") && !locked()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process id that is in use by a program that is not ours.
    const INIT: u32 = 1;
    /// Above the largest that the kernel gives out.
    const DEAD: u32 = 1 << 30;

    #[test]
    fn only_pins_of_the_dead_are_removed() {
        let bpffs = std::env::temp_dir().join(format!("ipoib-leftovers-{}", std::process::id()));
        let root = |name: &str| bpffs.join(name);
        let dead = root(&format!("{PREFIX}{DEAD}"));
        let recycled = root(&format!("{PREFIX}{INIT}"));
        let locked = root(&format!("{PREFIX}{}", DEAD + 1));
        let ours = root(&format!("{PREFIX}{}", std::process::id()));
        let foreign = [root("ipoib"), root("ipoib-demo-x"), root("other-17")];
        for path in [&dead, &recycled, &locked, &ours]
            .into_iter()
            .chain(&foreign)
        {
            fs::create_dir_all(path.join("v1/maps")).unwrap();
        }
        let lock = File::open(&locked).unwrap();
        lock.lock().unwrap();

        let mut removed = remove_pins(&bpffs);
        removed.sort();
        assert_eq!(
            removed,
            [&recycled, &dead].map(|path| path.display().to_string())
        );
        assert!(!dead.exists() && !recycled.exists());
        assert!(locked.exists() && ours.exists());
        assert!(foreign.iter().all(|path| path.exists()));
        fs::remove_dir_all(&bpffs).unwrap();
    }

    #[test]
    fn a_system_without_bpffs_has_none() {
        assert!(remove_pins(Path::new("/nowhere")).is_empty());
    }
}
