use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::task::yield_now;

use super::*;
use crate::client::pipelined::halves::PIECES_AHEAD;
use crate::client::pipelined::{Halves, Line, host_key};
use crate::pipelined::Limits;
use crate::pipelined::tests::{Server, machine};
use crate::session::Size;

// RFC 4250 §4.1.2.
const CHANNEL_WINDOW_ADJUST: u8 = 93;
const CHANNEL_DATA: u8 = 94;
const CHANNEL_REQUEST: u8 = 98;

/// What a server does once the program is asked for.
#[derive(Clone, Copy)]
enum Then {
    GoesOn,
    /// Shows so many pieces of so many bytes, and ends the session if it is to.
    Shows(usize, usize, bool),
    ReadsNoMore,
    /// Shows so many bytes, a piece each, ends the session and hangs up.
    HangsUp(usize),
}

/// Answers until the client has gone, and shows the numbers of the messages of the session that came.
async fn serve(mut server: Server, mut stream: DuplexStream, came: watch::Sender<Vec<u8>>, then: Then) {
    let mut buffer = vec![0; 1 << 16];
    let mut asked = false;
    loop {
        if !asked && server.numbers().contains(&CHANNEL_REQUEST) {
            asked = true;
            match then {
                Then::GoesOn => {}
                Then::Shows(pieces, bytes, ends) => {
                    (0..pieces).for_each(|_| server.shows(&vec![b'x'; bytes]));
                    if ends {
                        server.ends(3);
                    }
                }
                Then::HangsUp(pieces) => {
                    (0..pieces).for_each(|_| server.shows(b"x"));
                    server.ends(3);
                    return stream.write_all_buf(&mut server.out).await.unwrap();
                }
                Then::ReadsNoMore => {
                    stream.write_all_buf(&mut server.out).await.unwrap();
                    std::future::pending::<()>().await;
                }
            }
        }
        stream.write_all_buf(&mut server.out).await.unwrap();
        let count = stream.read(&mut buffer).await.unwrap();
        if count == 0 {
            return;
        }
        server.hear(&buffer[..count]);
        let of_session =
            |number: &u8| [CHANNEL_WINDOW_ADJUST, CHANNEL_DATA, CHANNEL_REQUEST].contains(number);
        came.send_replace(server.numbers().into_iter().filter(of_session).collect());
    }
}

/// A session, and what its server hears of it.
async fn session(then: Then) -> (Halves, Line, watch::Receiver<Vec<u8>>) {
    let (mut ours, theirs) = duplex(1 << 14);
    let (coming, came) = watch::channel(Vec::new());
    tokio::spawn(serve(Server::usual(), theirs, coming, then));
    let mut machine = machine(Limits::default());
    host_key(&mut ours, &mut machine, "db-1").await.unwrap();
    machine.accept_host().unwrap();
    let proof = Proof {
        login: "root".to_owned(),
        algorithm: "ssh-ed25519-cert-v01@openssh.com".to_owned(),
        key: b"a certificate".to_vec(),
        signature: b"a signature".to_vec(),
        until: u64::MAX,
    };
    let (start, starting) = oneshot::channel();
    let (goodbyes, parting) = mpsc::channel(1);
    let line = Line { start: Mutex::new(Some(start)), goodbyes };
    let driver = Driver {
        machine,
        proof,
        host: "db-1".to_owned(),
        keepalive: None,
        said: Arc::default(),
        running: None,
        logged_in: false,
        dismissed: false,
    };
    tokio::spawn(driver.run(ours, starting, parting));
    (line.start(SessionRequest::exec("cat")).await.unwrap().unwrap(), line, came)
}

