//! Getting the text of a configuration file.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest file that is read, in bytes.
pub const MAX_BYTES: u64 = 64 << 20;

/// Why a file could not even be looked into.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each text says what the variant means")]
pub enum Error {
    #[error("can't read {path}: {source}: name a configuration file that you may read")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path} is a directory: name the configuration file in it")]
    Directory { path: PathBuf },
    #[error("{path} is larger than {} MiB: is that the configuration?", MAX_BYTES >> 20)]
    TooLarge { path: PathBuf },
    #[error("{path}:{line}: this is not UTF-8: save the file as UTF-8 text")]
    NotUtf8 { path: PathBuf, line: usize },
}

/// Reads a whole file.
pub fn read(path: &Path) -> Result<String, Error> {
    let unreadable = |source| Error::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.is_dir() {
        return Err(Error::Directory {
            path: path.to_owned(),
        });
    }
    let mut bytes = Vec::new();
    let mut limited = file.take(MAX_BYTES + 1);
    limited.read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Error::TooLarge {
            path: path.to_owned(),
        });
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let before = &error.as_bytes()[..good];
        Error::NotUtf8 {
            path: path.to_owned(),
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
        }
    })
}
