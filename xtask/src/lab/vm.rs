//! One run of the VM: QEMU without KVM, so that it works anywhere and always the same. The guest's
//! output comes through ports of its own, its exit code too; the console goes to a file, in which a
//! crash of the guest's kernel is looked for.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command;

/// Memory that the host should keep beside the guest's, in MB.
const SPARE: u64 = 200;

/// What the guest says of itself when it can't even run the job (see `tests/lab/init`).
const NOT_LAID: u8 = 125;

/// What the init says first, to the kernel's log.
const INIT: &str = "lab: init";

/// Lines of the console that are shown when the guest crashed.
const SHOWN: usize = 30;

/// What to run.
#[derive(Debug)]
pub struct Vm<'a> {
    /// The kernel image.
    pub image: &'a Path,
    /// The whole initramfs.
    pub initramfs: &'a [u8],
    /// Where the run's files lie.
    pub folder: PathBuf,
    /// MB of memory.
    pub memory: u64,
    /// Virtual processors.
    pub cpus: u32,
    /// How long the guest may take; without a limit it is a person's.
    pub limit: Option<Duration>,
    /// Whether the guest gets our terminal.
    pub terminal: bool,
}

impl Vm<'_> {
    /// Boots, waits for the end and returns the job's exit code.
    pub fn run(&self) -> Result<u8> {
        let Some(qemu) = command::find("qemu-system-x86_64") else {
            bail!("the lab's VM needs QEMU: apt-get install qemu-system-x86");
        };
        check_memory(self.memory)?;
        let _ = fs::remove_dir_all(&self.folder);
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("cannot make {}", self.folder.display()))?;
        let initramfs = self.folder.join("initramfs");
        fs::write(&initramfs, self.initramfs)
            .with_context(|| format!("cannot write {}", initramfs.display()))?;

        let mut qemu = Command::new(qemu);
        self.machine(&mut qemu, &initramfs);
        let mut child = qemu.spawn().context("cannot start QEMU")?;
        let pipes = [
            child.stdout.take().map(|from| copy(from, io::stdout())),
            child.stderr.take().map(|from| copy(from, io::stderr())),
        ];
        let in_time = wait(&mut child, self.limit)?;
        for pipe in pipes.into_iter().flatten() {
            let _ = pipe.join();
        }
        if self.terminal {
            // QEMU may have been ended before it gave the terminal back.
            let _ = Command::new("stty").arg("sane").status();
        }
        let _ = fs::remove_file(initramfs);
        self.outcome(in_time)
    }

    fn machine(&self, qemu: &mut Command, initramfs: &Path) {
        let file = |name: &str| self.folder.join(name).display().to_string();
        // A second processor finds races; the rest is what the lab's init relies on.
        qemu.args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
        ])
        .args(["-machine", "q35,accel=tcg", "-cpu", "max"])
        .args(["-smp", &self.cpus.to_string()])
        .args(["-m", &self.memory.to_string()])
        .arg("-kernel")
        .arg(self.image)
        .arg("-initrd")
        .arg(initramfs)
        .args([
            "-append",
            "console=ttyS0 loglevel=5 mitigations=off panic=-1 oops=panic nokaslr \
                 tsc=reliable nowatchdog rcupdate.rcu_cpu_stall_suppress=1 rdinit=/init",
        ])
        .args([
            "-fsdev",
            "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device",
            "virtio-9p-pci,fsdev=host,mount_tag=host",
            "-device",
            "virtio-serial-pci",
        ])
        .arg("-chardev")
        .arg(format!("file,id=console,path={}", file("console")))
        .args(["-serial", "chardev:console"])
        .arg("-chardev")
        .arg(format!("file,id=rc,path={}", file("rc")));
        let mut ports = vec![("rc", 3)];
        if self.terminal {
            qemu.args(["-chardev", "stdio,id=terminal,signal=off"])
                .args(["-device", "virtconsole,chardev=terminal,nr=0"])
                // Errors of the init, before the terminal is the job's.
                .arg("-chardev")
                .arg(format!("file,id=err,path={}", file("err")));
            ports.push(("err", 2));
        } else {
            for (name, descriptor) in [("out", 1), ("err", 2)] {
                qemu.arg("-chardev").arg(format!(
                    "file,id={name},path=/proc/self/fd/{descriptor},append=on"
                ));
                ports.push((name, descriptor));
            }
            qemu.stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
        }
        for (name, number) in ports {
            qemu.arg("-device").arg(format!(
                "virtserialport,chardev={name},nr={number},name={name}"
            ));
        }
    }

    /// What the guest left behind tells how it ended.
    fn outcome(&self, in_time: bool) -> Result<u8> {
        let console = self.folder.join("console");
        let bytes = fs::read(&console).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        if let Some(crash) = crash(&text) {
            eprintln!("{crash}");
            bail!(
                "the guest's kernel crashed, as shown (all of it: {})",
                console.display()
            );
        }
        if !in_time {
            let limit = self.limit.unwrap_or_default().as_secs();
            bail!(
                "the guest did not end within {limit} s and was ended; --limit gives it longer \
                 (its console: {})",
                console.display()
            );
        }
        let code = fs::read_to_string(self.folder.join("rc")).unwrap_or_default();
        match code.trim().parse() {
            Ok(NOT_LAID) if self.terminal => {
                eprint!(
                    "{}",
                    fs::read_to_string(self.folder.join("err")).unwrap_or_default()
                );
                Ok(NOT_LAID)
            }
            Ok(code) => Ok(code),
            Err(_) => bail!(
                "the guest ended without an exit code; the last it said: {} (all of it: {})",
                text.lines().next_back().unwrap_or("nothing"),
                console.display()
            ),
        }
    }
}

