//! Single packages out of the archive that the machine's own apt configuration names, also from
//! releases that the machine does not follow. All state lies in a private folder, so that the
//! system's sources and lists stay as they are; signatures are checked with the archive's keyring.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Setup;
use crate::command;

/// The keyring of Debian's archive, for sources that name none.
const KEYRINGS: [&str; 3] = [
    "/usr/share/keyrings/debian-archive-keyring.pgp",
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/etc/apt/trusted.gpg.d/debian-archive-keyring.gpg",
];

/// Releases that may hold another package than the machine's own, nearest first.
const RELEASES: [&str; 8] = [
    "bookworm",
    "bookworm-backports",
    "trixie-backports",
    "trixie",
    "forky-backports",
    "forky",
    "sid",
    "experimental",
];

/// How long fetching one list or one package may take.
const LIMIT: Duration = Duration::from_secs(300);

/// One source of binary packages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
    signed_by: Option<PathBuf>,
}

/// Reads the one-line format (`/etc/apt/sources.list`, `*.list`).
pub fn parse_one_line(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb")?;
    if !rest.starts_with([' ', '\t', '[']) {
        return None;
    }
    let mut rest = rest.trim_start();
    let mut signed_by = None;
    if let Some(inner) = rest.strip_prefix('[') {
        let (options, after) = inner.split_once(']')?;
        signed_by = options
            .split_whitespace()
            .filter_map(|option| option.split_once('='))
            .find(|(name, _)| name.eq_ignore_ascii_case("signed-by"))
            .and_then(|(_, value)| keyring_path(value));
        rest = after;
    }
    let mut words = rest.split_whitespace().map(str::to_owned);
    Some(Source {
        uris: vec![words.next()?],
        suites: vec![words.next()?],
        components: words.collect(),
        signed_by,
    })
}

/// Reads the deb822 format (`*.sources`).
pub fn parse_deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut stanza: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            sources.extend(stanza_source(&stanza));
            stanza.clear();
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = stanza.last_mut() {
                value.push('\n');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            stanza.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    sources
}

fn stanza_source(stanza: &[(String, String)]) -> Option<Source> {
    let field = |name: &str| {
        stanza
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    };
    let words = |name: &str| -> Vec<String> {
        field(name)
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    };
    let enabled = !field("enabled")
        .is_some_and(|value| ["no", "false", "0", "off", "without", "disable"].contains(&value));
    let source = Source {
        uris: words("uris"),
        suites: words("suites"),
        components: words("components"),
        signed_by: field("signed-by").and_then(keyring_path),
    };
    (enabled
        && words("types").iter().any(|kind| kind == "deb")
        && !source.uris.is_empty()
        && !source.suites.is_empty())
    .then_some(source)
}

/// The keyring file in a `Signed-By` value, which may also be a fingerprint or a key.
fn keyring_path(value: &str) -> Option<PathBuf> {
    value
        .split([',', ' ', '\n'])
        .find(|word| word.starts_with('/'))
        .map(PathBuf::from)
}

/// All sources of the machine.
fn system_sources() -> Vec<Source> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
        let mut more: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        more.sort();
        files.extend(more);
    }
    let mut sources = Vec::new();
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        match file.extension().and_then(|e| e.to_str()) {
            Some("list") => sources.extend(parse_one_line(&text)),
            Some("sources") => sources.extend(parse_deb822(&text)),
            _ => {}
        }
    }
    sources
}

/// Where the distribution's own packages come from: a place and the keyring that signs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    uri: String,
    keyring: Option<PathBuf>,
}

/// The mirrors of the distribution's archive, the likeliest first.
///
/// Other people's archives also have suites named after a release; what a wrong one signs is
/// refused by the keyring, so that it costs a try and nothing else.
pub fn mirrors(sources: &[Source], codename: &str) -> Vec<Mirror> {
    let ours = |source: &&Source| {
        source.components.iter().any(|c| c == "main")
            && source
                .suites
                .iter()
                .any(|s| s == codename || is_release(s) || s == "stable" || s == "testing")
    };
    let mut mirrors: Vec<Mirror> = Vec::new();
    for source in sources.iter().filter(ours) {
        for uri in &source.uris {
            if !uri.contains("security")
                && !uri.starts_with("cdrom:")
                && !mirrors.iter().any(|m| m.uri == *uri)
            {
                mirrors.push(Mirror {
                    uri: uri.clone(),
                    keyring: source.signed_by.clone(),
                });
            }
        }
    }
    mirrors.sort_by_key(|mirror| !mirror.uri.trim_end_matches('/').ends_with("/debian"));
    mirrors
}

fn is_release(suite: &str) -> bool {
    RELEASES.contains(&suite)
}

