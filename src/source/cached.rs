//! What is in memory of a source, and whose memory that is.

use super::{Source, SourceError, mapping};

/// How far before a page that is touched the kernel puts in others that it has: those of an
/// earlier read come back with the next one.
const AROUND: usize = 1 << 20;

impl Source {
    /// As [`Source::read_at`], for who goes through a file once and keeps nothing of it. Of a
    /// mapping the pages that were read are no longer counted as this process's memory, which
    /// would else grow to the size of the file; the kernel keeps them in its cache as it likes.
    pub fn read_once(&self, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        self.read_at(offset, out)?;
        if let Some(mapping) = &self.mapping
            && let Ok(offset) = usize::try_from(offset)
        {
            let from = offset.saturating_sub(AROUND);
            mapping.let_go(from, offset + out.len() - from);
        }
        Ok(())
    }

    /// Has the kernel forget its copy of these bytes, as far as it can: what another process has
    /// mapped stays. Whole pages around them.
    pub fn evict(&self, offset: u64, len: u64) {
        const PAGE: u64 = 4096;
        if let Some(ahead) = &self.ahead {
            ahead.forget(offset..offset + len);
        }
        let end = (offset + len).next_multiple_of(PAGE).min(self.len());
        let from = offset / PAGE * PAGE;
        if let Some(mapping) = &self.mapping
            && let (Ok(from), Ok(len)) = (usize::try_from(from), usize::try_from(end - from))
        {
            mapping.let_go(from, len);
        }
        // To the end of the last page, or it would be kept.
        mapping::drop_cached(&self.file, from, (offset + len).next_multiple_of(PAGE) - from);
    }
}
