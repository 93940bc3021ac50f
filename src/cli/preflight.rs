//! What mounting needs from the system, asked before mounting, so that the answer can say how to
//! mend it: the device, the right to mount or fusermount3, user_allow_other.

use super::shell;
use anyhow::{Result, bail};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use weightfs::bytes::line::InLine;

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
    let is_root = nix::unistd::geteuid().is_root();
    match File::options().read(true).write(true).open(DEVICE) {
        Ok(device) if is_device(&device) => {}
        Ok(_) => bail!("{DEVICE} is a file and no device\n{IN_A_CONTAINER}\n{STILL_WORKS}"),
        Err(error) => bail!("{}", device_cure(&error, is_root)),
    }
    if !unaided && find_fusermount().is_none() {
        bail!(
            "fusermount3 is missing, without which only a process with CAP_SYS_ADMIN can mount\n\
             on Debian and Ubuntu: apt install fuse3\n{IN_A_CONTAINER}\n{STILL_WORKS}"
        );
    }
    Ok(())
}

fn is_device(file: &File) -> bool {
    file.metadata().is_ok_and(|m| m.file_type().is_char_device())
}

/// What to do about a device that does not open.
fn device_cure(error: &io::Error, is_root: bool) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => format!(
            "{DEVICE} does not exist, so nothing can be mounted\n{IN_A_CONTAINER}\non a host, as root: modprobe fuse\n{STILL_WORKS}"
        ),
        Some(libc::ENODEV | libc::ENXIO) => format!(
            "{DEVICE}: the kernel has no FUSE ({error})\non a host, as root: modprobe fuse\n{STILL_WORKS}"
        ),
        Some(libc::EACCES) if is_root => format!(
            "{DEVICE} may not be opened, not even by root ({error})\nis /dev mounted with nodev? (findmnt -T {DEVICE})\n{IN_A_CONTAINER}\n{STILL_WORKS}"
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
    if !refused {
        return error.to_owned();
    }
    let why = if may_mount() { None } else { helpless(&own_status(), find_fusermount()) };
    let why = why.unwrap_or_else(|| "the system refuses the right to mount".into());
    format!("{error}\n{why}\n{IN_A_CONTAINER}\n{STILL_WORKS}")
}

/// Why fusermount3 has no more rights than who called it, if that is so. File capabilities would
/// do as well as setuid: it was not refused beforehand.
fn helpless(status: &str, helper: Option<PathBuf>) -> Option<String> {
    if status_mask(status, "NoNewPrivs") == Some(1) {
        return Some(
            "this process and what it starts may gain no privileges (no_new_privs): start it without that, or as root".into(),
        );
    }
    let helper = helper?;
    let file = std::fs::metadata(&helper).ok()?;
    let is_setuid = file.mode() & libc::S_ISUID != 0 && file.uid() == 0;
    let (word, helper) = (shell::word(&helper), helper.in_line());
    (!is_setuid).then(|| {
        format!("{helper} is not setuid root: as root, chown root {word} && chmod 4755 {word}")
    })
}

/// Whether this process may call mount(2) itself.
fn may_mount() -> bool {
    status_mask(&own_status(), "CapEff").is_some_and(|mask| mask & CAP_SYS_ADMIN != 0)
}

fn own_status() -> String {
    std::fs::read_to_string("/proc/self/status").unwrap_or_default()
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
            for is_root in [false, true] {
                let text = device_cure(&io::Error::from_raw_os_error(errno), is_root);
                let cure = if is_root && errno == libc::EACCES { "nodev" } else { cure };
                assert!(text.contains("/dev/fuse") && text.contains(cure), "{text}");
                assert!(text.lines().count() <= 4, "{text}");
            }
        }
        let text = mount_cure("mount: Operation not permitted (os error 1)");
        assert!(text.contains("SYS_ADMIN") && text.lines().count() <= 4, "{text}");
        assert_eq!(mount_cure("no such device"), "no such device");
    }

    #[test]
    fn a_helper_without_rights_is_told_from_one_that_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let helper = dir.path().join("fusermount3");
        std::fs::write(&helper, "").unwrap();
        let text = helpless("NoNewPrivs:\t0\n", Some(helper.clone())).unwrap();
        assert!(text.contains("fusermount3 is not setuid root"), "{text}");
        let text = helpless("NoNewPrivs:\t1\n", Some(helper)).unwrap();
        assert!(text.contains("no_new_privs"), "{text}");
        assert_eq!(helpless("NoNewPrivs:\t0\n", None), None);
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