/// Fails where the guest's memory would drive the host into swap.
fn check_memory(wanted: u64) -> Result<()> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match available(&text) {
        Some(free) if free < wanted + SPARE => bail!(
            "the VM needs {wanted} MB of memory and {free} MB are free: end other programs, or \
             give it less with --memory (from 512 MB)"
        ),
        _ => Ok(()),
    }
}

/// `MemAvailable` in MB.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace()
        .next()?
        .parse::<u64>()
        .ok()
        .map(|kb| kb / 1024)
}

fn copy(
    mut from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if to
                .write_all(&buffer[..length])
                .and_then(|()| to.flush())
                .is_err()
            {
                break;
            }
        }
    })
}

/// Waits for QEMU; ends it after the limit and says whether it ended by itself.
fn wait(child: &mut Child, limit: Option<Duration>) -> Result<bool> {
    let began = Instant::now();
    loop {
        if child.try_wait()?.is_some() {
            return Ok(true);
        }
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            // It may have ended just now, so that neither call can fail in a way that matters.
            let _ = child.kill();
            let _ = child.wait();
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// What a kernel says when something in it is broken, and what follows. Warnings count from the
/// start of our init on: what an emulated machine's boot makes the kernel wonder at is not ours.
fn crash(console: &str) -> Option<String> {
    const MARKS: [&str; 6] = [
        "BUG: ",
        "Oops: ",
        "Kernel panic",
        "general protection fault",
        "KASAN: ",
        "possible recursive locking",
    ];
    let lines: Vec<&str> = console.lines().collect();
    let init = lines.iter().position(|line| line.contains(INIT));
    let first = lines.iter().enumerate().position(|(number, line)| {
        MARKS.iter().any(|mark| line.contains(mark))
            || line.contains("WARNING: CPU") && init.is_some_and(|init| number > init)
    })?;
    let end = lines.len().min(first + SHOWN);
    Some(lines[first..end].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_in_megabytes() {
        let text = "MemTotal:  2048000 kB\nMemAvailable:   1048576 kB\n";
        assert_eq!(available(text), Some(1024));
        assert_eq!(available(""), None);
    }

    #[test]
    fn a_crash_is_found_and_shown_from_its_first_line() {
        let console = "[ 1.0] fine\n[ 2.0] BUG: kernel NULL pointer dereference\n[ 2.0] RIP: x\n";
        assert_eq!(
            crash(console).unwrap(),
            "[ 2.0] BUG: kernel NULL pointer dereference\n[ 2.0] RIP: x"
        );
        assert_eq!(crash("[ 1.0] debug: fine\n"), None);
        let warning = "[ 3.0] WARNING: CPU: 1 PID: 9 at x\n";
        assert_eq!(crash(&format!("{warning}[ 4.0] lab: init\n")), None);
        assert!(crash(&format!("[ 4.0] lab: init\n{warning}")).is_some());
    }
}
