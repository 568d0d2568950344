//! Bytes that wait in a stream, with what they cost in memory.

use std::collections::VecDeque;
use std::mem;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::memory::Memory;

/// Pieces from this size on are kept where they came in; smaller ones are gathered. A piece keeps the whole of the buffer
/// that it lies in.
const KEEP_FROM: usize = 8 * 1024;
/// What such a piece is charged: the buffer of a connection, whatever else was in it.
const KEPT_BYTES: usize = 64 * 1024;
/// What a piece costs besides its bytes: its place in the queue, and what the allocator and the reference count take.
const PIECE_BYTES: usize = 128;
/// Room that is made for gathered pieces, from when a second one comes while the first still waits.
const LEAST_GATHERED: usize = 256;
const MOST_GATHERED: usize = 16 * 1024;
/// A queue that has had more pieces than this gives the room for them back once it is empty.
const FEW_PIECES: usize = 32;

/// A queue of bytes. A peer chooses the size of its pieces; what they cost here does not follow it.
#[derive(Debug)]
pub(super) struct Chunks {
    memory: Memory,
    pieces: VecDeque<Piece>,
    /// The last piece, while more goes into it.
    gathered: BytesMut,
    /// Bytes that were allocated for it.
    room: usize,
    /// Bytes that will be for the next.
    next_room: usize,
    bytes: usize,
    charged: usize,
}

#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    charge: usize,
}

impl Chunks {
    /// An empty queue whose cost is counted in `memory`.
    pub(super) fn new(memory: Memory) -> Self {
        Self {
            memory,
            pieces: VecDeque::new(),
            gathered: BytesMut::new(),
            room: 0,
            next_room: 0,
            bytes: 0,
            charged: 0,
        }
    }

    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// What they cost.
    pub(super) fn charged(&self) -> usize {
        self.charged
    }

    /// Bytes of a frame, which lie in the buffer of the connection.
    pub(super) fn receive(&mut self, bytes: Bytes) {
        if bytes.len() < KEEP_FROM { self.gather(bytes) } else { self.keep(bytes) }
    }

    /// At most `most` bytes of a writer's.
    pub(super) fn write(&mut self, bytes: &mut impl Buf, most: usize) {
        let most = most.min(bytes.remaining());
        // What a writer has by reference it hands over so, where nothing waits.
        if self.is_empty() || most >= KEEP_FROM {
            self.keep(bytes.copy_to_bytes(most));
        } else {
            self.gather(bytes.take(most));
        }
    }

    fn keep(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        self.close_gathered();
        self.bytes += bytes.len();
        // Where memory is scarce, a copy is as large as it says, and the buffer is free.
        let (bytes, charge) = if self.memory.is_scarce() {
            (Bytes::copy_from_slice(&bytes), bytes.len() + PIECE_BYTES)
        } else {
            let kept = bytes.len().max(KEPT_BYTES);
            (bytes, kept + PIECE_BYTES)
        };
        self.charge(charge);
        self.pieces.push_back(Piece { bytes, charge });
    }

    fn gather(&mut self, bytes: impl Buf) {
        let length = bytes.remaining();
        if length == 0 {
            return;
        }
        if self.gathered.capacity() - self.gathered.len() < length {
            self.close_gathered();
            // The first piece gets what it needs: a reader who keeps up has taken it before the next comes.
            self.gathered = BytesMut::with_capacity(length.max(self.next_room));
            self.room = self.gathered.capacity();
            self.next_room = (self.room * 2).clamp(LEAST_GATHERED, MOST_GATHERED);
            self.charge(self.room + PIECE_BYTES);
        }
        self.bytes += length;
        self.gathered.put(bytes);
    }

    fn close_gathered(&mut self) {
        if !self.gathered.is_empty() {
            let charge = mem::take(&mut self.room) + PIECE_BYTES;
            self.pieces.push_back(Piece { bytes: mem::take(&mut self.gathered).freeze(), charge });
        }
    }

    /// The first bytes, at most `most`; `None` when nothing waits.
    pub(super) fn pop(&mut self, most: usize) -> Option<Bytes> {
        if self.pieces.is_empty() {
            self.close_gathered();
        }
        let first = self.pieces.front_mut()?;
        let taken = first.bytes.split_to(most.min(first.bytes.len()));
        if first.bytes.is_empty() {
            let charge = first.charge;
            self.pieces.pop_front();
            self.discharge(charge);
        }
        self.bytes -= taken.len();
        if self.bytes == 0 {
            self.next_room = 0;
            if self.pieces.capacity() > FEW_PIECES {
                self.pieces = VecDeque::new();
            }
        }
        Some(taken)
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.pieces = VecDeque::new();
        self.gathered = BytesMut::new();
        (self.room, self.next_room, self.bytes) = (0, 0, 0);
        self.discharge(self.charged);
    }

    fn charge(&mut self, bytes: usize) {
        self.charged += bytes;
        self.memory.take(bytes as u64);
    }

    fn discharge(&mut self, bytes: usize) {
        self.charged -= bytes;
        self.memory.give_back(bytes as u64);
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        self.discharge(self.charged);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_goes_in_comes_out_and_all_that_was_charged_is_given_back(
            steps in prop::collection::vec((0..4_u8, 0..20_000_usize), 1..60),
            most in prop_oneof![Just(0_u64), Just(150_000), Just(u64::MAX)],
        ) {
            let memory = Memory::new(most);
            let mut chunks = Chunks::new(memory.clone());
            let (mut put, mut got, mut next) = (Vec::<u8>::new(), Vec::<u8>::new(), 0_u8);
            for (step, size) in steps {
                let bytes: Vec<u8> = (0..size).map(|_| { next = next.wrapping_add(1); next }).collect();
                match step {
                    0 => { put.extend(&bytes); chunks.receive(Bytes::from(bytes)); }
                    1 => { put.extend(&bytes); chunks.write(&mut &bytes[..], usize::MAX); }
                    2 => { put.extend(bytes.iter().take(3)); chunks.receive(Bytes::from(bytes).split_to(size.min(3))); }
                    _ => got.extend(chunks.pop(size.max(1)).unwrap_or_default()),
                }
                prop_assert_eq!(chunks.len(), put.len() - got.len());
                prop_assert!(chunks.charged() >= chunks.len());
                prop_assert_eq!(memory.held(), chunks.charged() as u64);
            }
            while let Some(bytes) = chunks.pop(7_000) {
                got.extend(bytes);
            }
            prop_assert_eq!(got, put);
            prop_assert_eq!(memory.held(), 0);
            chunks.receive(Bytes::from_static(b"left"));
            drop(chunks);
            prop_assert_eq!(memory.held(), 0);
        }
    }

    #[test]
    fn a_reader_that_keeps_up_costs_one_piece_of_the_right_size() {
        let mut chunks = Chunks::new(Memory::new(u64::MAX));
        for _ in 0..3 {
            chunks.receive(Bytes::from_static(b"x"));
            assert_eq!(chunks.charged(), 1 + PIECE_BYTES);
            assert_eq!(chunks.pop(usize::MAX).unwrap(), "x");
        }
    }
}
