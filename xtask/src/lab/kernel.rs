//! A Debian kernel for the VM: its image, its modules and its headers, fetched from the archive that
//! the machine's apt names and unpacked below `target/lab/<version>`; nothing is installed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command;
use crate::setup::{Setup, apt};

/// Parts of the kernel's module tree that a lab can use; the rest is deleted (most of 400 MB).
const KEPT: [&str; 16] = [
    "arch",
    "crypto",
    "drivers/block",
    "drivers/char",
    "drivers/infiniband",
    "drivers/net",
    "drivers/virtio",
    "fs/9p",
    "fs/configfs",
    "fs/fscache",
    "fs/netfs",
    "fs/overlayfs",
    "lib",
    "net",
    "security",
    "kernel",
];

/// Below `drivers/net`, which is mostly drivers of hardware.
const KEPT_NET: [&str; 2] = ["bonding", "vxlan"];

/// An unpacked kernel.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// As `uname -r` says it.
    pub release: String,
    /// Everything of this kernel.
    pub folder: PathBuf,
}

impl Kernel {
    /// Takes the kernel that is there, or brings it.
    pub fn ensure(setup: &Setup, lab: &Path, version: &str) -> Result<Self> {
        if !is_version(version) {
            bail!("--kernel {version}: name two numbers, such as 6.1 or 6.12");
        }
        let folder = lab.join(version);
        let mark = folder.join("release");
        if let Ok(release) = fs::read_to_string(&mark) {
            return Ok(Self {
                release: release.trim().to_owned(),
                folder,
            });
        }
        let release = bring(setup, &folder, version)
            .with_context(|| format!("kernel {version}: cannot be had"))?;
        fs::write(&mark, format!("{release}\n"))
            .with_context(|| format!("cannot write {}", mark.display()))?;
        Ok(Self { release, folder })
    }

    /// Where the packages are unpacked.
    fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// The image to boot.
    pub fn image(&self) -> PathBuf {
        self.root().join(format!("boot/vmlinuz-{}", self.release))
    }

    /// The folder that holds `lib/modules`.
    pub fn modules_base(&self) -> PathBuf {
        self.root()
    }

    /// The folder of this kernel's modules.
    pub fn modules(&self) -> PathBuf {
        self.root().join("lib/modules").join(&self.release)
    }

    /// The headers to build a module with.
    pub fn headers(&self) -> PathBuf {
        headers(&self.root(), &self.release)
    }
}

fn headers(root: &Path, release: &str) -> PathBuf {
    root.join(format!("usr/src/linux-headers-{release}"))
}

