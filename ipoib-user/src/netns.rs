//! Network namespaces of our own, named so that `ip netns exec` finds them: made, entered, wired
//! together, and removed with their guard. What a killed process left behind is told from what is
//! in use by a lock that its owner held, not by a process id, which the kernel gives out again.

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

/// Where named namespaces live; `ip netns` looks here.
pub const DIRECTORY: &str = "/run/netns";

/// Why a namespace could not be made, entered or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is no file name.
    #[error("{name:?} is no name for a network namespace")]
    BadName {
        /// The name.
        name: String,
    },
    /// There is one of that name.
    #[error("network namespace {name} exists already; `ip netns del {name}` removes it")]
    Exists {
        /// The name.
        name: String,
    },
    /// A system call failed.
    #[error("{what}: {step}: {source}{}", remedy(.source))]
    System {
        /// The namespace, or the directory of all of them.
        what: String,
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// iproute2 is not installed.
    #[error("the `ip` tool is missing: install iproute2")]
    NoIpTool,
    /// `ip` failed.
    #[error("`{command}` failed: {stderr}")]
    Ip {
        /// The whole command.
        command: String,
        /// What it printed.
        stderr: String,
    },
    /// A sysctl could not be written.
    #[error("network namespace {name}: sysctl {key} = {value}: {source}{}", remedy(.source))]
    Sysctl {
        /// The namespace.
        name: String,
        /// The key as given.
        key: String,
        /// The value as given.
        value: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    /// The exit code that the error deserves (see [`crate::cli`]).
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::BadName { .. } => 2,
            Error::Exists { .. }
            | Error::System { .. }
            | Error::NoIpTool
            | Error::Ip { .. }
            | Error::Sysctl { .. } => 3,
        }
    }
}

fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        ErrorKind::PermissionDenied => {
            "; this needs root with CAP_SYS_ADMIN and CAP_NET_ADMIN (sudo, or a privileged container)"
        }
        ErrorKind::ReadOnlyFilesystem => "; this needs a writable /proc/sys and /run",
        _ => "",
    }
}

/// The name of a namespace of this process: `ipoib-<purpose>-<pid>-<role>`. `purpose` is one word
/// without `-`, and [`remove_leftovers`] finds the namespace by it.
pub fn name(purpose: &str, role: &str) -> String {
    format!("ipoib-{purpose}-{}-{role}", std::process::id())
}

/// A named network namespace. Dropping one that was created here removes its name; the kernel frees
/// the namespace when the last thread and socket in it are gone.
#[derive(Debug)]
pub struct Namespace {
    // The order matters: the name goes while the locks are still held.
    _made: Option<Mount>,
    file: File,
    // Held only for its lock: the file under the mount is what a process sees whose mount
    // namespace does not share ours.
    _placeholder: Option<File>,
    name: String,
    path: PathBuf,
}

