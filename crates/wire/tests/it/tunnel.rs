//! Tunnels over real sockets and over pipes.

use std::time::Duration;

use bytes::Bytes;
use sallyport_wire::tunnel::{Config, Handle, Incoming, Stream, Tunnel, TunnelError};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

fn pair(config: &Config) -> ((Handle, Incoming), (Handle, Incoming)) {
    let (left, right) = tokio::io::duplex(64 * 1024);
    (Tunnel::client(left, config.clone()), Tunnel::server(right, config.clone()))
}

/// Opens a stream and takes it on the other side.
async fn connected(opener: &Handle, taker: &mut Incoming, header: &'static [u8]) -> (Stream, Stream) {
    let near = opener.open(Bytes::from_static(header)).unwrap();
    let (seen, far) = taker.next().await.unwrap();
    assert_eq!(seen, header);
    (near, far)
}

#[tokio::test]
async fn bytes_go_both_ways_and_each_side_ends_by_itself() {
    let ((client, _keep), (_server, mut incoming)) = pair(&Config::default());
    let (mut near, mut far) = connected(&client, &mut incoming, b"web-1").await;
    near.write_all(b"question").await.unwrap();
    near.shutdown().await.unwrap();
    let mut text = String::new();
    far.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "question");
    far.write_all(b"answer").await.unwrap();
    far.shutdown().await.unwrap();
    text.clear();
    near.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "answer");
    drop((near, far));
    assert_eq!(client.streams(), 0);
}

#[tokio::test]
async fn both_sides_open_streams() {
    let ((client, mut to_client), (server, mut to_server)) = pair(&Config::default());
    let (mut a, mut b) = connected(&client, &mut to_server, b"from the client").await;
    let (mut c, mut d) = connected(&server, &mut to_client, b"from the server").await;
    for (writer, reader) in [(&mut a, &mut b), (&mut c, &mut d)] {
        writer.write_all(b"x").await.unwrap();
        assert_eq!(reader.read_u8().await.unwrap(), b'x');
    }
}

#[tokio::test]
async fn data_written_before_the_far_side_takes_the_stream_arrives() {
    let ((client, _keep), (_server, mut incoming)) = pair(&Config::default());
    let mut near = client.open(Bytes::new()).unwrap();
    near.write_all(&vec![7; 200_000]).await.unwrap();
    near.shutdown().await.unwrap();
    drop(near);
    let (_, mut far) = incoming.next().await.unwrap();
    let mut all = Vec::new();
    far.read_to_end(&mut all).await.unwrap();
    assert_eq!(all.len(), 200_000);
}

#[tokio::test]
async fn a_reset_says_why() {
    let ((client, _keep), (_server, mut incoming)) = pair(&Config::default());
    let (mut near, far) = connected(&client, &mut incoming, b"").await;
    far.reset("the node refuses");
    let error = near.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(error.to_string(), "the node refuses");
    assert!(near.write_all(b"x").await.is_err());

    let (near, mut far) = connected(&client, &mut incoming, b"").await;
    drop(near);
    assert_eq!(far.read_u8().await.unwrap_err().to_string(), "the other end went away");
}

#[tokio::test]
async fn a_side_that_leaves_after_the_far_one_has_ended_ends_properly() {
    let ((client, _keep), (_server, mut incoming)) = pair(&Config::default());
    let (mut near, mut far) = connected(&client, &mut incoming, b"").await;
    near.shutdown().await.unwrap();
    far.write_all(b"goodbye").await.unwrap();
    assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0);
    drop(far);
    let mut said = String::new();
    near.read_to_string(&mut said).await.unwrap();
    assert_eq!(said, "goodbye");
    // What was not read is lost, and that is said.
    let (mut near, far) = connected(&client, &mut incoming, b"").await;
    near.write_all(b"unread").await.unwrap();
    near.shutdown().await.unwrap();
    // Frames arrive in order: once this stream is there, so is what was written before it.
    let _later = connected(&client, &mut incoming, b"later").await;
    drop(far);
    assert_eq!(near.read_u8().await.unwrap_err().to_string(), "the other end went away");
}

