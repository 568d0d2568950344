use std::cell::RefCell;
use std::io::Cursor;
use std::path::Path;

use super::packet::{MAX_HANDLES, MAX_PACKET_BYTES};
use super::*;

/// A request: its type, and its fields after the id.
fn request(kind: u8, id: u32, fields: &[&[u8]]) -> Vec<u8> {
    let mut body = vec![kind];
    body.extend_from_slice(&id.to_be_bytes());
    for field in fields {
        body.extend_from_slice(field);
    }
    let mut packet = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    packet.extend_from_slice(&body);
    packet
}

fn string(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    let mut field = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    field.extend_from_slice(bytes);
    field
}

fn text(path: &Path) -> Vec<u8> {
    string(path.to_str().unwrap())
}

/// Hands out its bytes in pieces of a given length.
struct Pieces(Cursor<Vec<u8>>, usize);

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(self.1);
        self.0.read(&mut buffer[..most])
    }
}

/// Serves these packets, and gives the answers and the reports.
fn answers(packets: &[Vec<u8>], piece: usize) -> (io::Result<()>, Vec<Vec<u8>>, Vec<FileOperation>) {
    let mut input = vec![0, 0, 0, 5, 1, 0, 0, 0, 3];
    input.extend(packets.concat());
    let mut output = Vec::new();
    let reports = RefCell::new(Vec::new());
    let result = serve(
        Pieces(Cursor::new(input), piece),
        &mut output,
        |report| reports.borrow_mut().push(report),
        true,
    );
    let mut rest = output.as_slice();
    let mut answers = Vec::new();
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let (packet, tail) = tail.split_at(u32::from_be_bytes(*length) as usize);
        answers.push(packet.to_vec());
        rest = tail;
    }
    (result, answers, reports.into_inner())
}

/// The code of a status answer.
fn status(answer: &[u8]) -> u32 {
    assert_eq!(answer[0], 101, "{answer:?}");
    u32::from_be_bytes(answer[5..9].try_into().unwrap())
}

const NO_ATTRIBUTES: &[u8] = &[0; 4];
const WRITE_CREATE: &[u8] = &[0, 0, 0, 0x2 | 0x8];
const READ: &[u8] = &[0, 0, 0, 1];

#[test]
fn a_file_is_written_and_read_however_the_bytes_arrive() {
    for piece in [1, 2, 3, 7, 64, 1 << 20] {
        let directory = tempfile::tempdir().unwrap();
        let path = text(&directory.path().join("file"));
        let first = string(0_u32.to_be_bytes());
        let second = string(1_u32.to_be_bytes());
        let offset = 3_u64.to_be_bytes();
        let (result, answers, reports) = answers(
            &[
                request(3, 1, &[&path, WRITE_CREATE, NO_ATTRIBUTES]),
                request(6, 2, &[&first, &[0; 8], &string(b"abcdef")]),
                request(6, 3, &[&first, &offset, &string(b"XY")]),
                request(4, 4, &[&first]),
                request(3, 5, &[&path, READ, NO_ATTRIBUTES]),
                request(5, 6, &[&second, &[0; 8], &100_u32.to_be_bytes()]),
                request(5, 7, &[&second, &6_u64.to_be_bytes(), &100_u32.to_be_bytes()]),
                request(5, 8, &[&first, &[0; 8], &100_u32.to_be_bytes()]),
            ],
            piece,
        );
        result.unwrap();
        assert_eq!(answers[0][..5], [2, 0, 0, 0, 3]);
        assert_eq!([&answers[2], &answers[3], &answers[4]].map(|answer| status(answer)), [0, 0, 0]);
        assert_eq!(answers[6], [&[103, 0, 0, 0, 6][..], &string(b"abcXYf")].concat());
        assert_eq!(status(&answers[7]), 1, "the end of the file");
        assert_eq!(status(&answers[8]), 4, "a handle that was closed");
        // The second file was left open: it is closed and told of at the end.
        let told: Vec<_> =
            reports.iter().map(|report| (report.operation.as_str(), report.read, report.written)).collect();
        assert_eq!(told, [("open", 0, 0), ("close", 0, 8), ("open", 0, 0), ("close", 6, 0)]);
    }
}