impl Namespace {
    /// Makes a namespace, its loopback up. `name` must not exist; [`name()`] builds one that can't.
    pub fn create(name: &str) -> Result<Namespace, Error> {
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
            return Err(Error::BadName {
                name: name.to_owned(),
            });
        }
        let system = |step| move |source: io::Error| system_error(name, step, source);
        // Creating and locking is one step for whoever looks for leftovers.
        let _directory = lock_directory()?;
        let path = Path::new(DIRECTORY).join(name);
        let placeholder = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(&path)
            .map_err(|e| match e.kind() {
                ErrorKind::AlreadyExists => Error::Exists {
                    name: name.to_owned(),
                },
                _ => system_error(name, "creating its file", e),
            })?;
        let mount = Mount { path: path.clone() };
        placeholder
            .try_lock()
            .map_err(|e| system("locking its file")(e.into()))?;
        in_thread(|| -> Result<(), Error> {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|e| system("making it")(e.into()))?;
            bind(Path::new("/proc/thread-self/ns/net"), &path)
                .map_err(|e| system("giving it a name")(e.into()))
        })
        .map_err(system("starting a thread"))??;
        let file = File::open(&path).map_err(system("opening it"))?;
        file.try_lock()
            .map_err(|e| system("locking it")(e.into()))?;
        let namespace = Namespace {
            _made: Some(mount),
            file,
            _placeholder: Some(placeholder),
            name: name.to_owned(),
            path,
        };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Takes one that somebody else made and that outlives its guard.
    pub fn open(name: &str) -> Result<Namespace, Error> {
        let path = Path::new(DIRECTORY).join(name);
        let file = File::open(&path).map_err(|e| system_error(name, "opening it", e))?;
        Ok(Namespace {
            _made: None,
            file,
            _placeholder: None,
            name: name.to_owned(),
            path,
        })
    }

    /// Its name, for `ip netns exec`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that stands for it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the calling thread into the namespace, for as long as the thread lives. Sockets stay
    /// in the namespace in which they were made, whichever thread uses them.
    pub fn enter_current_thread(&self) -> Result<(), Error> {
        setns(&self.file, CloneFlags::CLONE_NEWNET)
            .map_err(|e| system_error(&self.name, "entering it", e.into()))
    }

    /// Runs `work` in a new thread inside the namespace and returns its value. A panic in it
    /// continues here.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        in_thread(|| {
            self.enter_current_thread()?;
            Ok(work())
        })
        .map_err(|e| system_error(&self.name, "starting a thread", e))?
    }

    /// Starts a thread inside the namespace; it has entered when this returns.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<T>, Error> {
        // A thread begins in the namespace of the thread that starts it.
        self.run(|| thread::Builder::new().spawn(work))?
            .map_err(|e| system_error(&self.name, "starting a thread", e))
    }

    /// `ip -n NAME ...`; returns what it printed.
    pub fn ip(&self, arguments: &[&str]) -> Result<String, Error> {
        let mut all = vec!["-n", &self.name];
        all.extend(arguments);
        ip(&all)
    }

    /// Writes a sysctl of the namespace. `key` is dotted, or has slashes where a part of it (an
    /// interface's name) has dots.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), Error> {
        let relative = if key.contains('/') {
            key.to_owned()
        } else {
            key.replace('.', "/")
        };
        // /proc/sys/net shows the namespace of the thread that opens it.
        self.run(|| fs::write(Path::new("/proc/sys").join(relative), value))?
            .map_err(|source| Error::Sysctl {
                name: self.name.clone(),
                key: key.to_owned(),
                value: value.to_owned(),
                source,
            })
    }
}

/// One end of a veth pair.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// Where the end lives.
    pub namespace: &'a Namespace,
    /// Its name there.
    pub name: &'a str,
    /// Its MAC address, or `None` for a random one.
    pub mac: Option<[u8; 6]>,
    /// Its MTU in bytes of IP packet, or `None` for the kernel's 1500.
    pub mtu: Option<u32>,
}

/// Makes a veth pair, each end at once in its namespace, and sets both up.
pub fn veth(a: &VethEnd, b: &VethEnd) -> Result<(), Error> {
    let mut arguments = vec!["link".to_owned(), "add".to_owned()];
    arguments.extend(a.arguments());
    arguments.extend(["type", "veth", "peer"].map(str::to_owned));
    arguments.extend(b.arguments());
    arguments.extend(["netns".to_owned(), b.namespace.name.clone()]);
    a.namespace
        .ip(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
    for end in [a, b] {
        end.namespace.ip(&["link", "set", end.name, "up"])?;
    }
    Ok(())
}

impl VethEnd<'_> {
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["name".to_owned(), self.name.to_owned()];
        if let Some(mac) = self.mac {
            let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
            arguments.extend(["address".to_owned(), mac]);
        }
        if let Some(mtu) = self.mtu {
            arguments.extend(["mtu".to_owned(), mtu.to_string()]);
        }
        arguments
    }
}

/// Removes the namespaces of that purpose whose owners have died, whatever killed them, and
/// returns their names. One that is in use, or may be, stays.
pub fn remove_leftovers(purpose: &str) -> Result<Vec<String>, Error> {
    if !Path::new(DIRECTORY).exists() {
        return Ok(Vec::new());
    }
    let _directory = lock_directory()?;
    let failed = |step| move |source| directory_error(step, source);
    let mut removed = Vec::new();
    for entry in fs::read_dir(DIRECTORY).map_err(failed("listing it"))? {
        let entry = entry.map_err(failed("listing it"))?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if owner(&name, purpose).is_none() {
            continue;
        }
        // Its owner may be removing it right now.
        let Ok(file) = File::open(entry.path()) else {
            continue;
        };
        if file.try_lock().is_ok() {
            drop(Mount { path: entry.path() });
            removed.push(name);
        }
    }
    removed.sort();
    Ok(removed)
}

/// The process id in the name of a namespace of that purpose.
fn owner(name: &str, purpose: &str) -> Option<u32> {
    let rest = name
        .strip_prefix("ipoib-")?
        .strip_prefix(purpose)?
        .strip_prefix('-')?;
    rest.split_once('-')?.0.parse().ok()
}