#[tokio::test]
async fn a_reader_that_stops_stops_its_writer_and_no_other() {
    let config = Config::default();
    let ((client, _keep), (_server, mut incoming)) = pair(&config);
    let (mut stuck, _unread) = connected(&client, &mut incoming, b"stuck").await;
    let (mut other, mut other_far) = connected(&client, &mut incoming, b"other").await;
    let writer = tokio::spawn(async move {
        let mut written = 0_usize;
        while tokio::time::timeout(Duration::from_millis(200), stuck.write_all(&[0; 16 * 1024])).await.is_ok()
        {
            written += 16 * 1024;
        }
        (written, stuck)
    });
    let echo = tokio::spawn(async move {
        let mut byte = [0; 1];
        while other_far.read_exact(&mut byte).await.is_ok() {
            other_far.write_all(&byte).await.unwrap();
        }
    });
    for number in 0..200_u8 {
        other.write_all(&[number]).await.unwrap();
        assert_eq!(
            tokio::time::timeout(Duration::from_secs(60), other.read_u8()).await.unwrap().unwrap(),
            number
        );
    }
    let (written, _stuck) = writer.await.unwrap();
    let bound = config.initial_window as usize + config.send_buffer + 64 * 1024;
    assert!(written <= bound, "{written} bytes were taken for a reader that reads nothing");
    assert!(client.buffered() <= config.send_buffer + 64 * 1024);
    drop(other);
    let _ = echo.await;
}

