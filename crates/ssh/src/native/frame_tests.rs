use proptest::prelude::*;

use super::*;
use crate::request::{DisplayOffer, Program, SessionRequest};
use crate::session::Terminal;

fn endpoints() -> impl Strategy<Value = Endpoint> {
    prop_oneof![
        ("\\PC{0,40}", any::<u16>()).prop_map(|(host, port)| Endpoint::Port { host, port }),
        "\\PC{0,40}".prop_map(|path| Endpoint::Socket { path }),
    ]
}

fn origins() -> impl Strategy<Value = (String, u16)> {
    ("\\PC{0,40}", any::<u16>())
}

fn sizes() -> impl Strategy<Value = Size> {
    any::<[u32; 4]>().prop_map(|[columns, rows, width, height]| Size { columns, rows, width, height })
}

fn sessions() -> impl Strategy<Value = SessionRequest> {
    let program = prop_oneof![
        Just(Program::Shell),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(Program::Exec),
        "[a-z]{0,10}".prop_map(Program::Subsystem),
    ];
    let modes = prop::collection::vec(any::<(u8, u32)>(), 0..8);
    let terminal =
        ("\\PC{0,20}", sizes(), modes).prop_map(|(term, size, modes)| Terminal { term, size, modes });
    let display = (any::<bool>(), "\\PC{0,20}", "[0-9a-f]{0,32}", any::<u32>())
        .prop_map(|(single, protocol, cookie, screen)| DisplayOffer { single, protocol, cookie, screen });
    let variables = prop::collection::vec(("[A-Z]{1,8}", "\\PC{0,40}"), 0..8);
    let both = (prop::option::of(terminal), prop::option::of(display));
    (program, both, variables, any::<bool>()).prop_map(
        |(program, (terminal, display), environment, agent)| SessionRequest {
            program,
            terminal,
            environment,
            forward_agent: agent,
            display,
        },
    )
}

fn frames() -> impl Strategy<Value = Frame> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..6000).prop_map(Bytes::from);
    let channel = || 1..=u32::MAX;
    let of_connection = prop_oneof![
        (any::<[u16; 2]>(), any::<u32>(), "\\PC{0,40}").prop_map(|([version, least], window, login)| {
            Frame::Hello(Hello { version, least, window, login })
        }),
        any::<u16>().prop_map(|version| Frame::Welcome { version }),
        (any::<u8>(), "\\PC{0,100}")
            .prop_map(|(why, reason)| Frame::Goodbye { why: Farewell::of(why), reason }),
        any::<u64>().prop_map(Frame::Ping),
        any::<u64>().prop_map(Frame::Pong),
        (any::<u32>(), endpoints()).prop_map(|(request, at)| Frame::Listen { request, at }),
        (any::<u32>(), any::<u16>()).prop_map(|(request, port)| Frame::Listening { request, port }),
        (any::<u32>(), "\\PC{0,100}").prop_map(|(request, reason)| Frame::NotListening { request, reason }),
        endpoints().prop_map(Frame::Unlisten),
    ];
    let opening = prop_oneof![
        sessions().prop_map(|session| Open::Session(Box::new(session))),
        (endpoints(), origins()).prop_map(|(to, from)| Open::Direct { to, from }),
        (endpoints(), origins()).prop_map(|(at, from)| Open::Forwarded { at, from }),
        Just(Open::Agent),
        origins().prop_map(|from| Open::X11 { from }),
    ];
    let of_channels = prop_oneof![
        (channel(), opening).prop_map(|(channel, open)| Frame::Open(channel, open)),
        channel().prop_map(Frame::Opened),
        (channel(), "\\PC{0,100}").prop_map(|(channel, reason)| Frame::Refused(channel, reason)),
        (channel(), bytes()).prop_map(|(channel, bytes)| Frame::Data(channel, bytes)),
        (channel(), bytes()).prop_map(|(channel, bytes)| Frame::Errors(channel, bytes)),
        channel().prop_map(Frame::Eof),
        channel().prop_map(Frame::Close),
        (channel(), any::<u32>()).prop_map(|(channel, more)| Frame::Window(channel, more)),
        (channel(), any::<[bool; 3]>()).prop_map(|(channel, [terminal, agent, display])| {
            Frame::Started(channel, Lacks { terminal, agent, display })
        }),
        (channel(), any::<u32>()).prop_map(|(channel, status)| Frame::ExitStatus(channel, status)),
        (channel(), "[A-Z0-9]{0,8}", any::<bool>()).prop_map(|(channel, name, core)| Frame::ExitSignal {
            channel,
            name,
            core
        }),
        (channel(), sizes()).prop_map(|(channel, size)| Frame::Resize(channel, size)),
        (channel(), "[A-Z0-9]{0,8}").prop_map(|(channel, name)| Frame::Signal(channel, name)),
    ];
    prop_oneof![of_connection, of_channels]
}

