use proptest::prelude::*;

use super::*;

fn string(bytes: &[u8]) -> Vec<u8> {
    let mut out = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    out.extend_from_slice(bytes);
    out
}

fn packet(kind: u8, id: u32, fields: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![kind];
    body.extend(id.to_be_bytes());
    body.extend(fields.concat());
    string(&body)
}

fn number(value: u32) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

/// A session, as turns: who speaks, and what.
fn session() -> Vec<(bool, Vec<u8>)> {
    let content = vec![7u8; 100_000];
    vec![
        (true, string(&[1, 0, 0, 0, 3])),
        (false, string(&[2, 0, 0, 0, 3])),
        (true, packet(OPEN, 1, &[string(b"/etc/motd"), number(0x1a), number(0)])),
        (false, packet(HANDLE, 1, &[string(b"h1")])),
        (true, packet(WRITE, 2, &[string(b"h1"), vec![0; 8], string(&content)])),
        (true, packet(WRITE, 3, &[string(b"h1"), vec![0; 8], string(b"more")])),
        (false, packet(STATUS, 2, &[number(0), string(b""), string(b"")])),
        (false, packet(STATUS, 3, &[number(4), string(b"disk full"), string(b"")])),
        (true, packet(OPEN, 4, &[string(b"/etc/shadow"), number(1), number(0)])),
        (false, packet(STATUS, 4, &[number(3), string(b"Permission denied"), string(b"")])),
        (true, packet(EXTENDED, 5, &[string(b"posix-rename@openssh.com"), string(b"a"), string(b"b")])),
        (false, packet(STATUS, 5, &[number(0), string(b""), string(b"")])),
        (true, packet(CLOSE, 6, &[string(b"h1")])),
        (false, packet(STATUS, 6, &[number(0), string(b""), string(b"")])),
        (true, packet(OPEN, 7, &[string(b"left"), number(1), number(0)])),
        (false, packet(HANDLE, 7, &[string(b"h2")])),
        (true, packet(READ, 8, &[string(b"h2"), vec![0; 8], number(500)])),
        (false, packet(DATA, 8, &[string(&content)])),
    ]
}

fn observed(turns: &[(bool, Vec<u8>)], cut: usize) -> Vec<String> {
    hashed(Observer::default(), turns, cut)
}

fn hashed(mut observer: Observer, turns: &[(bool, Vec<u8>)], cut: usize) -> Vec<String> {
    let mut operations = Vec::new();
    for (client, bytes) in turns {
        for part in bytes.chunks(cut) {
            if *client {
                observer.client(part).unwrap();
            } else {
                operations.extend(observer.server(part).unwrap());
            }
        }
    }
    operations.extend(observer.finish());
    let shown = |Seen { operation: one, content }: &Seen| {
        let target = one.target.as_deref().unwrap_or("-");
        let error = one.error.as_deref().unwrap_or("-");
        let content = match content {
            Some(Passed::Whole { sha256, size }) => format!(" whole {size} {}", &sha256[..8]),
            Some(Passed::Look { beginning, .. }) => {
                format!(" look {}", beginning.as_ref().map_or(0, |(_, length)| *length))
            }
            None => String::new(),
        };
        format!("{} {} {target} {}/{} {error}{content}", one.operation, one.path, one.read, one.written)
    };
    operations.iter().map(shown).collect()
}

#[test]
fn what_happens_to_files_is_seen() {
    let expected = [
        "open /etc/motd write 0/0 -",
        "open /etc/shadow read 0/0 Permission denied",
        "rename a b 0/0 -",
        "close /etc/motd - 0/100000 -",
        "open left read 0/0 -",
        "close left - 100000/0 -",
    ];
    assert_eq!(observed(&session(), usize::MAX), expected);
}

