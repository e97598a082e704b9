//! The system's programs that a verb needs: iproute2 and the like through apt-get, and a bpftool
//! that knows tcx links, which may have to come from a newer release than the machine's.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Setup, apt};
use crate::command;

/// The first bpftool that shows tcx links.
const BPFTOOL: (u32, u32) = (7, 5);

/// How long apt-get may take for a few small packages.
const LIMIT: Duration = Duration::from_secs(600);

/// A verb that runs other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `cargo xtask run`
    Run,
    /// `cargo xtask test`
    Test,
    /// `cargo xtask bench`
    Bench,
    /// `cargo xtask lab`
    Lab,
    /// `cargo xtask test --fresh-machine`
    FreshMachine,
}

impl Verb {
    /// Programs and the Debian packages that hold them.
    fn programs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Run | Self::Bench => &[("ip", "iproute2")],
            Self::Test => &[
                ("ip", "iproute2"),
                ("nft", "nftables"),
                ("tcpdump", "tcpdump"),
                ("iptables-legacy", "iptables"),
            ],
            Self::Lab => &[
                ("ip", "iproute2"),
                ("qemu-system-x86_64", "qemu-system-x86"),
                ("busybox", "busybox-static"),
                ("gcc", "gcc"),
                ("make", "make"),
                ("ld", "binutils"),
            ],
            Self::FreshMachine => &[("debootstrap", "debootstrap"), ("git", "git")],
        }
    }

    fn needs_bpftool(self) -> bool {
        self == Self::Test
    }
}

/// Where the programs are.
#[derive(Debug)]
pub struct Tools {
    /// PATH for the children.
    pub path: OsString,
    /// bpftool, where the verb needs one.
    pub bpftool: Option<PathBuf>,
}

/// Finds the programs that `verb` needs, and installs those that are absent.
pub fn ensure(setup: &Setup, verb: Verb) -> Result<Tools> {
    let absent = |programs: &[(&'static str, &'static str)]| -> Vec<_> {
        programs
            .iter()
            .copied()
            .filter(|(program, _)| command::find(program).is_none())
            .collect()
    };
    let wanted = absent(verb.programs());
    if !wanted.is_empty() {
        let packages: Vec<_> = wanted.iter().map(|(_, package)| *package).collect();
        install(setup, &packages)?;
        if let Some((program, package)) = absent(&wanted).first() {
            bail!(
                "{package} is installed, but there is still no `{program}`: look at that package"
            );
        }
    }
    let bpftool = if verb.needs_bpftool() {
        Some(bpftool(setup)?)
    } else {
        None
    };
    Ok(Tools {
        path: path(env::var_os("PATH"), bpftool.as_deref())?,
        bpftool,
    })
}

/// The children's PATH: bpftool's folder, the user's own, and the system's, which users may lack.
fn path(own: Option<OsString>, bpftool: Option<&Path>) -> Result<OsString> {
    let mut folders: Vec<PathBuf> = bpftool
        .and_then(Path::parent)
        .map(Path::to_owned)
        .into_iter()
        .chain(env::split_paths(&own.unwrap_or_default()))
        .collect();
    for system in ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from) {
        if !folders.contains(&system) {
            folders.push(system);
        }
    }
    env::join_paths(folders).context("a folder in PATH has a colon in its name")
}

/// Installs packages of the system's own releases.
fn install(setup: &Setup, packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    if command::find("apt-get").is_none() {
        bail!("{names}: missing, and there is no apt-get here: install them with your system's");
    }
    let remedy = || format!("{names}: could not be installed; try `apt-get install {names}`");
    setup.action(&format!("{names}: installing with apt-get"));
    let log = setup.log("apt-get")?;
    let apt_get = |args: &[&str]| -> Result<()> {
        let quiet = "DEBIAN_FRONTEND".to_owned();
        let mut apt_get = command::as_root(
            "apt-get".as_ref(),
            &[
                (&quiet, "noninteractive".as_ref()),
                ("LC_ALL", "C".as_ref()),
            ],
        )?;
        apt_get.args(["-o", "DPkg::Lock::Timeout=60"]).args(args);
        command::run_within(&mut apt_get, LIMIT, &log)
    };
    let mut args = vec!["install", "--yes", "--no-install-recommends"];
    args.extend(packages);
    if apt_get(&args).is_ok() {
        return Ok(());
    }
    // Fresh machines have no lists of packages, old ones have stale lists.
    setup.action("apt-get: updating the lists of packages first");
    apt_get(&["update"]).with_context(remedy)?;
    apt_get(&args).with_context(remedy)
}