#[tokio::test]
async fn a_thousand_streams_carry_their_own_bytes() {
    let ((client, _keep), (_server, mut incoming)) = pair(&Config::default());
    let server = tokio::spawn(async move {
        let mut tasks = Vec::new();
        for _ in 0..1000 {
            let (header, mut stream) = incoming.next().await.unwrap();
            tasks.push(tokio::spawn(async move {
                let mut all = Vec::new();
                stream.read_to_end(&mut all).await.unwrap();
                assert_eq!(all, header.repeat(2000));
                stream.write_all(&header).await.unwrap();
                stream.shutdown().await.unwrap();
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        incoming
    });
    let mut tasks = Vec::new();
    for number in 0..1000_u32 {
        let header = Bytes::from(number.to_string());
        let mut stream = client.open(header.clone()).unwrap();
        tasks.push(tokio::spawn(async move {
            stream.write_all(&header.repeat(2000)).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer, header);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    server.await.unwrap();
    assert_eq!(client.streams(), 0);
}

#[tokio::test]
async fn megabytes_arrive_whole_over_tcp() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let dialled = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let (client, _keep) = Tunnel::client(dialled, Config::default());
    let (_server, mut incoming) = Tunnel::server(accepted, Config::default());
    let mut near = client.open(Bytes::new()).unwrap();
    let (_, mut far) = incoming.next().await.unwrap();
    let pattern: Vec<u8> = (0..=250).cycle().take(8 * 1024 * 1024 + 3).collect();
    let sent = pattern.clone();
    let writer = tokio::spawn(async move {
        near.write_all(&sent).await.unwrap();
        near.shutdown().await.unwrap();
    });
    let mut all = Vec::new();
    far.read_to_end(&mut all).await.unwrap();
    writer.await.unwrap();
    assert!(all == pattern);
}

#[tokio::test]
async fn draining_refuses_new_streams_and_keeps_old_ones() {
    let ((client, _keep), (server, mut incoming)) = pair(&Config::default());
    let (mut near, mut far) = connected(&client, &mut incoming, b"old").await;
    server.drain("going home");
    // The word arrives in order: once this byte is here, so is it.
    far.write_all(b"x").await.unwrap();
    near.read_u8().await.unwrap();
    assert!(matches!(client.open(Bytes::new()), Err(TunnelError::Draining)));
    assert!(!client.is_open());
    near.write_all(b"y").await.unwrap();
    assert_eq!(far.read_u8().await.unwrap(), b'y');
}

#[tokio::test]
async fn limits_hold() {
    let config = Config { max_streams: 4, max_pending: 2, ..Config::default() };
    let ((client, _keep), (_server, _untaken)) = pair(&config);
    let mut streams: Vec<Stream> = (0..4).map(|_| client.open(Bytes::new()).unwrap()).collect();
    assert!(matches!(client.open(Bytes::new()), Err(TunnelError::TooManyStreams(4))));
    let error = streams[3].read_u8().await.unwrap_err();
    assert_eq!(error.to_string(), "too many streams");
    assert!(matches!(
        Handle::open(&client, Bytes::from(vec![0; 5000])),
        Err(TunnelError::HeaderTooLarge { got: 5000, .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_given_up() {
    let (left, _right): (DuplexStream, DuplexStream) = tokio::io::duplex(64);
    let config = Config {
        ping_after: Duration::from_millis(10),
        dead_after: Duration::from_millis(40),
        ..Config::default()
    };
    let (client, mut incoming) = Tunnel::client(left, config);
    let mut stream = client.open(Bytes::new()).unwrap();
    // The tunnel reads the real clock, the paused one only makes the waiting short.
    std::thread::sleep(Duration::from_millis(50));
    assert!(matches!(client.closed().await, TunnelError::DeadPeer(_)));
    assert_eq!(stream.read_u8().await.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    assert!(incoming.next().await.is_none());
    assert!(matches!(client.open(Bytes::new()), Err(TunnelError::DeadPeer(_))));
}

#[tokio::test]
async fn a_lost_connection_ends_every_stream() {
    let ((client, _keep), (server, mut incoming)) = pair(&Config::default());
    let (mut near, mut far) = connected(&client, &mut incoming, b"").await;
    server.close();
    assert!(near.read_u8().await.is_err());
    assert!(far.read_u8().await.is_err());
    assert!(incoming.next().await.is_none());
}

#[tokio::test]
async fn a_peer_that_breaks_the_rules_is_cut_off() {
    let attacks: [&[u8]; 6] = [
        b"\x09\0\0\0\x01\0\0\0\0",                                             // unknown type
        b"\x00\0\0\0\x01\0\0\0\x01x", // data for a stream that was never opened
        b"\x01\0\0\0\x02\0\0\0\0",    // a client may not open even streams
        b"\x01\0\0\0\x01\0\0\0\0\x01\0\0\0\x01\0\0\0\0", // the same stream twice
        b"\x00\0\0\0\x01\0\xff\xff\xff", // oversize
        b"\x01\0\0\0\x01\0\0\0\0\x03\0\0\0\x01\0\0\0\0\x03\0\0\0\x01\0\0\0\0", // ends twice
    ];
    for attack in attacks {
        let (mut hostile, right) = tokio::io::duplex(1024);
        let (server, _incoming) = Tunnel::server(right, Config::default());
        hostile.write_all(attack).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(60), server.closed()).await.unwrap();
        assert!(matches!(ended, TunnelError::Protocol(_)), "{attack:?}: {ended:?}");
    }
}

#[tokio::test]
async fn more_than_the_credit_is_a_breach() {
    let (mut hostile, right) = tokio::io::duplex(1024 * 1024);
    let config = Config { initial_window: 1000, ..Config::default() };
    let (server, _incoming) = Tunnel::server(right, config);
    hostile.write_all(b"\x01\0\0\0\x01\0\0\0\0").await.unwrap();
    let mut data = b"\x00\0\0\0\x01\0\0\x03\xe9".to_vec();
    data.extend(vec![0; 1001]);
    hostile.write_all(&data).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), server.closed()).await.unwrap();
    assert!(matches!(ended, TunnelError::Protocol(text) if text.contains("credit")));
}
