//! The pin directory: `ROOT/v1/{maps,progs}` on a bpffs, mode 0700, held by one process at a time.

use super::error::Error;
use ipoib_ebpf::tables::names;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Layout version of the maps; another layout lives in another directory.
const VERSION: &str = "v1";
/// Where bpffs is mounted by convention.
const BPFFS: &str = "/sys/fs/bpf";

/// A pin directory that this process holds. Dropping it removes everything in it, and the
/// directories above it that were made for it.
#[derive(Debug)]
pub struct Pins {
    root: PathBuf,
    /// Directories that were made, the innermost first.
    made: Vec<PathBuf>,
    _lock: Flock<File>,
}

impl Pins {
    /// Makes the directory and takes it, after what a dead process left there was looked at by
    /// `leftover` and removed.
    pub fn take(root: &Path, leftover: impl FnOnce(&Path)) -> Result<Self, Error> {
        mount_bpffs(root)?;
        let missing = root.ancestors().take_while(|path| !path.exists());
        let made = missing.map(Path::to_owned).collect();
        make(root)?;
        let lock = lock(root)?;
        let version = root.join(VERSION);
        if version.exists() {
            leftover(&version.join("progs").join(pin_name(names::INGRESS)));
            remove(&version)?;
        }
        let pins = Pins {
            root: root.to_owned(),
            made,
            _lock: lock,
        };
        for directory in [
            pins.root.join(VERSION),
            pins.directory("maps"),
            pins.directory("progs"),
        ] {
            make(&directory)?;
        }
        Ok(pins)
    }

    /// Where the map of that name is pinned.
    pub fn map(&self, name: &str) -> PathBuf {
        self.directory("maps").join(pin_name(name))
    }

    /// Where the program of that name is pinned.
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory("progs").join(pin_name(name))
    }

    fn directory(&self, kind: &str) -> PathBuf {
        self.root.join(VERSION).join(kind)
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        // What stays behind is taken over by the next start, so there is nothing to say here.
        let _ = remove(&self.root.join(VERSION));
        let _ = fs::remove_dir(&self.root);
        for directory in &self.made {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// In a directory of our own the prefix says nothing.
fn pin_name(name: &str) -> &str {
    name.strip_prefix("ipoib_").unwrap_or(name)
}

fn make(path: &Path) -> Result<(), Error> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| Error::Pin {
            what: "making the pin directory",
            path: path.to_owned(),
            error: error.to_string(),
        })
}

fn remove(path: &Path) -> Result<(), Error> {
    fs::remove_dir_all(path).map_err(|error| Error::Pin {
        what: "removing the pins of a dead ipoib in",
        path: path.to_owned(),
        error: error.to_string(),
    })
}

fn lock(root: &Path) -> Result<Flock<File>, Error> {
    let file = File::open(root).map_err(|error| Error::Pin {
        what: "opening the pin directory",
        path: root.to_owned(),
        error: error.to_string(),
    })?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| Error::AlreadyRunning {
        path: root.to_owned(),
    })
}

/// Minimal systems don't mount bpffs; the conventional place is ours to mount.
fn mount_bpffs(root: &Path) -> Result<(), Error> {
    let on_bpffs = |path: &Path| statfs(path).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC);
    let existing = root
        .ancestors()
        .find(|p| p.exists())
        .unwrap_or(Path::new("/"));
    if on_bpffs(existing) {
        return Ok(());
    }
    if root.starts_with(BPFFS)
        && mount(
            Some("bpf"),
            BPFFS,
            Some("bpf"),
            MsFlags::empty(),
            Some("mode=700"),
        )
        .is_ok()
    {
        return Ok(());
    }
    Err(Error::NotBpffs {
        path: root.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_elsewhere_is_refused() {
        let error = Pins::take(Path::new("/tmp/ipoib-not-bpffs"), |_| {}).unwrap_err();
        assert!(matches!(error, Error::NotBpffs { .. }), "{error}");
        assert!(!Path::new("/tmp/ipoib-not-bpffs").exists());
    }

    #[test]
    fn one_process_holds_it_and_nothing_stays_behind() {
        let root = PathBuf::from(format!(
            "/sys/fs/bpf/ipoib-test-pins-{}",
            std::process::id()
        ));
        let pins = Pins::take(&root, |_| panic!("nothing is left over")).expect("needs root");
        assert!(matches!(
            Pins::take(&root, |_| {}),
            Err(Error::AlreadyRunning { .. })
        ));
        assert!(pins.map(names::PORTS).parent().unwrap().is_dir());
        drop(pins);
        assert!(!root.exists());
    }

    #[test]
    fn directories_made_on_the_way_go_too_and_others_stay() {
        let top = PathBuf::from(format!(
            "/sys/fs/bpf/ipoib-test-deep-{}",
            std::process::id()
        ));
        mount_bpffs(&top).expect("needs root");
        drop(Pins::take(&top.join("a/b"), |_| {}).unwrap());
        assert!(!top.exists());
        fs::create_dir(&top).unwrap();
        drop(Pins::take(&top.join("a/b"), |_| {}).unwrap());
        assert_eq!(fs::read_dir(&top).unwrap().count(), 0);
        fs::remove_dir(&top).unwrap();
    }

    #[test]
    fn what_a_dead_process_left_is_looked_at_and_removed() {
        let root = PathBuf::from(format!(
            "/sys/fs/bpf/ipoib-test-left-{}",
            std::process::id()
        ));
        mount_bpffs(&root).expect("needs root");
        fs::create_dir_all(root.join("v1/old")).unwrap();
        let mut seen = None;
        let pins = Pins::take(&root, |program| seen = Some(program.to_owned())).unwrap();
        assert_eq!(seen, Some(root.join("v1/progs/ingress")));
        assert!(!root.join("v1/old").exists());
        drop(pins);
    }
}