/// A bpftool that is new enough: the system's, one unpacked before, or a package unpacked now.
fn bpftool(setup: &Setup) -> Result<PathBuf> {
    if let Some(system) = command::find("bpftool").filter(|file| is_new_enough(file)) {
        return Ok(system);
    }
    let folder = setup.toolchain.tools().join("bpftool");
    let ours = folder.join("usr/sbin/bpftool");
    if is_new_enough(&ours) {
        return Ok(ours);
    }
    let (major, minor) = BPFTOOL;
    let wanted = format!("bpftool {major}.{minor} or newer");
    let package = apt::fetch(setup, "bpftool", &wanted, |version| {
        numbers(apt::upstream(version)).is_some_and(|version| version >= BPFTOOL)
    })
    .with_context(|| {
        format!("{wanted} (older ones don't know tcx links) is missing and could not be fetched")
    })?;
    apt::unpack(&package, &folder)?;
    if version(&ours).is_none() {
        // A machine without iproute2 may lack libelf; libc is there, or nothing would run.
        let depends = command::output(
            Command::new("dpkg-deb")
                .arg("--field")
                .arg(&package)
                .arg("Depends"),
        )?;
        install(setup, &libraries(&depends))?;
    }
    match version(&ours) {
        Some(_) => Ok(ours),
        None => bail!(
            "{} does not run: this machine's libraries are older than the package's; \
             install bpftool {major}.{minor} or newer",
            ours.display()
        ),
    }
}

fn is_new_enough(bpftool: &Path) -> bool {
    version(bpftool).is_some_and(|version| version >= BPFTOOL)
}

/// The version that a bpftool reports, if it runs at all.
fn version(bpftool: &Path) -> Option<(u32, u32)> {
    if !command::is_executable(bpftool) {
        return None;
    }
    let text = command::output(Command::new(bpftool).arg("version")).ok()?;
    parse_version(&text)
}

/// Reads the first line of `bpftool version`, such as `bpftool v7.5.0`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let line = text.lines().find(|line| line.starts_with("bpftool "))?;
    numbers(line.rsplit_once('v')?.1)
}

/// The first two numbers of a dotted version.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim().split(['.', '-', '+', '~']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The libraries in a `Depends` field, without versions and without the C library.
fn libraries(depends: &str) -> Vec<&str> {
    depends
        .split(',')
        .filter_map(|item| item.split_whitespace().next())
        .filter(|name| *name != "libc6")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bpftools_version_is_read() {
        let text = "bpftool v7.5.0\nusing libbpf v1.5\nfeatures: skeletons\n";
        assert_eq!(parse_version(text), Some((7, 5)));
        assert_eq!(parse_version("bpftool v7.10.0-rc1\n"), Some((7, 10)));
        assert_eq!(
            parse_version("WARNING: bpftool not found for kernel\n"),
            None
        );
    }

    #[test]
    fn versions_compare_as_numbers() {
        let of = |version| numbers(apt::upstream(version)).unwrap();
        assert!(of("7.5.0+6.12.95-1~bpo12+1") >= BPFTOOL);
        assert!(of("7.10.0+7.1-1") >= BPFTOOL);
        assert!(of("7.1.0+6.1.176-1") < BPFTOOL);
    }

    #[test]
    fn libraries_are_named_without_versions_and_without_libc() {
        let depends = "libc6 (>= 2.34), libcap2 (>= 1:2.10), libelf1 (>= 0.144)\n";
        assert_eq!(libraries(depends), ["libcap2", "libelf1"]);
    }

    #[test]
    fn the_children_find_our_bpftool_first_and_the_systems_programs_at_last() {
        let path = path(
            Some("/home/u/bin:/usr/bin".into()),
            Some(Path::new("/t/usr/sbin/bpftool")),
        )
        .unwrap();
        assert_eq!(
            path,
            "/t/usr/sbin:/home/u/bin:/usr/bin:/usr/sbin:/sbin:/bin"
        );
    }
}
