//! Which number a program sees for each failure: chosen here and nowhere else.

use crate::fs::FsError;
use crate::store::StoreError;
use fuser::Errno;

/// The errno of a failure. Damage and a lost page are EIO, a file that is another one by now is
/// ESTALE, whatever would write is EROFS.
pub(super) fn errno(error: &FsError) -> Errno {
    match error {
        FsError::NotFound => Errno::ENOENT,
        FsError::NameTooLong(_) => Errno::ENAMETOOLONG,
        FsError::NotDirectory => Errno::ENOTDIR,
        FsError::IsDirectory => Errno::EISDIR,
        // What readlink(2) says of a file that is no link.
        FsError::NotLink => Errno::EINVAL,
        FsError::NoAttribute => Errno::NO_XATTR,
        FsError::Internal => Errno::EIO,
        FsError::Read { error, .. } => store_errno(error),
    }
}

fn store_errno(error: &StoreError) -> Errno {
    if error.is_stale() {
        Errno::ESTALE
    } else {
        // Failed checksums and device errors look the same to a reader: these bytes cannot be had.
        Errno::EIO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_number() {
        let table = [
            (FsError::NotFound, libc::ENOENT),
            (FsError::NameTooLong(300), libc::ENAMETOOLONG),
            (FsError::NotDirectory, libc::ENOTDIR),
            (FsError::IsDirectory, libc::EISDIR),
            (FsError::NotLink, libc::EINVAL),
            (FsError::NoAttribute, libc::ENODATA),
            (FsError::Internal, libc::EIO),
            (FsError::from(std::io::Error::other("device")), libc::EIO),
        ];
        for (error, expected) in table {
            assert_eq!(errno(&error).code(), expected, "{error}");
        }
    }
}
