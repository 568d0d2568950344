//! A hostile peer's frames end in an error, never in more memory than the credit allows.

use std::task::Waker;
use std::time::Duration;

use bytes::BytesMut;
use sallyport_wire::tunnel::frame::Frame;
use sallyport_wire::tunnel::state::State;
use sallyport_wire::tunnel::{Config, Side};

fuzz_target!(|data: &[u8]| {
    let config = Config { max_streams: 8, initial_window: 4096, ..Config::default() };
    let mut state = State::new(Side::Server, config);
    let mut buffer = BytesMut::from(data);
    let mut out = BytesMut::new();
    while let Ok(Some(frame)) = Frame::decode(&mut buffer) {
        if state.receive(frame, Duration::ZERO).is_err() {
            return;
        }
        assert!(state.streams() <= 8 && state.buffered() <= 8 * 4096);
        state.next_batch(&mut out, 1024, Waker::noop());
        out.clear();
    }
});