/// The suites to look through: those that the machine follows, its backports, then newer releases.
pub fn suites(sources: &[Source], codename: &str) -> Vec<String> {
    let own = sources
        .iter()
        .filter(|source| source.components.iter().any(|c| c == "main"))
        .flat_map(|source| source.suites.iter().cloned())
        .filter(|suite| suite == codename || suite.starts_with(&format!("{codename}-backports")));
    let mut seen = BTreeSet::new();
    own.chain([codename.to_owned(), format!("{codename}-backports")])
        .chain(RELEASES.map(str::to_owned))
        .filter(|suite| seen.insert(suite.clone()))
        .collect()
}

/// The upstream part of a Debian version: without epoch, revision and repacking suffix.
pub fn upstream(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    let version = version.rsplit_once('-').map_or(version, |(rest, _)| rest);
    version.split('+').next().unwrap_or(version)
}

/// The versions in the output of `apt-cache madison`.
pub fn madison(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.split('|').nth(1))
        .map(|version| version.trim().to_owned())
        .collect()
}

/// `VERSION_CODENAME` of `/etc/os-release`.
pub fn codename(os_release: &str) -> Option<&str> {
    os_release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .map(|value| value.trim_matches('"'))
        .filter(|value| !value.is_empty())
}

/// Fetches the first package named `package` whose version `accept`s; `wanted` is that
/// demand in words.
pub fn fetch(
    setup: &Setup,
    package: &str,
    wanted: &str,
    accept: impl Fn(&str) -> bool,
) -> Result<PathBuf> {
    for tool in ["apt-get", "apt-cache", "apt-config", "dpkg-deb"] {
        if command::find(tool).is_none() {
            bail!("there is no {tool} here to take Debian's package with");
        }
    }
    let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = codename(&os).context("/etc/os-release names no release (VERSION_CODENAME)")?;
    let sources = system_sources();
    let mirrors = mirrors(&sources, codename);
    if mirrors.is_empty() {
        bail!("/etc/apt names no Debian archive; add one to its sources");
    }
    let mut seen = Vec::new();
    let mut refused = String::new();
    for suite in suites(&sources, codename) {
        for (number, mirror) in mirrors.iter().enumerate() {
            let folder = setup.apt_folder().join(format!("{suite}-{number}"));
            let archive = match Archive::open(setup, folder, mirror, &suite) {
                Ok(archive) => archive,
                Err(error) => {
                    let error = format!("{error:#}");
                    if is_network_failure(&error) {
                        bail!("the package archive is out of reach ({error})");
                    }
                    refused = error;
                    continue;
                }
            };
            let versions = archive.versions(package)?;
            if let Some(version) = versions.iter().find(|version| accept(version)) {
                setup.action(&format!("{package} {version}: fetching it from {suite}"));
                return archive.download(package, version);
            }
            seen.extend(versions.iter().map(|version| format!("{suite} {version}")));
            break;
        }
    }
    if seen.is_empty() && !refused.is_empty() {
        bail!("no release could be read: {refused}");
    }
    bail!(
        "no release has {wanted} (seen: {})",
        if seen.is_empty() {
            "none".to_owned()
        } else {
            seen.join(", ")
        }
    )
}

/// Whether apt failed for lack of a network, when trying further suites is a waste of time.
fn is_network_failure(error: &str) -> bool {
    [
        "Could not resolve",
        "Temporary failure",
        "Could not connect",
        "Cannot initiate the connection",
        "Unable to connect",
        "Connection timed out",
        "Connection failed",
        "gave no answer",
    ]
    .iter()
    .any(|text| error.contains(text))
}

/// Unpacks a package into `folder`, which replaces what was there.
pub fn unpack(package: &Path, folder: &Path) -> Result<()> {
    let made = folder.with_extension("new");
    let _ = fs::remove_dir_all(&made);
    fs::create_dir_all(&made).with_context(|| format!("cannot make {}", made.display()))?;
    command::output(Command::new("dpkg-deb").arg("-x").arg(package).arg(&made))?;
    let _ = fs::remove_dir_all(folder);
    fs::rename(&made, folder)?;
    Ok(())
}

/// One suite of one mirror, with an apt state of its own.
struct Archive {
    folder: PathBuf,
}

