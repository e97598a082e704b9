//! `cargo xtask lab`: the unmodified ib_ipoib driver on virtual HCAs, in a VM that shows the host's
//! own file system. How it works and what it can't show is told in `tests/lab/README.md`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{IsTerminal, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::build;
use crate::command;
use crate::setup::Setup;
use crate::toolchain::Toolchain;

mod cpio;
mod initramfs;
mod kernel;
mod module;
mod suite;
mod vm;

use kernel::Kernel;
use vm::Vm;

pub use suite::suite;

/// Words that mean `ipoib WORD` and not a program of the host.
const VERBS: [&str; 20] = [
    "run", "check", "explain", "status", "policy", "neigh", "flows", "peers", "events", "top",
    "capture", "metrics", "bench", "profile", "reload", "doctor", "import", "export", "detach",
    "demo",
];

/// Variables that programs in the guest see as in the host.
const VARIABLES: [&str; 7] = [
    "HOME",
    "LANG",
    "LC_ALL",
    "TERM",
    "USER",
    "RUST_BACKTRACE",
    "IPOIB_LOG",
];

/// How the VM is made.
#[derive(Debug, Clone, Args)]
pub struct VmArgs {
    /// Memory of the VM in MB
    #[arg(long, value_name = "MB", default_value_t = 1024)]
    memory: u64,
    /// Virtual processors of the VM
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    cpus: u32,
    /// Parameters of the module vhca, such as `mtu=4096 csum=1`
    #[arg(long, value_name = "PARAMETERS", default_value = "")]
    vhca: String,
    /// Seconds after which a guest that has not ended is ended [default: 600; a shell: never]
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
}

impl Default for VmArgs {
    fn default() -> Self {
        Self {
            memory: 1024,
            cpus: 2,
            vhca: String::new(),
            limit: None,
        }
    }
}

/// What to run in the lab.
#[derive(Debug, Args)]
#[command(
    after_long_help = "The lab's network is n1 (ib1) -- fabric -- (ib0) gateway (e0) -- (e1) n2; \
    COMMAND runs in the gateway, `ip netns exec n1 ...` in a host. A first word that is a verb of \
    ipoib means ipoib: `cargo xtask lab -- demo --for 10s`. Without COMMAND: a shell."
)]
pub struct LabArgs {
    /// Debian's kernel of that version: 6.1 or 6.12
    #[arg(long, value_name = "VERSION", default_value = "6.1")]
    kernel: String,
    #[command(flatten)]
    vm: VmArgs,
    /// What to run in the gateway
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// `cargo xtask lab`.
pub fn lab(toolchain: &Toolchain, args: &LabArgs) -> Result<ExitCode> {
    let setup = Setup::new(toolchain);
    let terminal = stdin().is_terminal() && stdout().is_terminal();
    if args.command.is_empty() && !terminal {
        bail!("a shell needs a terminal: name a command, as in `cargo xtask lab -- ip link`");
    }
    let lab = Lab::prepare(toolchain, &setup, &args.kernel)?;
    let mut command = args.command.clone();
    let verb = command.first().and_then(|word| word.to_str());
    if verb.is_some_and(|word| VERBS.contains(&word)) {
        let binary = build::build(toolchain, &build::Options::default())?;
        if verb == Some("demo") {
            command.splice(1..1, ["--topology".into(), "lab".into()]);
        }
        command.insert(0, binary.into_os_string());
    } else if command.is_empty() {
        let shell = env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
        eprintln!("lab: a shell in the gateway; `exit` ends the VM");
        command = vec![shell];
    }
    let code = lab.run(
        &Job {
            command: &command,
            variables: &[],
            topology: true,
            terminal,
        },
        &args.vm,
    )?;
    Ok(ExitCode::from(code))
}

/// Something to run inside.
struct Job<'a> {
    command: &'a [OsString],
    variables: &'a [(&'a str, &'a OsStr)],
    topology: bool,
    terminal: bool,
}

/// A kernel with all that it takes to boot it.
struct Lab<'a> {
    toolchain: &'a Toolchain,
    kernel: Kernel,
    base: initramfs::Base,
}

