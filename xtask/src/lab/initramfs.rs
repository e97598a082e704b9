//! What the kernel finds in memory: busybox, the modules in the order in which they must be loaded,
//! the init of `tests/lab`, and behind it what belongs to one run.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::cpio::Archive;
use super::kernel::Kernel;

/// Modules without which the host's file system is out of reach.
const BOOT: [&str; 4] = ["virtio_pci", "virtio_console", "9p", "overlay"];
/// On which 9p and its transport do not depend by symbol.
const BOOT_TRANSPORT: &str = "9pnet_virtio";
/// Modules that the lab needs before the virtual HCAs.
const LAB: [&str; 6] = [
    "ib_cm",
    "ib_uverbs",
    "rdma_cm",
    "rdma_ucm",
    "ib_umad",
    "veth",
];
/// Those that look for HCAs.
const LATE: [&str; 1] = ["ib_ipoib"];

/// Programs that the init calls by name.
const APPLETS: [&str; 18] = [
    "sh", "mount", "mkdir", "insmod", "modprobe", "chroot", "nsenter", "ping", "ip", "stty",
    "setsid", "cp", "ln", "sleep", "sync", "uname", "poweroff", "cat",
];

/// The part that a kernel's runs share, and the order of its modules as shell variables.
pub struct Base {
    /// The archive.
    pub archive: Vec<u8>,
    /// Assignments for `/lab/config`.
    pub variables: String,
}

/// Builds the shared part.
pub fn base(kernel: &Kernel, vhca: &Path, busybox: &Path, init: &Path) -> Result<Base> {
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let modules = kernel.modules();
    let dependencies = fs::read_to_string(modules.join("modules.dep"))
        .with_context(|| format!("{} has no list of modules", modules.display()))?;
    let builtin = fs::read_to_string(modules.join("modules.builtin")).unwrap_or_default();
    let mut order = Order {
        dependencies: &dependencies,
        builtin: &builtin,
        seen: HashSet::new(),
    };
    let mut boot: Vec<&str> = Vec::new();
    for name in BOOT.iter().chain([&BOOT_TRANSPORT]) {
        boot.extend(order.of(name)?);
    }
    let lab = LAB.map(|name| order.of(name)).into_iter();
    let lab = lab.collect::<Result<Vec<_>>>()?.concat();
    let late = LATE.map(|name| order.of(name)).into_iter();
    let late = late.collect::<Result<Vec<_>>>()?.concat();

    let mut archive = Archive::default();
    for folder in [
        "bin", "sbin", "dev", "proc", "sys", "lib", "modules", "host", "memory", "root", "lab",
    ] {
        archive.folder(folder);
    }
    archive.file("bin/busybox", &read(busybox)?);
    for applet in APPLETS {
        archive.link(&format!("bin/{applet}"), "busybox");
    }
    // The kernel's helper for modules that are asked for later.
    archive.link("sbin/modprobe", "/bin/busybox");
    archive.file("init", &read(init)?);
    for path in boot.iter().chain(&lab).chain(&late) {
        archive.file(
            &format!("modules/{}", file_name(path)),
            &read(&modules.join(path))?,
        );
    }
    archive.file("modules/vhca.ko", &read(vhca)?);
    let variables = format!(
        "boot_modules='{}'\nmodules='{}'\nlate_modules='{}'\n",
        boot.join(" "),
        lab.join(" "),
        late.join(" ")
    );
    Ok(Base {
        archive: archive.finish(),
        variables,
    })
}

/// The part of one run: its configuration, the network's script and the job.
pub fn run(config: &str, topology: &str, job: &str) -> Vec<u8> {
    let mut archive = Archive::default();
    archive.file("lab/config", config.as_bytes());
    archive.file("lab/topology", topology.as_bytes());
    archive.file("lab/job", job.as_bytes());
    archive.finish()
}

/// Modules in the order in which they can be loaded, each once.
struct Order<'a> {
    /// `modules.dep`: a module, then all that it needs, the most basic last.
    dependencies: &'a str,
    builtin: &'a str,
    seen: HashSet<&'a str>,
}

impl<'a> Order<'a> {
    /// The files that `name` still takes.
    fn of(&mut self, name: &str) -> Result<Vec<&'a str>> {
        let line = self.dependencies.lines().find_map(|line| {
            let (path, needs) = line.split_once(':')?;
            (stem(path) == name).then_some((path, needs))
        });
        let Some((path, needs)) = line else {
            if self.builtin.lines().any(|path| stem(path) == name) {
                return Ok(Vec::new());
            }
            bail!("this kernel has no module {name}: the lab needs Debian's own kernels");
        };
        let all = needs.split_whitespace().rev().chain([path]);
        Ok(all.filter(|path| self.seen.insert(path)).collect())
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The name of a module: its file's, with `_` for `-`.
fn stem(path: &str) -> String {
    file_name(path).trim_end_matches(".ko").replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_after_what_they_need_and_once() {
        let mut order = Order {
            dependencies: "kernel/a/ib_cm.ko: kernel/a/ib_core.ko\nkernel/a/ib_core.ko:\n\
                kernel/b/ib-ipoib.ko: kernel/a/ib_cm.ko kernel/a/ib_core.ko\n",
            builtin: "kernel/net/ipv6/ipv6.ko\n",
            seen: HashSet::new(),
        };
        assert_eq!(
            order.of("ib_ipoib").unwrap(),
            [
                "kernel/a/ib_core.ko",
                "kernel/a/ib_cm.ko",
                "kernel/b/ib-ipoib.ko"
            ]
        );
        assert!(order.of("ib_cm").unwrap().is_empty());
        assert!(order.of("ipv6").unwrap().is_empty());
        assert!(
            order
                .of("floppy")
                .unwrap_err()
                .to_string()
                .contains("no module floppy")
        );
    }
}
