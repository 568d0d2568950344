//! Reads a recording, whatever has happened to it.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};
use std::time::Duration;

use sallyport_sal::hpke::RecipientKeys;

use super::format::{
    CHUNK_HEAD, Decoder, FormatError, Kind, LONGEST_HEAD, MARKER, read_chunk_head, read_frames, read_index,
};
use super::frame::{Body, Exit, Frame, SessionMetadata};

/// A part of a recording that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Where it begins.
    pub offset: u64,
    /// Bytes passed over.
    pub length: u64,
    /// In which way it is damaged.
    pub what: String,
}

/// What is known of a recording without playing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Whose session.
    pub metadata: Option<SessionMetadata>,
    /// Until the last frame.
    pub duration: Duration,
    /// How the session ended, when the recording has its end.
    pub exit: Option<Exit>,
    /// Whether the end was written.
    pub complete: bool,
}

/// Reads frames in order. A damaged chunk is passed over and noted in [`Reader::damage`].
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    decoder: Decoder,
    offset: u64,
    next_sequence: u64,
    frames: VecDeque<Frame>,
    damage: Vec<Damage>,
    complete: bool,
    last: Duration,
}

impl<R: Read + Seek> Reader<R> {
    /// Opens a recording.
    ///
    /// # Errors
    /// [`FormatError`] in the error when it is not a recording for this key; else what reading says.
    pub fn open(mut input: R, recipient: &RecipientKeys) -> io::Result<Self> {
        let mut head = Vec::new();
        input.seek(SeekFrom::Start(0))?;
        Read::by_ref(&mut input).take(LONGEST_HEAD as u64).read_to_end(&mut head)?;
        let decoder = Decoder::new(&head, recipient).map_err(invalid)?;
        let offset = decoder.head_length() as u64;
        input.seek(SeekFrom::Start(offset))?;
        Ok(Self {
            input,
            decoder,
            offset,
            next_sequence: 0,
            frames: VecDeque::new(),
            damage: Vec::new(),
            complete: false,
            last: Duration::ZERO,
        })
    }