/// A name below [`DIRECTORY`], with or without a namespace mounted on it.
#[derive(Debug)]
struct Mount {
    path: PathBuf,
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Whatever fails here, `remove_leftovers` tries again in the next process.
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes [`DIRECTORY`] the way `ip netns add` does (a shared mount, so that a name that is removed
/// goes from every mount namespace) and locks it until the file is dropped.
fn lock_directory() -> Result<File, Error> {
    let directory = Path::new(DIRECTORY);
    let failed = |step| move |source| directory_error(step, source);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)
        .map_err(failed("making it"))?;
    let lock = File::open(directory).map_err(failed("opening it"))?;
    lock.lock().map_err(failed("locking it"))?;
    match share(directory) {
        // It is no mount point yet.
        Err(Errno::EINVAL) => {
            bind(directory, directory).map_err(|e| failed("mounting it")(e.into()))?;
            share(directory).map_err(|e| failed("sharing it")(e.into()))?;
        }
        other => other.map_err(|e| failed("sharing it")(e.into()))?,
    }
    Ok(lock)
}

fn share(path: &Path) -> nix::Result<()> {
    let flags = MsFlags::MS_SHARED | MsFlags::MS_REC;
    mount(None::<&str>, path, None::<&str>, flags, None::<&str>)
}

fn bind(source: &Path, target: &Path) -> nix::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(source), target, None::<&str>, flags, None::<&str>)
}

/// Runs `work` in a thread of its own; a panic in it continues here.
fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        Ok(thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

fn ip(arguments: &[&str]) -> Result<String, Error> {
    let command = || format!("ip {}", arguments.join(" "));
    let output = Command::new("ip")
        .args(arguments)
        .stdin(Stdio::null())
        // Ctrl-C in the terminal is for us, who clean up; it must not cut a step in half.
        .process_group(0)
        .output()
        .map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::NoIpTool,
            _ => Error::Ip {
                command: command(),
                stderr: e.to_string(),
            },
        })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stderr = match stderr.trim() {
        "" => output.status.to_string(),
        text => text.replace('\n', "; "),
    };
    Err(Error::Ip {
        command: command(),
        stderr,
    })
}

fn system_error(name: &str, step: &'static str, source: io::Error) -> Error {
    Error::System {
        what: format!("network namespace {name}"),
        step,
        source,
    }
}

