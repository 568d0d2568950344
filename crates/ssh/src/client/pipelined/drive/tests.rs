use std::sync::Mutex;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;

use super::*;
use crate::client::WindowSize;
use crate::client::pipelined::{Halves, Line, host_key};
use crate::pipelined::Limits;
use crate::pipelined::tests::{Server, machine};

// RFC 4250 §4.1.2.
const CHANNEL_DATA: u8 = 94;
const CHANNEL_REQUEST: u8 = 98;

/// Answers until the client has gone, and shows the numbers of the messages of the session that came.
async fn serve(mut server: Server, mut stream: DuplexStream, came: watch::Sender<Vec<u8>>) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        stream.write_all_buf(&mut server.out).await.unwrap();
        let count = stream.read(&mut buffer).await.unwrap();
        if count == 0 {
            return;
        }
        server.hear(&buffer[..count]);
        let of_session = |number: &u8| [CHANNEL_DATA, CHANNEL_REQUEST].contains(number);
        came.send_replace(server.numbers().into_iter().filter(of_session).collect());
    }
}

/// A session, and what its server hears of it.
async fn session() -> (Halves, watch::Receiver<Vec<u8>>) {
    let (mut ours, theirs) = duplex(1 << 20);
    let (coming, came) = watch::channel(Vec::new());
    tokio::spawn(serve(Server::usual(), theirs, coming));
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
    let (told, hears) = mpsc::unbounded_channel();
    let line = Line { start: Mutex::new(Some(start)), told };
    let driver = Driver {
        machine,
        proof,
        host: "db-1".to_owned(),
        keepalive: None,
        said: Arc::default(),
        running: None,
        logged_in: false,
        dismissed: false,
        pieces: 0,
        requests: 0,
    };
    tokio::spawn(driver.run(ours, starting, hears));
    (line.start(SessionRequest::exec("cat")).await.unwrap().unwrap(), came)
}

/// On one thread, whose connection finds both waiting when its turn comes.
#[tokio::test]
async fn sizes_and_signals_go_before_what_is_typed_after_them() {
    let (halves, mut came) = session().await;
    // The request for the program.
    let mut expected = vec![CHANNEL_REQUEST];
    for number in 0..200 {
        let size = WindowSize { columns: 80, rows: 24, width: 0, height: 0 };
        let told = if number % 2 == 0 { Told::Resize(size) } else { Told::Signal("INT".to_owned()) };
        halves.input.tell(told).unwrap();
        halves.input.data(Bytes::from_static(b"typed")).await.unwrap();
        expected.extend([CHANNEL_REQUEST, CHANNEL_DATA]);
        let all = came.wait_for(|came| came.len() >= expected.len()).await.unwrap();
        assert_eq!(*all, expected);
    }
}
