//! Running other programs: one-line errors that name the command, a bound in time where a program
//! may hang, and the way to root.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Runs `command` with its output visible; an exit status other than 0 is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let name = describe(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{name}`"))?;
    if !status.success() {
        bail!("`{name}` failed ({status})");
    }
    Ok(())
}

/// Runs `command` quietly and returns what it printed; the error carries its complaint.
pub fn output(command: &mut Command) -> Result<String> {
    let name = describe(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{name}`"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("`{name}` failed: {}", complaint_of(&complaint));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs `command` for at most `limit`, with its output in the file `log`; the error carries its
/// complaint.
pub fn run_within(command: &mut Command, limit: Duration, log: &Path) -> Result<()> {
    let name = describe(command);
    let file =
        fs::File::create(log).with_context(|| format!("cannot write the log {}", log.display()))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .env("RUST_BACKTRACE", "0")
        .spawn()
        .with_context(|| format!("cannot start `{name}`"))?;
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            let said = fs::read_to_string(log).unwrap_or_default();
            bail!(
                "`{name}` failed: {} (the rest is in {})",
                complaint_of(&said),
                log.display()
            );
        }
        if Instant::now() >= end {
            // It may have ended just now, so that neither call can fail in a way that matters.
            let _ = child.kill();
            let _ = child.wait();
            bail!("`{name}` gave no answer within {} s", limit.as_secs());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Becomes `command`: its exit code is ours, and signals reach it directly. Returns only on failure.
pub fn exec(command: &mut Command) -> Result<()> {
    let name = describe(command);
    Err(command.exec()).with_context(|| format!("cannot start `{name}`"))
}

/// Where `program` lies, in PATH or in the system's own folders, which a user's PATH often lacks.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| is_executable(file))
}

/// Whether `file` is a file that somebody may execute.
pub fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Whether this process is root.
fn is_root() -> Result<bool> {
    let status = fs::read_to_string("/proc/self/status")
        .context("cannot read /proc/self/status: is /proc mounted?")?;
    Ok(effective_uid(&status) == Some(0))
}

/// The effective user in the text of `/proc/self/status`.
fn effective_uid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// What is needed to become root: nothing, or sudo. Ask before long work, so that it isn't in vain.
pub fn way_to_root(what: &str) -> Result<Option<PathBuf>> {
    if is_root()? {
        return Ok(None);
    }
    match find("sudo") {
        Some(sudo) => Ok(Some(sudo)),
        None => bail!("{what} must run as root: run this as root, or install sudo"),
    }
}

/// A command that runs `program` as root: itself, or through sudo with the variables in `vars`.
pub fn as_root(program: &OsStr, vars: &[(&str, &OsStr)]) -> Result<Command> {
    let what = Path::new(program).file_name().unwrap_or(program);
    let Some(sudo) = way_to_root(&what.to_string_lossy())? else {
        let mut command = Command::new(program);
        command.envs(vars.iter().copied());
        return Ok(command);
    };
    let mut command = Command::new(sudo);
    // sudo replaces PATH by its own and may drop the rest: hand over what is needed by name.
    command.arg("env");
    for (name, value) in vars {
        let mut assignment = OsString::from(name);
        assignment.push("=");
        assignment.push(value);
        command.arg(assignment);
    }
    command.arg(program);
    Ok(command)
}

/// The command as a person would type it, cut where it becomes tedious.
pub fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut text = program
        .file_name()
        .unwrap_or(program.as_os_str())
        .to_string_lossy()
        .into_owned();
    for arg in command.get_args() {
        if text.len() > 60 {
            text.push_str(" …");
            break;
        }
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}

/// A path as one word of a shell script.
pub fn quote(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// Writes a shell script that may be executed.
pub fn write_script(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text)
        .and_then(|()| fs::set_permissions(file, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// What a program complains of: the line that says it is an error, and the last one, which is the
/// cause where causes are listed below; cut where it becomes tedious.
fn complaint_of(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let Some(last) = lines.clone().next_back() else {
        return "it said nothing".to_owned();
    };
    let error = lines.find_map(|line| {
        ["error: ", "E: ", "dpkg-deb: error: "]
            .iter()
            .find_map(|mark| line.strip_prefix(mark))
    });
    let mut complaint = match error {
        Some(error) if last.ends_with(error) => error.to_owned(),
        Some(error) => format!("{error}: {last}"),
        None => last.to_owned(),
    };
    if let Some((end, _)) = complaint.char_indices().nth(160) {
        complaint.truncate(end);
        complaint.push('…');
    }
    complaint
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_is_the_second_number() {
        assert_eq!(
            effective_uid("Name:\tx\nUid:\t1000\t0\t1000\t1000\n"),
            Some(0)
        );
        assert_eq!(effective_uid("Name:\tx\n"), None);
    }

    #[test]
    fn a_complaint_is_the_error_and_its_last_cause() {
        assert_eq!(complaint_of("first\nsecond \n\n"), "second");
        assert_eq!(complaint_of("\n"), "it said nothing");
        assert_eq!(complaint_of("Reading\nE: no lock\n"), "no lock");
        assert_eq!(
            complaint_of("error: no index\n\nCaused by:\n  no host\n"),
            "no index: no host"
        );
    }

    #[test]
    fn a_command_that_hangs_is_ended() {
        let log = env::temp_dir().join(format!("xtask-log-{}", std::process::id()));
        let error = run_within(
            Command::new("sleep").arg("60"),
            Duration::from_millis(50),
            &log,
        )
        .unwrap_err();
        assert_eq!(error.to_string(), "`sleep 60` gave no answer within 0 s");
        let _ = fs::remove_file(log);
    }

    #[test]
    fn a_path_stays_one_word_in_a_script() {
        assert_eq!(quote(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