impl<'a> Lab<'a> {
    /// Brings and builds what is missing.
    fn prepare(toolchain: &'a Toolchain, setup: &Setup, version: &str) -> Result<Self> {
        if toolchain.version.arch() != "x86_64" {
            bail!("the lab's VM is an x86_64 one, and this machine is not: use one that is");
        }
        setup.tools(crate::setup::Verb::Lab)?;
        let kernel = Kernel::ensure(setup, &toolchain.target.join("lab"), version)?;
        let sources = toolchain.root.join("tests/lab");
        let vhca = module::build(setup, &kernel, &sources.join("vhca"))?;
        let base = initramfs::base(&kernel, &vhca, &busybox()?, &sources.join("init"))?;
        Ok(Self {
            toolchain,
            kernel,
            base,
        })
    }

    /// Boots a VM, runs the job in it and returns its exit code.
    fn run(&self, job: &Job, args: &VmArgs) -> Result<u8> {
        let topology = self.toolchain.root.join("tests/lab/topology");
        let topology = fs::read_to_string(&topology)
            .with_context(|| format!("cannot read {}", topology.display()))?;
        let (rows, columns) = if job.terminal {
            terminal_size()
        } else {
            (24, 80)
        };
        let flag = |set| if set { "1" } else { "" };
        let config = format!(
            "{}vhca={}\ntopology={}\ntty={}\nrows={rows}\ncolumns={columns}\ntree={}\n",
            self.base.variables,
            quote(args.vhca.as_ref()),
            flag(job.topology),
            flag(job.terminal),
            command::quote(&self.kernel.modules_base()),
        );
        let script = self.script(job)?;
        let mut archive = self.base.archive.clone();
        archive.extend(initramfs::run(&config, &topology, &script));
        let seconds = args.limit.or((!job.terminal).then_some(600));
        Vm {
            image: &self.kernel.image(),
            initramfs: &archive,
            folder: self
                .kernel
                .folder
                .join(format!("run-{}", std::process::id())),
            memory: args.memory,
            cpus: args.cpus,
            limit: seconds.map(Duration::from_secs),
            terminal: job.terminal,
        }
        .run()
    }

    /// The job as a shell script: the caller's folder and environment, then the command.
    fn script(&self, job: &Job) -> Result<String> {
        let here = env::current_dir().context("the current folder is gone")?;
        let mut text = format!("cd {}\n", command::quote(&here));
        let kept: Vec<_> = VARIABLES
            .iter()
            .filter_map(|name| Some((*name, env::var_os(name)?)))
            .collect();
        let kept = kept.iter().map(|(name, value)| (*name, value.as_os_str()));
        for (name, value) in kept.chain(job.variables.iter().copied()) {
            text.push_str(&format!("export {name}={}\n", quote(value)));
        }
        let mut path: Vec<PathBuf> = vec![self.toolchain.target.join("debug")];
        path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
        path.extend(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from));
        let path = env::join_paths(path).context("a folder in PATH has a colon in its name")?;
        text.push_str(&format!("export PATH={}\nexec", quote(&path)));
        for word in job.command {
            text.push(' ');
            text.push_str(&quote(word));
        }
        text.push('\n');
        Ok(text)
    }
}

/// The static busybox that is the guest's first program.
fn busybox() -> Result<PathBuf> {
    command::find("busybox")
        .context("the lab's VM needs a static busybox: apt-get install busybox-static")
}

/// Text as one word of a shell script.
fn quote(text: &OsStr) -> String {
    command::quote(Path::new(text))
}

/// Rows and columns of our terminal.
fn terminal_size() -> (u32, u32) {
    let size = Command::new("stty")
        .arg("size")
        .stdin(Stdio::inherit())
        .output();
    let text = size.map(|size| String::from_utf8_lossy(&size.stdout).into_owned());
    text.ok()
        .as_deref()
        .and_then(|text| {
            let (rows, columns) = text.trim().split_once(' ')?;
            Some((rows.parse().ok()?, columns.parse().ok()?))
        })
        .unwrap_or((24, 80))
}
