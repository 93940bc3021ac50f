//! Which file systems are mounts of ours: what they show are views of models, and no models.

use std::collections::HashSet;

/// Devices of the mounts of weightfs that this process sees; none where the system does not tell.
pub(super) fn ours() -> HashSet<u64> {
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|&byte| byte == b'\n').filter_map(device_of_ours).collect()
}

/// The device in a line of mountinfo, if it is of a mount of ours.
fn device_of_ours(line: &[u8]) -> Option<u64> {
    let mut words = line.split(|&byte| byte == b' ');
    let device = std::str::from_utf8(words.nth(2)?).ok()?;
    words.find(|word| *word == b"-")?;
    (words.next()? == b"fuse.weightfs").then_some(())?;
    let (major, minor) = device.split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_of_ours_are_named() {
        for (line, want) in [
            ("36 35 0:52 / /mnt/a rw shared:1 - fuse.weightfs /m.gguf rw", Some((0, 52))),
            ("36 35 1:300 / /mnt/a\\040b rw - fuse.weightfs /m\\040.gguf rw", Some((1, 300))),
            ("36 35 0:52 / /fuse.weightfs rw - fuse.sshfs fuse.weightfs rw", None),
            ("36 35 8:1 / / rw - ext4 /dev/sda1 rw", None),
            ("36 35 x / / rw - fuse.weightfs a rw", None),
            ("", None),
        ] {
            let want = want.map(|(major, minor)| libc::makedev(major, minor));
            assert_eq!(device_of_ours(line.as_bytes()), want, "{line}");
        }
    }
}