proptest! {
    #[test]
    fn frames_survive_any_splitting(frames in prop::collection::vec(frames(), 1..8), step in 1_usize..5000) {
        let mut wire = BytesMut::new();
        for frame in &frames {
            frame.encode(&mut wire).unwrap();
            // What is not known and may be passed over changes nothing.
            wire.extend_from_slice(&[SKIPPED_FROM + 3, 0, 0, 2, 0, 0, 0, 9, 1, 2]);
        }
        let mut buffer = BytesMut::new();
        let mut seen = Vec::new();
        for piece in wire.chunks(step) {
            buffer.extend_from_slice(piece);
            while let Some(frame) = Frame::decode(&mut buffer).unwrap() {
                seen.push(frame);
            }
        }
        prop_assert_eq!(seen, frames);
        prop_assert!(buffer.is_empty());
    }

    #[test]
    fn arbitrary_bytes_end_in_an_error_or_in_waiting(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut buffer = BytesMut::from(bytes.as_slice());
        while let Ok(Some(_)) = Frame::decode(&mut buffer) {}
    }

    #[test]
    fn later_fields_are_passed_over(frame in frames(), more in prop::collection::vec(any::<u8>(), 1..20)) {
        prop_assume!(!matches!(frame, Frame::Data(..) | Frame::Errors(..)));
        let mut wire = BytesMut::new();
        frame.encode(&mut wire).unwrap();
        let length = wire.len() - HEAD + more.len();
        wire[2..4].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        wire.extend_from_slice(&more);
        prop_assert_eq!(Frame::decode(&mut wire), Ok(Some(frame)));
    }
}

#[test]
fn what_cannot_be_is_refused_by_its_head() {
    let decode = |bytes: &[u8]| Frame::decode(&mut BytesMut::from(bytes));
    assert_eq!(decode(&[77, 0, 0, 0, 0, 0, 0, 1]), Err(FrameError::Unknown(77)));
    assert_eq!(decode(&[0, 0, 0, 0, 0, 0, 0, 0]), Err(FrameError::Unknown(0)));
    for kind in [DATA, OPEN, PING, 0xff] {
        let refused = decode(&[kind, 0xff, 0xff, 0xff, 0, 0, 0, 1]);
        assert!(matches!(refused, Err(FrameError::TooLong { .. })), "{refused:?}");
    }
    // A frame of the connection on a channel, and one of a channel on none.
    assert_eq!(
        decode(&[PING, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
        Err(FrameError::Malformed(PING))
    );
    assert_eq!(decode(&[EOF, 0, 0, 0, 0, 0, 0, 0]), Err(FrameError::Malformed(EOF)));
    assert_eq!(decode(&[EOF, 0, 0, 0, 0, 0, 0, 1]), Ok(Some(Frame::Eof(1))));
}

#[test]
fn what_does_not_fit_is_not_written() {
    let mut out = BytesMut::from("before");
    let long = SessionRequest::exec(vec![b'x'; MAX_OPEN]);
    assert!(Frame::Open(1, Open::Session(Box::new(long))).encode(&mut out).is_err());
    assert_eq!(&out[..], b"before");
    let reason = "é".repeat(MAX_REASON);
    Frame::Refused(3, reason).encode(&mut out).unwrap();
    let mut wire = out.split_off(6);
    assert!(
        matches!(Frame::decode(&mut wire), Ok(Some(Frame::Refused(3, text))) if text.len() == MAX_REASON)
    );
}

#[test]
fn the_head_of_data_is_that_of_the_frame() {
    let bytes = Bytes::from(vec![7; 300]);
    for (errors, frame) in [(false, Frame::Data(5, bytes.clone())), (true, Frame::Errors(5, bytes.clone()))] {
        let mut wire = BytesMut::new();
        frame.encode(&mut wire).unwrap();
        assert_eq!(&wire[..HEAD], &data_head(5, errors, 300));
    }
}
