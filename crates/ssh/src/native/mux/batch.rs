//! What is written at once.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Payloads from this on are handed on as they are, where the stream takes several pieces at once.
const WHOLE_FROM: usize = 4 * 1024;

/// Pieces in order. Small ones are put together.
pub(super) struct Batch {
    pieces: VecDeque<Bytes>,
    small: BytesMut,
    len: usize,
    /// The stream takes one piece at a time: there is only one.
    contiguous: bool,
}

impl Batch {
    pub(super) fn new(contiguous: bool) -> Self {
        Self { pieces: VecDeque::new(), small: BytesMut::new(), len: 0, contiguous }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn put(&mut self, bytes: Bytes) {
        self.len += bytes.len();
        if self.contiguous || bytes.len() < WHOLE_FROM {
            self.small.extend_from_slice(&bytes);
        } else {
            self.close_small();
            self.pieces.push_back(bytes);
        }
    }

    pub(super) fn put_data(&mut self, head: &[u8], bytes: &Bytes) {
        self.len += head.len();
        self.small.extend_from_slice(head);
        self.put(bytes.clone());
    }

    /// Nothing is put any more: what is here is to be written.
    pub(super) fn close_small(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push_back(self.small.split().freeze());
        }
    }
}

impl Buf for Batch {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map(AsRef::as_ref).unwrap_or_default()
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slot, piece) in into.iter_mut().zip(&self.pieces) {
            *slot = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    fn advance(&mut self, mut count: usize) {
        self.len = self.len.saturating_sub(count);
        while count > 0 {
            let Some(first) = self.pieces.front_mut() else { return };
            let part = count.min(first.len());
            first.advance(part);
            count -= part;
            if first.is_empty() {
                self.pieces.pop_front();
            }
        }
    }
}