impl Archive {
    /// Fetches the suite's list, unless this run has done so.
    fn open(setup: &Setup, folder: PathBuf, mirror: &Mirror, suite: &str) -> Result<Self> {
        let archive = Self { folder };
        let done = archive.folder.join("complete");
        if done.is_file() {
            return Ok(archive);
        }
        for part in ["state/lists/partial", "cache/archives/partial", "packages"] {
            fs::create_dir_all(archive.folder.join(part))
                .with_context(|| format!("cannot make {}", archive.folder.display()))?;
        }
        let keyring = mirror
            .keyring
            .clone()
            .into_iter()
            .chain(KEYRINGS.map(PathBuf::from))
            .find(|file| file.is_file())
            .context("no keyring of the archive: install debian-archive-keyring")?;
        fs::write(
            archive.folder.join("sources.list"),
            format!(
                "deb [signed-by={}] {} {suite} main\n",
                keyring.display(),
                mirror.uri
            ),
        )?;
        fs::write(archive.folder.join("status"), "")?;
        let dump = command::output(Command::new("apt-config").arg("dump"))?;
        fs::write(
            archive.folder.join("apt.conf"),
            configuration(&archive.folder, &dump),
        )?;
        setup.action(&format!("apt: reading the list of {suite}"));
        let log = archive.folder.join("log");
        let ended = command::run_within(archive.apt("apt-get").arg("update"), LIMIT, &log);
        // apt-get reports success even if it could fetch no list: what it said decides.
        if let Some(error) = fetch_error(&fs::read_to_string(&log).unwrap_or_default()) {
            bail!("{error}");
        }
        ended?;
        fs::write(done, "")?;
        Ok(archive)
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.join("packages"))
            .env("APT_CONFIG", self.folder.join("apt.conf"))
            .env("LC_ALL", "C");
        command
    }

    fn versions(&self, package: &str) -> Result<Vec<String>> {
        let text = command::output(self.apt("apt-cache").args(["madison", package]))?;
        Ok(madison(&text))
    }

    fn download(&self, package: &str, version: &str) -> Result<PathBuf> {
        let packages = self.folder.join("packages");
        let log = self.folder.join("log");
        let wanted = format!("{package}={version}");
        command::run_within(self.apt("apt-get").args(["download", &wanted]), LIMIT, &log)?;
        fs::read_dir(&packages)?
            .flatten()
            .map(|entry| entry.path())
            .find(|file| {
                file.extension().is_some_and(|e| e == "deb")
                    && file.file_name().is_some_and(|name| {
                        name.to_string_lossy().starts_with(&format!("{package}_"))
                    })
            })
            .with_context(|| format!("apt-get download left no package of {package}"))
    }
}

/// The first thing that apt could not fetch, and why, in the output of `apt-get update`.
fn fetch_error(said: &str) -> Option<String> {
    let mut lines = said.lines();
    let what = lines.find_map(|line| line.strip_prefix("Err:"))?;
    let what = what.split_once(' ').map_or(what, |(_, rest)| rest);
    let why = lines.next().unwrap_or_default().trim();
    Some(format!("{what}: {why}"))
}