#[test]
fn a_rename_does_not_replace_and_the_extension_does() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    std::fs::write(&one, "1").unwrap();
    std::fs::write(&two, "2").unwrap();
    let (_, answers, reports) = answers(
        &[
            request(18, 1, &[&text(&one), &text(&two)]),
            request(200, 2, &[&string("posix-rename@openssh.com"), &text(&one), &text(&two)]),
            request(200, 3, &[&string("no-such@example.com")]),
            request(77, 4, &[]),
        ],
        64,
    );
    assert_eq!(status(&answers[1]), 4);
    assert_eq!(status(&answers[2]), 0);
    assert_eq!(std::fs::read_to_string(&two).unwrap(), "1");
    assert_eq!(status(&answers[3]), 8, "not served");
    assert_eq!(status(&answers[4]), 8, "not known");
    assert_eq!(reports[0].error.as_deref(), Some("File exists"));
    assert_eq!(reports[1].error, None);
}

#[test]
fn the_systems_refusals_have_the_protocols_codes() {
    let directory = tempfile::tempdir().unwrap();
    let none = text(&directory.path().join("none"));
    let (_, answers, _) = answers(
        &[
            request(17, 1, &[&none]),
            request(11, 2, &[&none]),
            request(14, 3, &[&text(directory.path()), NO_ATTRIBUTES]),
            request(16, 4, &[&none]),
            request(19, 5, &[&text(directory.path())]),
        ],
        64,
    );
    assert_eq!(status(&answers[1]), 2);
    assert_eq!(status(&answers[2]), 2);
    assert_eq!(status(&answers[3]), 4);
    assert_eq!(answers[4][0], 104, "a path whose last part is still to come");
    assert_eq!(status(&answers[5]), 4);
}

#[test]
fn handles_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let path = text(directory.path());
    let packets: Vec<_> =
        (0..=MAX_HANDLES).map(|id| request(11, u32::try_from(id).unwrap(), &[&path])).collect();
    let (_, answers, _) = answers(&packets, 1 << 20);
    assert_eq!(answers[MAX_HANDLES][0], 102);
    assert_eq!(status(&answers[MAX_HANDLES + 1]), 4);
}

#[test]
fn a_client_that_breaks_the_protocol_is_left() {
    let huge = u32::try_from(MAX_PACKET_BYTES + 1).unwrap().to_be_bytes().to_vec();
    let long_field = request(17, 1, &[&[0xff; 4], b"short"]);
    for (what, packet) in [
        ("too long", huge),
        ("empty", vec![0; 4]),
        ("no id", vec![0, 0, 0, 3, 17, 0, 0]),
        ("a field past the end", long_field),
        ("half a length", vec![0, 0]),
    ] {
        let (result, answers, _) = answers(&[packet], 1);
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidData, "{what}");
        assert_eq!(answers.len(), 1, "{what}");
    }
    // One that goes in the middle of a packet.
    let (result, _, _) = answers(&[vec![0, 0, 0, 9, 17]], 1);
    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn no_bytes_bring_the_service_down() {
    // A fixed generator: the same bytes in every run. Only requests that look; those that change are tested by name.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..3000 {
        let kinds = [4, 5, 7, 8, 12, 16, 17, 19, 200, 1, 0, 255];
        let kind = kinds[usize::try_from(random() % 12).unwrap()];
        let length = usize::try_from(random() % 40).unwrap();
        let body: Vec<u8> = (0..length)
            .map(|_| if random() % 3 == 0 { 0 } else { u8::try_from(random() & 0x3f).unwrap() })
            .collect();
        let (_, answers, reports) = answers(&[request(kind, 9, &[&body])], 5);
        assert!(answers.len() <= 2 && reports.is_empty(), "{kind} {body:?}");
    }
}