fn directory_error(step: &'static str, source: io::Error) -> Error {
    Error::System {
        what: DIRECTORY.to_owned(),
        step,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;
    use std::io::{BufRead, BufReader, Read};
    use std::net::UdpSocket;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const CHILD: &str = "IPOIB_TEST_NETNS_CHILD";

    fn need_root() {
        assert!(
            nix::unistd::geteuid().is_root(),
            "this test makes network namespaces: run it as root (or skip it with `-- --skip netns`)"
        );
    }

    fn create(role: &str) -> Namespace {
        need_root();
        Namespace::create(&name("test", role)).unwrap()
    }

    #[test]
    fn only_names_of_the_purpose_have_an_owner() {
        assert_eq!(owner("ipoib-demo-17-gateway", "demo"), Some(17));
        assert_eq!(owner("ipoib-demo-17-a-b", "demo"), Some(17));
        assert_eq!(owner("ipoib-demonstration-17-a", "demo"), None);
        assert_eq!(owner("ipoib-demo-17", "demo"), None);
        assert_eq!(owner("ipoib-demo-x-gateway", "demo"), None);
        assert_eq!(owner("demo-17-gateway", "demo"), None);
    }

    #[test]
    fn names_that_are_no_file_names_are_refused() {
        for bad in ["", "..", ".hidden", "a/b", "a\0b"] {
            let error = Namespace::create(bad).unwrap_err();
            assert!(matches!(error, Error::BadName { .. }), "{error}");
        }
    }

    #[test]
    fn work_runs_inside_and_the_caller_stays_outside() {
        let namespace = create("inside");
        let here = || fs::read_link("/proc/thread-self/ns/net").unwrap();
        let outside = here();
        let inside = namespace.run(here).unwrap();
        assert_ne!(inside, outside);
        assert_eq!(namespace.spawn(here).unwrap().join().unwrap(), inside);
        assert_eq!(here(), outside);
        // Loopback is up: an address on it can be used.
        namespace
            .run(|| UdpSocket::bind("127.0.0.1:0").unwrap())
            .unwrap();
    }

    #[test]
    fn a_sysctl_lands_in_the_namespace_alone() {
        let namespace = create("sysctl");
        let path = "/proc/sys/net/ipv4/ip_default_ttl";
        let before = fs::read_to_string(path).unwrap();
        namespace.sysctl("net.ipv4.ip_default_ttl", "17").unwrap();
        assert_eq!(
            namespace.run(|| fs::read_to_string(path).unwrap()).unwrap(),
            "17\n"
        );
        assert_eq!(fs::read_to_string(path).unwrap(), before);
        let error = namespace.sysctl("net.ipv4.no_such_key", "1").unwrap_err();
        assert!(
            error.to_string().contains("net.ipv4.no_such_key = 1"),
            "{error}"
        );
    }

    #[test]
    fn ip_finds_the_namespace_by_name_and_its_errors_say_the_command() {
        let namespace = create("ip");
        assert!(
            namespace
                .ip(&["link", "show"])
                .unwrap()
                .contains("LOOPBACK")
        );
        let error = namespace
            .ip(&["link", "set", "nowhere", "up"])
            .unwrap_err()
            .to_string();
        let command = format!("`ip -n {} link set nowhere up` failed: ", namespace.name());
        assert!(error.starts_with(&command), "{error}");
        assert!(error.contains("nowhere"), "{error}");
        assert!(!error.contains('\n'), "{error:?}");
    }

    #[test]
    fn a_veth_pair_has_its_names_macs_and_mtus() {
        let (a, b) = (create("veth-a"), create("veth-b"));
        let mac = [2, 0, 0, 0, 0, 0x17];
        veth(
            &VethEnd {
                namespace: &a,
                name: "left",
                mac: Some(mac),
                mtu: Some(2044),
            },
            &VethEnd {
                namespace: &b,
                name: "right",
                mac: None,
                mtu: Some(9000),
            },
        )
        .unwrap();
        let left = a.ip(&["link", "show", "left"]).unwrap();
        assert!(
            left.contains("02:00:00:00:00:17") && left.contains("mtu 2044"),
            "{left}"
        );
        assert!(left.contains("LOWER_UP"), "{left}");
        let right = b.ip(&["link", "show", "right"]).unwrap();
        assert!(
            right.contains("mtu 9000") && right.contains("LOWER_UP"),
            "{right}"
        );
    }

    #[test]
    fn a_name_is_taken_once() {
        let namespace = create("once");
        let error = Namespace::create(namespace.name()).unwrap_err();
        assert!(matches!(error, Error::Exists { .. }), "{error}");
        assert!(namespace.path().exists(), "the first one keeps it");
    }

    #[test]
    fn dropping_the_guard_removes_the_name() {
        let namespace = create("drop");
        let path = namespace.path().to_owned();
        assert!(path.exists());
        drop(namespace);
        assert!(!path.exists());
    }

    #[test]
    fn a_panic_continues_in_the_caller_and_removes_the_name() {
        let path = Path::new(DIRECTORY).join(name("test", "panic"));
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let namespace = create("panic");
            namespace.run(|| panic!("from inside")).unwrap()
        }));
        assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"from inside"));
        assert!(!path.exists());
    }

    /// Not a test of its own: the process that the next test kills.
    #[test]
    fn child_that_holds_a_namespace() {
        if env::var_os(CHILD).is_none() {
            return;
        }
        let namespace = Namespace::create(&name("leftover", "child")).unwrap();
        println!("\nholding {}", namespace.name());
        // Ends when the parent closes the pipe or kills us.
        let _ = io::stdin().read(&mut [0]);
    }

    #[test]
    fn only_namespaces_of_the_dead_are_removed() {
        need_root();
        let mut child = Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "netns::tests::child_that_holds_a_namespace",
                "--nocapture",
            ])
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let held = stdout
            .lines()
            .find_map(|line| line.unwrap().strip_prefix("holding ").map(str::to_owned))
            .expect("the child says what it holds");
        let path = Path::new(DIRECTORY).join(&held);

        assert!(!remove_leftovers("leftover").unwrap().contains(&held));
        assert!(path.exists(), "its owner lives");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(path.exists(), "nobody has removed it yet");
        assert!(
            !remove_leftovers("test").unwrap().contains(&held),
            "another purpose"
        );
        assert!(remove_leftovers("leftover").unwrap().contains(&held));
        assert!(!path.exists());
    }
}
