//! The guard: a page of a mapped file that cannot be had must not kill the process.
//!
//! A file that shrinks, or whose device fails, raises SIGBUS in whoever touches the
//! missing page. The handler looks the address up in a fixed table; if it lies in
//! one of our mappings it marks that mapping as lost, puts zeros over the rest of it
//! and returns, so that the interrupted copy runs on. The copier sees the mark and
//! throws the bytes away. Any other address gets the former handler back.
//!
//! Must not know files: it is told ranges of addresses.
#![allow(unsafe_code)]

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How many mappings can be guarded at once. The largest published checkpoints have
/// a few hundred shards; a mapping that finds no room is not made, the file is read
/// by `pread`.
const ROOM: usize = 2048;

/// One guarded mapping. `end` is written last when a slot is taken and cleared first
/// when it is given back, so a reader that sees the same `end` twice around `base`
/// has a pair that belonged together.
struct Entry {
    used: AtomicBool,
    base: AtomicUsize,
    end: AtomicUsize,
    lost: AtomicBool,
}

static TABLE: [Entry; ROOM] = [const {
    Entry {
        used: AtomicBool::new(false),
        base: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; ROOM];

/// Entries from here on were never used.
static HIGH: AtomicUsize = AtomicUsize::new(0);

/// What was installed before us; written before our handler is.
static FORMER: OnceLock<libc::sigaction> = OnceLock::new();

/// Page size, for the handler.
static PAGE: AtomicUsize = AtomicUsize::new(4096);

/// A place in the table, given back on drop. Drop it before the range is unmapped
/// for others to reuse.
#[derive(Debug)]
pub(super) struct Slot(usize);

impl Slot {
    /// Guards `len` bytes from `base`, a page boundary.
    pub(super) fn take(base: usize, len: usize) -> io::Result<Slot> {
        install()?;
        let free = TABLE.iter().position(|e| {
            e.used.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        let Some(index) = free else {
            let text = format!("{ROOM} files are mapped already, which is the most");
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        };
        let entry = &TABLE[index];
        entry.lost.store(false, Ordering::SeqCst);
        entry.base.store(base, Ordering::SeqCst);
        HIGH.fetch_max(index + 1, Ordering::SeqCst);
        entry.end.store(base.saturating_add(len), Ordering::SeqCst);
        Ok(Slot(index))
    }

    /// Whether a page of the range could not be had since it was guarded.
    pub(super) fn lost(&self) -> bool {
        TABLE[self.0].lost.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
impl Slot {
    /// What marks the mapping as lost, for whoever holds it no more.
    pub(super) fn loser(&self) -> impl Fn() + Send + Sync + 'static + use<> {
        let index = self.0;
        move || TABLE[index].lost.store(true, Ordering::SeqCst)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let entry = &TABLE[self.0];
        entry.end.store(0, Ordering::SeqCst);
        entry.base.store(0, Ordering::SeqCst);
        entry.used.store(false, Ordering::Release);
    }
}

/// Installs the handler once for the process.
fn install() -> io::Result<()> {
    static DONE: OnceLock<Result<(), i32>> = OnceLock::new();
    let done = DONE.get_or_init(|| {
        // SAFETY: sysconf only reads its argument.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        if let Ok(page) = usize::try_from(page)
            && page.is_power_of_two()
        {
            PAGE.store(page, Ordering::SeqCst);
        }
        // SAFETY: sigaction is a C struct for which all zeros is a valid value; the two
        // calls get pointers to live structs of that type, or null where none is wanted.
        // The handler is async-signal-safe (see there) and `FORMER` is set before it.
        unsafe {
            let mut former: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut former) != 0 {
                return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL));
            }
            let _ = FORMER.set(former);
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = on_sigbus as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut ours.sa_mask);
            if libc::sigaction(libc::SIGBUS, &ours, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL));
            }
        }
        Ok(())
    });
    (*done).map_err(io::Error::from_raw_os_error)
}

/// The handler. Only atomics, `mmap`, `sigaction` and `raise`: nothing allocates,
/// locks or can panic.
extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler; errno's
    // address is always valid in a thread.
    let (address, code, errno) =
        unsafe { ((*info).si_addr() as usize, (*info).si_code, *libc::__errno_location()) };
    // A code of 0 or less was sent by a process: it has no address.
    if code > 0 && patch(address) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        return;
    }
    // SAFETY: both functions are async-signal-safe, the struct is live and was filled
    // by sigaction itself. A fault happens again on return, under the former handler;
    // a signal that was sent has to be sent again.
    unsafe {
        match FORMER.get() {
            Some(former) => libc::sigaction(signal, former, std::ptr::null_mut()),
            None => libc::signal(signal, libc::SIG_DFL) as libc::c_int,
        };
        if code <= 0 {
            libc::raise(signal);
        }
        *libc::__errno_location() = errno;
    }
}

/// Puts zeros from the page of `address` to the end of the mapping it lies in, after
/// marking that mapping as lost. False when the address is none of ours.
fn patch(address: usize) -> bool {
    let high = HIGH.load(Ordering::SeqCst);
    for entry in TABLE.iter().take(high) {
        let end = entry.end.load(Ordering::SeqCst);
        if address >= end {
            continue;
        }
        let base = entry.base.load(Ordering::SeqCst);
        if address < base || entry.end.load(Ordering::SeqCst) != end {
            continue;
        }
        // The mark comes first: whoever reads a zero below finds it set.
        entry.lost.store(true, Ordering::SeqCst);
        let page = address & !(PAGE.load(Ordering::SeqCst).wrapping_sub(1));
        // SAFETY: [page, end) lies inside a mapping that stays alive while its slot is
        // taken, and nothing but copies that check the mark read from it, so replacing
        // its pages takes nothing from anybody.
        let zeros = unsafe {
            libc::mmap(
                page as *mut libc::c_void,
                end.wrapping_sub(page),
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        return zeros != libc::MAP_FAILED;
    }
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn slots_are_given_back() {
        let page = PAGE.load(Ordering::SeqCst);
        for _ in 0..3 * ROOM {
            let slot = Slot::take(page, page).unwrap();
            assert!(!slot.lost());
        }
    }

    /// Runs only as a child of the next test: faults in a mapping that nobody guards.
    #[test]
    #[ignore = "kills its process; run by a_fault_elsewhere_still_kills"]
    fn fault_elsewhere() {
        install().unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        // SAFETY: the mapping outlives its one use below; the fault is the test.
        let map = unsafe { memmap2::Mmap::map(&file).unwrap() };
        file.set_len(0).unwrap();
        // SAFETY: the address is mapped; touching it raises the SIGBUS that we want.
        let byte = unsafe { std::ptr::read_volatile(map.as_ptr()) };
        panic!("read {byte} from a page that is not there");
    }

    #[test]
    fn a_fault_elsewhere_still_kills() {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "source::sigbus::tests::fault_elsewhere"])
            .output()
            .unwrap()
            .status;
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
    }
}
