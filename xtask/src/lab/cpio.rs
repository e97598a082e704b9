//! The archive format of an initramfs (`newc`, Documentation/driver-api/early-userspace/buffer-format.rst).
//! The kernel reads several archives one behind the other, so that what differs from run to run is
//! appended to a cached one.

/// An archive in the making.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// A folder; its parents must have been added before.
    pub fn folder(&mut self, name: &str) {
        self.entry(name, 0o040755, &[]);
    }

    /// A file that may be executed.
    pub fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, 0o100755, content);
    }

    /// A symbolic link.
    pub fn link(&mut self, name: &str, target: &str) {
        self.entry(name, 0o120777, target.as_bytes());
    }

    /// The whole archive, its length a multiple of four.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = content.len() as u32;
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            0,
            0,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        let length = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(length, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_holds_names_and_contents_at_multiples_of_four() {
        let mut archive = Archive::default();
        archive.file("init", b"abc");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[14..22], b"000081ed");
        assert_eq!(&bytes[54..62], b"00000003");
        assert_eq!(&bytes[110..115], b"init\0");
        assert_eq!(&bytes[116..119], b"abc");
        assert!(bytes.windows(10).any(|w| w == b"TRAILER!!!"));
    }
}