/// Whether this is the shape of a kernel version: `6.1`.
fn is_version(text: &str) -> bool {
    text.split_once('.').is_some_and(|(major, minor)| {
        [major, minor]
            .iter()
            .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Fetches and unpacks everything into `folder/root`; returns the release.
fn bring(setup: &Setup, folder: &Path, version: &str) -> Result<String> {
    if let Some(bad) = folder.to_str().filter(|text| text.contains([' ', ':'])) {
        bail!("{bad}: a kernel module can't be built below a path with a blank or a colon");
    }
    let is_wanted = |found: &str| {
        apt::upstream(found)
            .strip_prefix(version)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let wanted = format!("a Linux {version} (6.1 and 6.12 are Debian's)");
    let package = |name: &str| {
        apt::fetch(setup, name, &format!("{name} for Linux {version}"), |_| {
            true
        })
    };
    // The package without a number says which one is current.
    let current = apt::fetch(setup, "linux-image-amd64", &wanted, is_wanted)?;
    let release = depends(&current)?
        .iter()
        .find_map(|name| name.strip_prefix("linux-image-").map(str::to_owned))
        .with_context(|| format!("{} depends on no kernel image", current.display()))?;

    let root = folder.join("root.new");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
    unpack(&package(&format!("linux-image-{release}"))?, &root)?;
    let base = package(&format!("linux-headers-{release}"))?;
    let needs = depends(&base)?;
    unpack(&base, &root)?;
    for name in needs {
        if name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-") {
            unpack(&package(&name)?, &root)?;
        }
    }
    setup.action(&format!("kernel {release}: preparing modules and headers"));
    prune(&root.join("lib/modules").join(&release).join("kernel"))?;
    decompress(&root.join("lib/modules").join(&release))?;
    command::output(
        Command::new(super::busybox()?)
            .args(["depmod", "-b"])
            .arg(&root)
            .arg(&release),
    )?;
    let done = folder.join("root");
    let _ = fs::remove_dir_all(&done);
    fs::rename(&root, &done)?;
    relocate(&done, &release)?;
    Ok(release)
}

/// The names in a package's `Depends`.
fn depends(package: &Path) -> Result<Vec<String>> {
    let text = command::output(
        Command::new("dpkg-deb")
            .arg("--field")
            .arg(package)
            .arg("Depends"),
    )?;
    Ok(names(&text))
}

fn names(depends: &str) -> Vec<String> {
    depends
        .split([',', '|'])
        .filter_map(|item| item.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

fn unpack(package: &Path, root: &Path) -> Result<()> {
    command::output(Command::new("dpkg-deb").arg("-x").arg(package).arg(root))?;
    // Seventy megabytes that are not looked at again.
    let _ = fs::remove_file(package);
    Ok(())
}

/// Deletes the modules of hardware that the VM does not have.
fn prune(tree: &Path) -> Result<()> {
    let keep = |relative: &Path| {
        KEPT.iter()
            .any(|kept| Path::new(kept).starts_with(relative) || relative.starts_with(kept))
    };
    let mut folders = vec![tree.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)
            .with_context(|| format!("the kernel package has no {}", folder.display()))?
        {
            let path = entry?.path();
            if !path.is_dir() {
                continue;
            }
            let relative = path.strip_prefix(tree).unwrap_or(&path);
            let of_net = relative.strip_prefix("drivers/net").is_ok_and(|rest| {
                !rest.as_os_str().is_empty() && !KEPT_NET.iter().any(|k| rest.starts_with(k))
            });
            if !keep(relative) || of_net {
                fs::remove_dir_all(&path)?;
            } else {
                folders.push(path);
            }
        }
    }
    Ok(())
}

/// Newer packages hold `*.ko.xz`; the lab's own list of modules wants plain ones.
fn decompress(tree: &Path) -> Result<()> {
    let mut folders = vec![tree.to_owned()];
    let mut packed = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if entry.path().extension().is_some_and(|e| e == "xz") {
                packed.push(entry.path());
            }
        }
    }
    if !packed.is_empty() {
        command::output(Command::new(super::busybox()?).arg("unxz").args(packed))?;
    }
    Ok(())
}

/// The headers name each other by the paths that they would be installed under; and where they
/// hold the kernel's types, building a module takes pahole, for types that nobody asks for.
fn relocate(root: &Path, release: &str) -> Result<()> {
    let makefile = headers(root, release).join("Makefile");
    let text = fs::read_to_string(&makefile)
        .with_context(|| format!("the headers have no {}", makefile.display()))?;
    let text = text.replace(
        " /usr/src/",
        &format!(" {}/", root.join("usr/src").display()),
    );
    fs::write(&makefile, text)?;
    match fs::remove_file(headers(root, release).join("vmlinux")) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_two_numbers() {
        assert!(is_version("6.1") && is_version("6.12"));
        for wrong in ["6", "6.", "6.1.3", "latest", "6.x", ""] {
            assert!(!is_version(wrong), "{wrong}");
        }
    }

    #[test]
    fn the_names_of_a_dependency_list_are_read() {
        assert_eq!(
            names("linux-headers-6.1.0-9-common (= 6.1.1-1), a | b (>> 2)\n"),
            ["linux-headers-6.1.0-9-common", "a", "b"]
        );
    }

    #[test]
    fn modules_of_hardware_are_deleted_and_those_of_a_lab_are_kept() {
        let tree = std::env::temp_dir().join(format!("xtask-prune-{}", std::process::id()));
        let all = [
            "drivers/gpu/drm/i915",
            "drivers/net/ethernet/intel",
            "drivers/net/bonding",
            "drivers/infiniband/ulp/ipoib",
            "net/sched",
            "sound/core",
        ];
        for folder in all {
            fs::create_dir_all(tree.join(folder)).unwrap();
        }
        prune(&tree).unwrap();
        let left: Vec<_> = all.iter().filter(|f| tree.join(f).exists()).collect();
        fs::remove_dir_all(&tree).unwrap();
        assert_eq!(
            left,
            [
                &"drivers/net/bonding",
                &"drivers/infiniband/ulp/ipoib",
                &"net/sched"
            ]
        );
    }
}
