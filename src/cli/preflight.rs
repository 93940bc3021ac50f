//! What mounting needs from the system, asked before mounting, so that the answer can say how to
//! mend it: the device, the right to mount or fusermount3, user_allow_other.

use anyhow::{Result, bail};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

const DEVICE: &str = "/dev/fuse";
const CONFIG: &str = "/etc/fuse.conf";
const IN_A_CONTAINER: &str = "in a container: start it with --device /dev/fuse --cap-add SYS_ADMIN (and --security-opt apparmor=unconfined)";
const STILL_WORKS: &str = "ls, info, cat, seal and verify work without mounting";

/// `CAP_SYS_ADMIN` in the masks of /proc/PID/status.
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// Fails where mounting is bound to fail, with the reason and the cure.
pub(crate) fn check(allow_other: bool) -> Result<()> {
    let unaided = may_mount();
    if allow_other && !unaided && !nix::unistd::getuid().is_root() {
        let config = std::fs::read_to_string(CONFIG).unwrap_or_default();
        if !has_user_allow_other(&config) {
            bail!(
                "-o allow_other: {CONFIG} does not let ordinary users do that\n\
                 as root, add a line to {CONFIG} that says: user_allow_other"
            );
        }
    }
    if let Err(error) = File::options().read(true).write(true).open(DEVICE) {
        bail!("{}", device_cure(&error));
    }
    if !unaided && find_fusermount().is_none() {
        bail!(
            "fusermount3 is missing, without which only a process with CAP_SYS_ADMIN can mount\n\
             on Debian and Ubuntu: apt install fuse3\n{IN_A_CONTAINER}\n{STILL_WORKS}"
        );
    }
    Ok(())
}

/// What to do about a device that does not open.
fn device_cure(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => format!(
            "{DEVICE} does not exist, so nothing can be mounted\n{IN_A_CONTAINER}\non a host, as root: modprobe fuse\n{STILL_WORKS}"
        ),
        Some(libc::ENODEV | libc::ENXIO) => format!(
            "{DEVICE}: the kernel has no FUSE ({error})\non a host, as root: modprobe fuse\n{STILL_WORKS}"
        ),
        Some(libc::EACCES) => format!(
            "{DEVICE} may not be opened by this user ({error})\nas root: chmod 0666 {DEVICE}\n{IN_A_CONTAINER}\n{STILL_WORKS}"
        ),
        Some(libc::EPERM) => format!(
            "{DEVICE} is there but may not be opened here ({error})\n{IN_A_CONTAINER}\n{STILL_WORKS}"
        ),
        _ => format!("{DEVICE}: {error}\n{IN_A_CONTAINER}\n{STILL_WORKS}"),
    }
}

/// What a mount that failed although [`check`] passed most likely needs.
pub(crate) fn mount_cure(error: &str) -> String {
    let refused = ["not permitted", "ermission denied", "EPERM", "EACCES"]
        .iter()
        .any(|word| error.contains(word));
    if refused {
        format!("{error}\nthe system refuses the right to mount\n{IN_A_CONTAINER}\n{STILL_WORKS}")
    } else {
        error.to_owned()
    }
}

/// Whether this process may call mount(2) itself.
fn may_mount() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status_mask(&status, "CapEff").is_some_and(|mask| mask & CAP_SYS_ADMIN != 0)
}

/// A hexadecimal mask of /proc/PID/status.
pub(crate) fn status_mask(status: &str, name: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    u64::from_str_radix(value.trim(), 16).ok()
}

/// The setuid helper, where the FUSE library looks for it.
fn find_fusermount() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("FUSERMOUNT_PATH") {
        return Some(PathBuf::from(path)).filter(|file| is_program(file));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let fixed = ["/bin", "/usr/bin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(fixed)
        .flat_map(|dir| ["fusermount3", "fusermount"].map(|name| dir.join(name)))
        .find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok() && file.is_file()
}

/// The line must stand by itself; fusermount3 reads it so.
fn has_user_allow_other(config: &str) -> bool {
    config.lines().any(|line| line.trim() == "user_allow_other")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_cure_fits_in_four_lines_and_names_the_device() {
        for (errno, cure) in [
            (libc::ENOENT, "--device /dev/fuse --cap-add SYS_ADMIN"),
            (libc::ENODEV, "modprobe fuse"),
            (libc::EACCES, "chmod 0666 /dev/fuse"),
            (libc::EPERM, "--cap-add SYS_ADMIN"),
            (libc::EMFILE, "/dev/fuse"),
        ] {
            let text = device_cure(&io::Error::from_raw_os_error(errno));
            assert!(text.contains("/dev/fuse") && text.contains(cure), "{text}");
            assert!(text.lines().count() <= 4, "{text}");
        }
        let text = mount_cure("mount: Operation not permitted (os error 1)");
        assert!(text.contains("SYS_ADMIN") && text.lines().count() <= 4, "{text}");
        assert_eq!(mount_cure("no such device"), "no such device");
    }

    #[test]
    fn the_line_in_fuse_conf_counts_only_by_itself() {
        assert!(has_user_allow_other("# x\n  user_allow_other \nmount_max = 1\n"));
        for config in ["", "#user_allow_other", "user_allow_other = 1", "no user_allow_other"] {
            assert!(!has_user_allow_other(config), "{config}");
        }
    }

    #[test]
    fn masks_are_read_by_their_whole_name() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nCapEff:\t000001ffffffffff\n";
        assert_eq!(status_mask(status, "SigIgn"), Some(0x1001));
        assert!(status_mask(status, "CapEff").unwrap() & CAP_SYS_ADMIN != 0);
        assert_eq!(status_mask(status, "Cap"), None);
    }
}
