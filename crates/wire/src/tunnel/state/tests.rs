//! The rules where bytes alone do not get.

use super::*;

#[test]
fn a_reset_of_a_finished_stream_leaves_nothing_to_send_for_ever() {
    for credit_after in [false, true] {
        let mut state = State::new(Side::Client, Config::default());
        let id = state.open(Bytes::new(), Duration::ZERO).unwrap();
        let written = state.write(id, &mut &b"data"[..], Waker::noop()).unwrap();
        assert_eq!(written, Some(4));
        state.finish(id);
        state.receive(Frame::Reset(id, "no".to_owned()), Duration::ZERO).unwrap();
        if credit_after {
            state.receive(Frame::Window(id, 1), Duration::ZERO).unwrap();
        }
        let mut out = BytesMut::new();
        assert!(state.next_batch(&mut out, 1 << 20, Waker::noop()));
        assert!(!state.next_batch(&mut out, usize::MAX, Waker::noop()), "nothing is left");
    }
}