    /// The next frame; `None` at the end of what there is.
    ///
    /// # Errors
    /// What reading says. Damage is no error.
    pub fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                self.last = frame.at;
                return Ok(Some(frame));
            }
            if !self.next_chunk()? {
                return Ok(None);
            }
        }
    }

    /// Parts passed over so far.
    #[must_use]
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Whether the end of the recording was read.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Goes to the chunk that holds the moment `at`; the frames before it in that chunk are still given.
    ///
    /// # Errors
    /// What reading says.
    pub fn seek(&mut self, at: Duration) -> io::Result<()> {
        let mut target = self.decoder.head_length() as u64;
        match self.index()? {
            Some(index) => {
                for (first, offset) in index {
                    if first <= at {
                        target = offset;
                    }
                }
            }
            None => {
                // No index yet: by the heads alone, without opening anything.
                let mut offset = target;
                while let Some((head, _)) = self.head_at(offset)? {
                    if head.kind == Kind::Frames && head.first <= at {
                        target = offset;
                    }
                    offset += (CHUNK_HEAD + head.length) as u64;
                }
            }
        }
        self.frames.clear();
        self.complete = false;
        self.offset = target;
        self.next_sequence = self.head_at(target)?.map_or(0, |(head, _)| head.sequence);
        Ok(())
    }

    /// What is known without playing everything: the beginning, the time of the last chunk, and the end.
    ///
    /// # Errors
    /// What reading says.
    pub fn summary(&mut self) -> io::Result<Summary> {
        let (was, sequence) = (self.offset, self.next_sequence);
        self.seek(Duration::ZERO)?;
        let metadata = match self.next_frame()? {
            Some(Frame { body: Body::Start(metadata), .. }) => Some(*metadata),
            _ => None,
        };
        let (mut offset, mut tail, mut duration, mut complete) =
            (self.decoder.head_length() as u64, None, Duration::ZERO, false);
        while let Some((head, _)) = self.head_at(offset)? {
            match head.kind {
                Kind::Frames => tail = Some((offset, head.sequence)),
                Kind::Index => {}
                Kind::End => complete = true,
            }
            duration = duration.max(head.last);
            offset += (CHUNK_HEAD + head.length) as u64;
        }
        let mut exit = None;
        if let Some((offset, sequence)) = tail {
            (self.offset, self.next_sequence) = (offset, sequence);
            self.frames.clear();
            let damage = self.damage.len();
            self.next_chunk()?;
            self.damage.truncate(damage);
            exit = self.frames.drain(..).rev().find_map(|frame| match frame.body {
                Body::Exit(exit) => Some(exit),
                _ => None,
            });
        }
        (self.offset, self.next_sequence) = (was, sequence);
        self.frames.clear();
        self.complete = false;
        Ok(Summary { metadata, duration, exit, complete })
    }

    /// The index of a recording that has its end.
    fn index(&mut self) -> io::Result<Option<Vec<(Duration, u64)>>> {
        let length = self.input.seek(SeekFrom::End(0))?;
        // The end chunk holds eight bytes, so that its size is always the same; look a little wider for safety.
        let window = 256_u64.min(length);
        self.input.seek(SeekFrom::Start(length - window))?;
        let mut tail = Vec::new();
        Read::by_ref(&mut self.input).take(window).read_to_end(&mut tail)?;
        let Some(start) = (0..tail.len()).rev().find(|start| {
            tail.get(*start..).and_then(read_chunk_head).is_some_and(|head| head.kind == Kind::End)
        }) else {
            return Ok(None);
        };
        let Some(end) = self.plain_at(length - window + start as u64)? else { return Ok(None) };
        let Ok(position) = <[u8; 8]>::try_from(end.as_slice()) else { return Ok(None) };
        Ok(self.plain_at(u64::from_be_bytes(position))?.map(|plain| read_index(&plain)))
    }

    fn plain_at(&mut self, offset: u64) -> io::Result<Option<Vec<u8>>> {
        let Some((head, raw)) = self.head_at(offset)? else { return Ok(None) };
        let mut sealed = vec![0; head.length];
        match self.input.read_exact(&mut sealed) {
            Ok(()) => Ok(self.decoder.open(&raw, &sealed, head.sequence).ok()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The chunk head at an offset; afterwards the input stands behind it.
    fn head_at(&mut self, offset: u64) -> io::Result<Option<(super::format::ChunkHead, [u8; CHUNK_HEAD])>> {
        self.input.seek(SeekFrom::Start(offset))?;
        let mut raw = [0; CHUNK_HEAD];
        match self.input.read_exact(&mut raw) {
            Ok(()) => Ok(read_chunk_head(&raw).map(|head| (head, raw))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes in the next chunk; `false` when there is none.
    fn next_chunk(&mut self) -> io::Result<bool> {
        let at = self.offset;
        let Some((head, raw)) = self.head_at(at)? else {
            return self.resynchronise(at, "its head is not one");
        };
        let mut sealed = vec![0; head.length];
        match self.input.read_exact(&mut sealed) {
            Ok(()) => {}
            // Still being written, or cut off: either way this is the end for now.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
        let plain = match self.decoder.open(&raw, &sealed, head.sequence) {
            Ok(plain) => plain,
            Err(what) => {
                self.note(at, (CHUNK_HEAD + head.length) as u64, what);
                self.offset = at + (CHUNK_HEAD + head.length) as u64;
                self.next_sequence = head.sequence + 1;
                return Ok(true);
            }
        };
        if head.sequence != self.next_sequence {
            self.note(at, 0, "chunks before it are missing");
        }
        self.next_sequence = head.sequence + 1;
        self.offset = at + (CHUNK_HEAD + head.length) as u64;
        match head.kind {
            Kind::Frames => self.frames.extend(read_frames(plain)),
            Kind::Index => {}
            Kind::End => self.complete = true,
        }
        Ok(true)
    }

    /// Looks for the next chunk behind something that is none.
    fn resynchronise(&mut self, from: u64, what: &str) -> io::Result<bool> {
        let length = self.input.seek(SeekFrom::End(0))?;
        if from >= length {
            return Ok(false);
        }
        let mut position = from + 1;
        let mut window = vec![0; 64 * 1024];
        while position + CHUNK_HEAD as u64 <= length {
            self.input.seek(SeekFrom::Start(position))?;
            let read = read_some(&mut self.input, &mut window)?;
            let seen = window.get(..read).unwrap_or_default();
            let found = (0..read.saturating_sub(CHUNK_HEAD - 1)).find(|start| {
                seen.get(*start..)
                    .is_some_and(|rest| rest.starts_with(MARKER) && read_chunk_head(rest).is_some())
            });
            if let Some(start) = found {
                let offset = position + start as u64;
                self.note(from, offset - from, what);
                self.offset = offset;
                self.next_sequence =
                    self.head_at(offset)?.map_or(self.next_sequence, |(head, _)| head.sequence);
                return Ok(true);
            }
            position += (read.saturating_sub(CHUNK_HEAD - 1)).max(1) as u64;
        }
        // Less than a head is the beginning of a chunk that never got to its end: nothing was lost but it.
        if length - from > CHUNK_HEAD as u64 {
            self.note(from, length - from, what);
        }
        self.offset = length;
        Ok(false)
    }

    fn note(&mut self, offset: u64, length: u64, what: &str) {
        if self.damage.last().is_none_or(|last| last.offset != offset || last.what != what) {
            self.damage.push(Damage { offset, length, what: what.to_owned() });
        }
    }
}

fn read_some(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match input.read(rest)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

fn invalid(error: FormatError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
