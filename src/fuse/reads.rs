//! How reads are answered: at once, in advance, or by whoever may wait.

use super::room::Room;
use super::{Adapter, ahead, errno, guarded, lanes};
use crate::fs::{FsError, Handle, Reader};
use crate::grove::Grove;
use crate::layout::Ino;
use fuser::{LockOwner, ReplyData};
use log::debug;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

thread_local! {
    /// The bytes of one answer; its size is the largest request the kernel has made.
    static ANSWER: RefCell<Room> = RefCell::default();
}

/// What a read asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) ino: Ino,
    pub(super) handle: Handle,
    pub(super) offset: u64,
    pub(super) size: u32,
    pub(super) lock_owner: Option<LockOwner>,
    pub(super) reader: Reader,
}

/// A read, with all that it takes to answer it.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) asked: Asked,
    pub(super) reply: lanes::Slot<ReplyData>,
}

impl lanes::Reply for Question {
    fn refuse(self) {
        self.reply.take().into_iter().for_each(lanes::Reply::refuse);
    }
}

impl Question {
    fn range(&self) -> Range<u64> {
        self.asked.offset..self.asked.offset.saturating_add(self.asked.size.into())
    }

    /// Answers if that can be done at once; gives the question back if not.
    fn answer_at_once(self, fs: &Grove) -> Option<Question> {
        let Asked { ino, offset, size, reader, .. } = self.asked;
        ANSWER.with_borrow_mut(|answer| {
            answer.resize(size as usize);
            let read = guarded(|| Ok(fs.read_at_once(ino, offset, answer.bytes_mut(), reader)));
            match read {
                Ok(Some(n)) => {
                    debug!("read ino={} off={offset} len={size} -> {n}", ino.0);
                    if let Some(reply) = self.reply.take() {
                        reply.data(&answer.bytes()[..n]);
                    }
                    None
                }
                _ => Some(self),
            }
        })
    }
}

impl Adapter {
    /// Answers a read of bytes that need not be waited for, and uses the time until the next.
    pub(super) fn answer(&self, question: Question) {
        let Asked { ino, reader, .. } = question.asked;
        match self.ahead.take(ino, question.range(), question) {
            ahead::Taken::Handed => {}
            ahead::Taken::Ready(part, question) => self.answer_from(&part, question),
            ahead::Taken::Missing(question) => self.answer_as_usual(question),
        }
        let Some(mut plan) = self.ahead.plan(ino, || self.fs.foreseeable(ino)) else {
            return;
        };
        let offset = plan.range.start;
        let good = guarded(|| Ok(self.fs.foresee(ino, offset, plan.bytes.bytes_mut(), reader)));
        match self.ahead.made(plan, matches!(good, Ok(true)), Question::range) {
            Some((question, Some(part))) => self.answer_from(&part, question),
            Some((question, None)) => self.answer_as_usual(question),
            None => {}
        }
    }

    /// Answers at once what is good at the first look. What is not waits for further ones where it
    /// keeps nobody waiting.
    fn answer_as_usual(&self, question: Question) {
        let Some(lane) = self.fs.lane_of_trouble(question.asked.ino, question.asked.offset) else {
            return answer_read(&self.fs, question.asked, question.reply);
        };
        let Some(Question { asked, reply }) = question.answer_at_once(&self.fs) else {
            return;
        };
        let Some(reply) = reply.take() else {
            return;
        };
        let fs = Arc::clone(&self.fs);
        self.lanes.run(Some(lane.0), reply, move |slot| answer_read(&fs, asked, slot));
    }

    /// Answers with what was made in advance.
    fn answer_from(&self, part: &ahead::Part, question: Question) {
        let Question { asked: Asked { ino, offset, .. }, reply } = question;
        let bytes = part.get();
        // Nothing that was read from a changed file gets out.
        let served = guarded(|| self.fs.serve_foreseen(ino, offset, bytes.len() as u64));
        let Some(reply) = reply.take() else {
            return;
        };
        answer!(reply, format_args!("read ino={} off={offset}", ino.0), served, |()| {
            debug!("read ino={} off={offset} -> {}, made in advance", ino.0, bytes.len());
            reply.data(bytes);
        });
    }
}

/// Reads and answers; runs in whatever thread may wait for the source.
pub(super) fn answer_read(fs: &Grove, asked: Asked, slot: lanes::Slot<ReplyData>) {
    let Asked { ino, handle, offset, size, lock_owner, reader } = asked;
    ANSWER.with_borrow_mut(|answer| {
        answer.resize(size as usize);
        let result = guarded(|| fs.read_for(reader, ino, handle, offset, answer.bytes_mut()));
        let answer = answer.bytes();
        let Some(reply) = slot.take() else {
            return;
        };
        match result {
            Ok(n) => {
                debug!("read ino={} off={offset} len={size} -> {n}", ino.0);
                reply.data(&answer[..n]);
            }
            // A request with a lock owner is a read(2) past the page cache: a short answer is a
            // short read. Without one it fills pages, where a short answer would look like the end.
            Err(FsError::Read { good, error }) if good > 0 && lock_owner.is_some() => {
                debug!("read ino={} off={offset} len={size} -> {good}, then {error}", ino.0);
                fs.serve_short(ino, good as u64);
                reply.data(&answer[..good]);
            }
            Err(error) => {
                debug!("read ino={} off={offset} len={size} -> {error}", ino.0);
                reply.error(errno::errno(&error));
            }
        }
    });
}