#[test]
fn contents_are_known_when_all_of_them_pass() {
    let write = |id, offset: u64, content: &[u8]| {
        (true, packet(WRITE, id, &[string(b"h"), offset.to_be_bytes().to_vec(), string(content)]))
    };
    let status = |id, code| (false, packet(STATUS, id, &[number(code), string(b""), string(b"")]));
    let opened = |flags| {
        vec![
            (true, packet(OPEN, 1, &[string(b"f"), number(flags), number(0)])),
            (false, packet(HANDLE, 1, &[string(b"h")])),
        ]
    };
    let close = || vec![(true, packet(CLOSE, 9, &[string(b"h")])), status(9, 0)];
    let run = |flags, middle: Vec<(bool, Vec<u8>)>, cut| {
        let turns = [opened(flags), middle, close()].concat();
        hashed(Observer::new(true), &turns, cut).pop().unwrap()
    };
    let read = |id, offset: u64| {
        (true, packet(READ, id, &[string(b"h"), offset.to_be_bytes().to_vec(), number(100)]))
    };
    for cut in [1, 7, usize::MAX] {
        // SHA-256 of "abcd".
        let written = || vec![write(2, 0, b"ab"), write(3, 2, b"cd"), status(2, 0), status(3, 0)];
        assert_eq!(run(0x1a, written(), cut), "close f - 0/4 - whole 4 88d4266f");
        assert_eq!(run(0x2a, written(), cut), "close f - 0/4 - whole 4 88d4266f");
        assert_eq!(run(0x0a, written(), cut), "close f - 0/4 - look 4", "something may stand behind it");
        assert_eq!(run(0x1e, written(), cut), "close f - 0/4 - look 4", "appended");
        let failed = vec![write(2, 0, b"ab"), write(3, 2, b"cd"), status(2, 0), status(3, 4)];
        assert_eq!(run(0x1a, failed, cut), "close f - 0/2 - look 0");
        let odd = vec![write(2, 2, b"cd"), write(3, 0, b"ab"), status(2, 0), status(3, 0)];
        assert_eq!(run(0x1a, odd, cut), "close f - 0/4 - look 0");
        let twice = vec![write(2, 0, b"ab"), write(2, 2, b"cd"), status(2, 0)];
        assert_eq!(run(0x1a, twice, cut), "close f - 0/2 - look 0");
        let shortened = (true, packet(FSETSTAT, 4, &[string(b"h"), number(1), vec![0; 8]]));
        let shortened = [written(), vec![shortened, status(4, 0)]].concat();
        assert_eq!(run(0x1a, shortened, cut), "close f - 0/4 - look 0");
        let data = |id, content: &[u8]| (false, packet(DATA, id, &[string(content)]));
        let all = vec![read(2, 0), read(3, 4), data(2, b"abcd"), status(3, END_OF_FILE)];
        assert_eq!(run(1, all, cut), "close f - 4/0 - whole 4 88d4266f");
        let part = vec![read(2, 0), data(2, b"abcd")];
        assert_eq!(run(1, part, cut), "close f - 4/0 - look 4");
        let past = vec![read(2, 0), read(3, 100), data(2, b"abcd"), status(3, END_OF_FILE)];
        assert_eq!(run(1, past, cut), "close f - 4/0 - look 4");
    }
    assert!(observed(&session(), 100).iter().all(|line| !line.contains("look")), "only where it is wanted");
}

#[test]
fn giants_and_floods_are_refused() {
    let mut observer = Observer::default();
    assert!(observer.client(&u32::MAX.to_be_bytes()).is_ok());
    assert!(observer.client(&[OPEN]).unwrap_err().to_string().contains("packet of"));
    let mut observer = Observer::default();
    let flood = (0..10_000).map(|id| observer.client(&packet(REMOVE, id, &[string(b"x")])));
    assert!(flood.filter_map(Result::err).next().unwrap().to_string().contains("without an answer"));
}

proptest! {
    #[test]
    fn how_bytes_arrive_makes_no_difference(cut in 1usize..5000) {
        prop_assert_eq!(observed(&session(), cut), observed(&session(), usize::MAX));
    }

    #[test]
    fn nothing_breaks_it(parts in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..64)), 0..32)) {
        let mut observer = Observer::default();
        for (client, bytes) in parts {
            let ended = if client { observer.client(&bytes).is_err() } else { observer.server(&bytes).is_err() };
            if ended {
                break;
            }
        }
    }
}
