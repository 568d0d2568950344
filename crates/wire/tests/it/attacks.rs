//! What a hostile peer can make a tunnel hold in memory.

use std::task::Waker;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sallyport_wire::tunnel::frame::Frame;
use sallyport_wire::tunnel::state::{Read, State};
use sallyport_wire::tunnel::{Config, Memory, Side, TunnelError};

const KIB: usize = 1024;

/// A tunnel with so many streams open towards the hostile peer.
fn towards_peer(config: Config, streams: usize) -> (State, Vec<u32>) {
    let mut state = State::new(Side::Server, config);
    let ids = (0..streams).map(|_| state.open(Bytes::new(), Duration::ZERO).unwrap()).collect();
    (state, ids)
}

fn data(id: u32, bytes: usize) -> Frame {
    Frame::Data(id, Bytes::from(vec![0; bytes]))
}

/// The answers that the peer would see.
fn answers(state: &mut State) -> Vec<Frame> {
    let mut wire = BytesMut::new();
    state.next_batch(&mut wire, usize::MAX, Waker::noop());
    std::iter::from_fn(|| Frame::decode(&mut wire).unwrap()).collect()
}

#[test]
fn a_flood_of_one_byte_frames_costs_what_its_bytes_do() {
    let (mut state, ids) = towards_peer(Config::default(), 4);
    for _ in 0..64 * KIB {
        for id in &ids {
            state.receive(data(*id, 1), Duration::ZERO).unwrap();
        }
    }
    assert_eq!(state.buffered(), 4 * 64 * KIB);
    assert!(state.charged() < 4 * 90 * KIB, "{} bytes are charged", state.charged());
    // A reader gets them in few pieces, too.
    let mut reads = 0;
    while let Read::Data(_) = state.read(ids[0], usize::MAX, Waker::noop(), Duration::ZERO).unwrap() {
        reads += 1;
    }
    assert!(reads < 64, "{reads} pieces");
}

#[test]
fn what_pins_buffers_is_charged_the_buffers_until_they_are_scarce() {
    let received = Memory::new(8 << 20);
    let config = Config { received: received.clone(), ..Config::default() };
    let (mut state, ids) = towards_peer(config, 64);
    // Each payload is a small part of the buffer that it came in.
    for _ in 0..16 {
        for id in &ids {
            state.receive(data(*id, 8 * KIB), Duration::ZERO).unwrap();
        }
    }
    // Half of the memory at what the buffers cost, the rest at what copies do.
    assert!(received.held() <= 8 << 20);
    assert!(state.buffered() > 4 << 20, "{} bytes wait", state.buffered());
    assert!(state.charged() >= state.buffered() + (2 << 20), "{}", state.charged());
}

#[test]
fn past_the_bound_of_a_host_its_greediest_stream_is_ended_and_others_go_on() {
    let whole = Memory::new(4 << 20);
    let hostile = Config { received: whole.part(2 << 20), ..Config::default() };
    let honest = Config { received: whole.part(2 << 20), ..Config::default() };
    let (mut state, ids) = towards_peer(hostile.clone(), 200);
    let (mut other, others) = towards_peer(honest, 1);
    let mut ended = Vec::new();
    for id in &ids {
        for _ in 0..8 {
            state.receive(data(*id, 32 * KIB), Duration::ZERO).unwrap();
            assert!(hostile.received.held() <= 2 << 20, "{}", hostile.received.held());
        }
        other.receive(data(others[0], 100), Duration::ZERO).unwrap();
        let read = other.read(others[0], usize::MAX, Waker::noop(), Duration::ZERO).unwrap();
        assert!(matches!(read, Read::Data(bytes) if bytes.len() == 100));
        ended.extend(answers(&mut state).into_iter().filter_map(|frame| match frame {
            Frame::Reset(id, reason) => Some((id, reason)),
            _ => None,
        }));
    }
    assert!(ended.len() > 150 && ended.len() < 200, "{} streams were ended", ended.len());
    // Whose stream it was learns why, however the peer ends it.
    let (first, reason) = &ended[0];
    assert!(reason.contains("memory"), "{reason}");
    state.receive(Frame::Fin(*first), Duration::ZERO).unwrap();
    let read = state.read(*first, usize::MAX, Waker::noop(), Duration::ZERO);
    assert_eq!(read, Err(TunnelError::Reset(reason.clone())));
    // And all is given back.
    drop((state, other));
    assert_eq!(whole.held(), 0);
}