/// On one thread, whose connection finds both waiting when its turn comes.
#[tokio::test]
async fn sizes_and_signals_go_before_what_is_typed_after_them() {
    let (halves, _line, mut came) = session(Then::GoesOn).await;
    // The request for the program.
    let mut expected = vec![CHANNEL_REQUEST];
    for number in 0..200 {
        let size = Size { columns: 80, rows: 24, width: 0, height: 0 };
        let told = if number % 2 == 0 { halves.input.resize(size) } else { halves.input.signal("INT") };
        told.unwrap();
        halves.input.data(Bytes::from_static(b"typed")).await.unwrap();
        expected.extend([CHANNEL_REQUEST, CHANNEL_DATA]);
        let all = came.wait_for(|came| came.len() >= expected.len()).await.unwrap();
        assert_eq!(*all, expected);
    }
}

#[tokio::test]
async fn output_that_is_not_read_waits_at_the_server() {
    const SENT: usize = 4 * PIECES_AHEAD;
    let (mut halves, _line, _came) = session(Then::Shows(SENT, 1, true)).await;
    let filled = async {
        while halves.output.output.len() < PIECES_AHEAD {
            yield_now().await;
        }
    };
    timeout(Duration::from_secs(5), filled).await.unwrap();
    for _ in 0..1000 {
        yield_now().await;
        assert_eq!(halves.output.output.len(), PIECES_AHEAD);
    }
    let (mut bytes, mut exit) = (0, None);
    while let Some(output) = timeout(Duration::from_secs(5), halves.output.next()).await.unwrap() {
        match output {
            Output::Stdout(piece) => bytes += piece.len(),
            Output::Exit(how) => exit = Some(how),
            _ => {}
        }
    }
    assert_eq!((bytes, exit), (SENT, Some(Exit::Status(3))));
}

#[tokio::test]
async fn output_and_status_come_from_a_server_that_takes_nothing_more() {
    // More than waits for the reader, and little enough for the rest to be with the connection and in the stream.
    const SENT: usize = PIECES_AHEAD + 400;
    let (mut halves, _line, mut came) = session(Then::HangsUp(SENT)).await;
    let gone = async { while came.changed().await.is_ok() {} };
    timeout(Duration::from_secs(5), gone).await.unwrap();
    halves.input.data(Bytes::from_static(b"typed")).await.unwrap();
    for _ in 0..1000 {
        yield_now().await;
    }
    let (mut bytes, mut exit) = (0, None);
    while let Some(output) = timeout(Duration::from_secs(5), halves.output.next()).await.unwrap() {
        match output {
            Output::Stdout(piece) => bytes += piece.len(),
            Output::Exit(how) => exit = Some(how),
            _ => {}
        }
    }
    assert_eq!((bytes, exit), (SENT, Some(Exit::Status(3))));
}

#[tokio::test]
async fn output_whose_reader_goes_is_granted_anew() {
    const SENT: usize = 512;
    let (halves, _line, mut came) = session(Then::Shows(SENT, 1024, false)).await;
    let filled = async {
        while halves.output.output.len() < SENT {
            yield_now().await;
        }
    };
    timeout(Duration::from_secs(5), filled).await.unwrap();
    assert!(!came.borrow().contains(&CHANNEL_WINDOW_ADJUST));
    drop(halves.output);
    let granted = came.wait_for(|came| came.contains(&CHANNEL_WINDOW_ADJUST));
    timeout(Duration::from_secs(5), granted).await.unwrap().unwrap();
}

/// The clock goes on only when nothing else does.
#[tokio::test(start_paused = true)]
async fn sizes_and_signals_do_not_wait_for_a_server_that_reads_none() {
    let (halves, line, _came) = session(Then::ReadsNoMore).await;
    // More than the stream holds, and than waits to be written.
    while timeout(Duration::from_secs(1), halves.input.data(vec![b'x'; 1 << 16].into())).await.is_ok() {}
    for columns in 0..100 {
        halves.input.resize(Size { columns, rows: 24, width: 0, height: 0 }).unwrap();
        halves.input.signal("INT").unwrap();
        yield_now().await;
    }
    halves.input.signal("HUP").unwrap();
    halves.input.close().unwrap();
    // The farewell waits for none of them.
    line.disconnect().await;
    timeout(Duration::from_secs(5), line.goodbyes.closed()).await.unwrap();
    assert!(halves.input.close().is_err());
}