/// The private configuration: folders of our own, and the system's way to the network.
fn configuration(folder: &Path, dump: &str) -> String {
    let folder = folder.display();
    let mut text = format!(
        "Dir::State \"{folder}/state\";\n\
         Dir::State::status \"{folder}/status\";\n\
         Dir::Cache \"{folder}/cache\";\n\
         Dir::Etc::sourcelist \"{folder}/sources.list\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\n\
         Dir::Etc::main \"/dev/null\";\n\
         Dir::Etc::parts \"/dev/null\";\n\
         Dir::Etc::preferences \"/dev/null\";\n\
         Dir::Etc::preferencesparts \"/dev/null\";\n\
         APT::Sandbox::User \"root\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::Retries \"2\";\n\
         Acquire::http::Timeout \"20\";\n\
         Acquire::https::Timeout \"20\";\n"
    );
    for line in dump.lines() {
        let kept = [
            "Acquire::http",
            "Acquire::https",
            "Acquire::Check-",
            "Acquire::Force",
        ];
        if kept.iter().any(|prefix| line.starts_with(prefix)) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_sources_are_read_with_options_and_comments() {
        let text = "# deb http://old.example/debian bookworm main\n\
            deb http://a.example/debian bookworm main contrib # the main one\n\
            deb-src http://a.example/debian bookworm main\n\
            deb [arch=amd64 signed-by=/k/archive.gpg] https://b.example/debian trixie main\n\
            debug http://c.example/ x main\n\n";
        let sources = parse_one_line(text);
        assert_eq!(sources.len(), 2);
        assert_eq!(sources[0].uris, ["http://a.example/debian"]);
        assert_eq!(sources[0].components, ["main", "contrib"]);
        assert_eq!(sources[0].signed_by, None);
        assert_eq!(sources[1].suites, ["trixie"]);
        assert_eq!(
            sources[1].signed_by.as_deref(),
            Some(Path::new("/k/archive.gpg"))
        );
    }

    #[test]
    fn deb822_sources_are_read_and_disabled_stanzas_are_not() {
        let text = "Types: deb deb-src\n# a comment\nURIs: http://a.example/debian\n\
            Suites: bookworm\n bookworm-updates\nComponents: main\n\
            Signed-By: /k/archive.gpg\n\n\
            Types: deb\nURIs: http://b.example/debian\nSuites: sid\nComponents: main\n\
            Enabled: no\n\n\
            Types: deb-src\nURIs: http://c.example/debian\nSuites: sid\nComponents: main\n\n\
            Types: deb\nURIs: http://d.example/debian\nSuites: sid\nComponents: main\n\
            Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQ/abc\n";
        let sources = parse_deb822(text);
        assert_eq!(sources.len(), 2);
        assert_eq!(sources[0].suites, ["bookworm", "bookworm-updates"]);
        assert_eq!(
            sources[0].signed_by.as_deref(),
            Some(Path::new("/k/archive.gpg"))
        );
        assert_eq!(sources[1].uris, ["http://d.example/debian"]);
        assert_eq!(sources[1].signed_by, None);
    }

    #[test]
    fn the_distributions_mirror_comes_first_and_security_never() {
        let text = "deb http://sec.example/debian-security bookworm-security main\n\
            deb https://tools.example/apt bookworm main\n\
            deb https://docker.example/linux/debian bookworm stable\n\
            deb http://m.example/debian bookworm main\n\
            deb http://m.example/debian bookworm-updates main\n";
        let found: Vec<_> = mirrors(&parse_one_line(text), "bookworm")
            .into_iter()
            .map(|mirror| mirror.uri)
            .collect();
        assert_eq!(
            found,
            ["http://m.example/debian", "https://tools.example/apt"]
        );
    }

    #[test]
    fn the_machines_own_suites_are_looked_through_first() {
        let sources = parse_one_line(
            "deb http://m.example/debian bookworm main\n\
             deb http://m.example/debian bookworm-backports main\n",
        );
        let suites = suites(&sources, "bookworm");
        assert_eq!(
            suites[..4],
            [
                "bookworm",
                "bookworm-backports",
                "trixie-backports",
                "trixie"
            ]
        );
        assert_eq!(suites.iter().filter(|s| *s == "bookworm").count(), 1);
    }

    #[test]
    fn a_debian_version_shows_its_upstream_part() {
        assert_eq!(upstream("1.95.0+dfsg1-1~bpo13+1"), "1.95.0");
        assert_eq!(upstream("1.95.0-2"), "1.95.0");
        assert_eq!(upstream("2:1.95.0+dfsg1-1"), "1.95.0");
        assert_eq!(upstream("1.95.0~beta.2+dfsg1-1"), "1.95.0~beta.2");
        assert_eq!(upstream("7.5.0"), "7.5.0");
    }

    #[test]
    fn apts_table_of_versions_is_read() {
        let text =
            " rust-src | 1.95.0+dfsg1-1~bpo13+1 | http://m.example/debian x/main all Packages\n";
        assert_eq!(madison(text), ["1.95.0+dfsg1-1~bpo13+1"]);
        assert!(madison("").is_empty());
    }

    #[test]
    fn what_apt_could_not_fetch_is_named_with_its_cause() {
        let text = "Ign:1 http://m.example/debian sid InRelease\n\
            Err:1 http://m.example/debian sid InRelease\n\
            \x20 Temporary failure resolving 'm.example'\nReading package lists...\n\
            W: Failed to fetch http://m.example/debian/dists/sid/InRelease\n";
        let error = fetch_error(text).unwrap();
        assert_eq!(
            error,
            "http://m.example/debian sid InRelease: Temporary failure resolving 'm.example'"
        );
        assert!(is_network_failure(&error));
        assert_eq!(
            fetch_error("Get:1 http://m.example/debian sid InRelease\n"),
            None
        );
        assert!(!is_network_failure(
            "http://m.example/debian sid Release: 404  Not Found"
        ));
    }

    #[test]
    fn the_releases_name_is_read() {
        assert_eq!(
            codename("ID=debian\nVERSION_CODENAME=bookworm\n"),
            Some("bookworm")
        );
        assert_eq!(codename("VERSION_CODENAME=\"noble\"\n"), Some("noble"));
        assert_eq!(codename("ID=arch\n"), None);
    }

    #[test]
    fn the_private_configuration_keeps_the_systems_proxy_and_nothing_that_weakens_signatures() {
        let dump = "APT::Update::Post-Invoke:: \"rm x\";\n\
            Acquire::http::Proxy \"http://proxy.example:3142\";\n\
            Acquire::AllowInsecureRepositories \"1\";\nAcquire::IndexTargets::deb \"\";\n";
        let text = configuration(Path::new("/t"), dump);
        assert!(text.contains("Acquire::http::Proxy \"http://proxy.example:3142\";"));
        assert!(!text.contains("Insecure"));
        assert!(!text.contains("IndexTargets"));
        assert!(!text.contains("rm x"));
    }
}