/// The credit that a peer has got who answers the first question after so long, and whose bytes are read at once, half of the
/// credit each so often.
fn credit_of(answers_after: Duration, half_each: Duration) -> usize {
    let (mut state, ids) = towards_peer(Config::default(), 1);
    answers(&mut state);
    let mut now = answers_after;
    state.receive(Frame::Pong(0), now).unwrap();
    let mut credit = 256 * KIB;
    for _ in 0..10 {
        now += half_each;
        let mut left = credit / 2;
        credit -= left;
        while left > 0 {
            let part = left.min(32 * KIB);
            state.receive(data(ids[0], part), now).unwrap();
            left -= part;
            while let Read::Data(_) = state.read(ids[0], usize::MAX, Waker::noop(), now).unwrap() {}
        }
        let got = answers(&mut state).into_iter().filter_map(|frame| match frame {
            Frame::Window(_, more) => Some(more as usize),
            _ => None,
        });
        credit += got.sum::<usize>();
    }
    credit
}

#[test]
fn credit_does_not_grow_with_an_answer_that_comes_late() {
    let pretended = credit_of(Duration::from_secs(40), Duration::from_secs(10));
    assert!(pretended <= 256 * KIB, "{pretended} bytes of credit for a slow stream");
    // One that is fast on a long line gets what it needs.
    let fast = credit_of(Duration::from_millis(500), Duration::from_millis(500));
    assert!(fast > 2 << 20, "{fast}");
}

#[test]
fn credit_that_is_not_used_is_taken_back() {
    let (mut state, ids) = towards_peer(Config::default(), 1);
    answers(&mut state);
    state.receive(Frame::Pong(0), Duration::from_millis(500)).unwrap();
    let (mut now, mut credit, mut most) = (Duration::from_millis(500), 256 * KIB, 0);
    for round in 0..2_000 {
        now += Duration::from_millis(if round < 200 { 10 } else { 30_000 });
        let part = credit.min(128 * KIB);
        state.receive(data(ids[0], part), now).unwrap();
        credit -= part;
        while let Read::Data(_) = state.read(ids[0], usize::MAX, Waker::noop(), now).unwrap() {}
        for frame in answers(&mut state) {
            if let Frame::Window(_, more) = frame {
                credit += more as usize;
            }
        }
        most = most.max(credit);
    }
    assert!(most > 2 << 20, "{most}");
    assert!(credit <= 256 * KIB, "{credit} bytes of credit for a stream that has become slow");
}

#[test]
fn writers_wait_sooner_while_a_host_takes_nothing() {
    let sent = Memory::new(4 << 20);
    let (mut state, ids) = towards_peer(Config { sent: sent.clone(), ..Config::default() }, 1_000);
    let block = vec![0; 256 * KIB];
    for id in &ids {
        while state.write(*id, &mut &block[..], Waker::noop()).unwrap().is_some() {}
    }
    assert!(sent.held() < 10 << 20, "{}", sent.held());
    // Each has something on its way, and goes on as it is taken.
    answers(&mut state);
    assert!(ids.iter().all(|id| matches!(state.write(*id, &mut &b"more"[..], Waker::noop()), Ok(Some(4)))));
    // Writers of single bytes cost no more than others.
    let (mut state, ids) = towards_peer(Config::default(), 1);
    for _ in 0..100 * KIB {
        state.write(ids[0], &mut &b"x"[..], Waker::noop()).unwrap();
    }
    assert!(state.charged() < 250 * KIB, "{}", state.charged());
}

#[test]
fn answers_that_the_peer_does_not_read_are_bounded() {
    let (mut state, _) = towards_peer(Config::default(), 0);
    let flood = (0..100_000).map(|number| state.receive(Frame::Ping(number), Duration::ZERO));
    assert!(flood.into_iter().any(|outcome| matches!(outcome, Err(TunnelError::Protocol(_)))));
}
