use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::chan::*;
use super::ports::*;
use super::table::*;
use super::*;
use crate::native::frame::*;

/// Keeps what comes, and reads it when told.
#[derive(Default)]
struct Kept {
    bytes: Mutex<Vec<u8>>,
    ended: Mutex<Vec<&'static str>>,
    came: Notify,
}

impl Taker for Kept {
    fn data(&self, _: bool, bytes: Bytes) {
        self.bytes.lock().extend_from_slice(&bytes);
        self.came.notify_one();
    }
    fn eof(&self) {
        self.ended.lock().push("eof");
        self.came.notify_one();
    }
    fn closed(&self) {
        self.ended.lock().push("closed");
        self.came.notify_one();
    }
    fn gone(&self, refused: Option<String>) {
        self.ended.lock().push(if refused.is_some() { "refused" } else { "gone" });
        self.came.notify_one();
    }
    fn frame(&self, _: Frame) {}
}

impl Kept {
    async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        let wait = async {
            loop {
                let came = self.came.notified();
                if is_so(self) {
                    return;
                }
                came.await;
            }
        };
        timeout(Duration::from_secs(20), wait).await.expect("it does not come");
    }

    fn len(&self) -> usize {
        self.bytes.lock().len()
    }

    fn ended(&self) -> Vec<&'static str> {
        self.ended.lock().clone()
    }
}

type Admitted = Arc<Mutex<Vec<(Channel, Arc<Kept>)>>>;

/// A side that lets everything in, or nothing.
struct Admitting {
    mux: Mux,
    open: bool,
    admitted: Admitted,
}

impl Role for Admitting {
    fn frame(&mut self, frame: Frame) -> Result<(), Breach> {
        let Frame::Open(id, _) = frame else { return Err(Breach::rule("what is this?")) };
        if !self.open {
            return self.mux.answer(&Frame::Refused(id, "closed".to_owned()));
        }
        let kept = Arc::<Kept>::default();
        let channel = self.mux.admit(id, kept.clone());
        self.admitted.lock().push((channel, kept));
        Ok(())
    }
}

/// Two muxes on one stream: the client's, the node's, and what the node has let in.
fn pair(open: bool) -> (Mux, Mux, Admitted) {
    let (near, far) = tokio::io::duplex(16 * 1024);
    let client = Mux::new(Side::Client, FIRST_WINDOW, FIRST_WINDOW, false);
    let node = Mux::new(Side::Node, FIRST_WINDOW, FIRST_WINDOW, false);
    let admitted = Admitted::default();
    for (mux, stream) in [(client.clone(), near), (node.clone(), far)] {
        let role = Admitting { mux: mux.clone(), open, admitted: admitted.clone() };
        tokio::spawn(run(mux, stream, BytesMut::new(), role, None));
    }
    (client, node, admitted)
}

fn opened(mux: &Mux) -> (Channel, Arc<Kept>) {
    let made = mux.open_with(Open::Agent, |_| {
        let kept = Arc::<Kept>::default();
        (kept.clone() as Arc<dyn Taker>, kept)
    });
    made.unwrap()
}

async fn first(admitted: &Admitted) -> Arc<Kept> {
    loop {
        if let Some((_, kept)) = admitted.lock().first() {
            return kept.clone();
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_is_sent_before_an_answer_arrives_in_order_and_both_close() {
    let (client, node, admitted) = pair(true);
    let (channel, kept) = opened(&client);
    channel.data(false, Bytes::from(vec![1; 100_000])).await.unwrap();
    channel.data(false, Bytes::from(vec![2; 20_000])).await.unwrap();
    channel.eof().unwrap();
    channel.close();
    assert!(channel.data(false, Bytes::from_static(b"late")).await.is_err());
    let far = first(&admitted).await;
    far.until(|kept| kept.ended() == ["eof", "closed"]).await;
    let bytes = far.bytes.lock().clone();
    assert_eq!((bytes.len(), bytes[99_999], bytes[100_000]), (120_000, 1, 2));
    assert_eq!((client.channels(), node.channels()), (1, 1));
    admitted.lock().clear();
    kept.until(|kept| kept.ended() == ["closed"]).await;
    assert_eq!((client.channels(), node.channels()), (0, 0));
}

#[tokio::test]
async fn who_does_not_read_stops_its_own_channel_alone() {
    let (client, _node, admitted) = pair(true);
    let (deaf, _) = opened(&client);
    let (other, _) = opened(&client);
    let mut sent = 0;
    while timeout(Duration::from_millis(300), deaf.data(false, Bytes::from(vec![0; 8192]))).await.is_ok() {
        sent += 8192;
    }
    // The window, and the queue here.
    assert!(sent <= FIRST_WINDOW as usize + QUEUE_BYTES + 8192, "{sent}");
    let far = first(&admitted).await;
    assert_eq!(far.len(), FIRST_WINDOW as usize);
    other.data(false, Bytes::from_static(b"prompt")).await.unwrap();
    let beside = admitted.lock()[1].1.clone();
    beside.until(|kept| kept.len() == 6).await;
    // Once it is read, it goes on.
    let (mux, id) = {
        let admitted = admitted.lock();
        (admitted[0].0.mux().clone(), admitted[0].0.id())
    };
    mux.taken(id, FIRST_WINDOW as usize);
    far.until(|kept| kept.len() == sent).await;
}

#[tokio::test]
async fn a_channel_that_is_not_let_in_says_why_and_takes_no_more() {
    let (client, _node, _) = pair(false);
    let (channel, kept) = opened(&client);
    kept.until(|kept| kept.ended() == ["refused"]).await;
    assert!(channel.data(false, Bytes::from_static(b"x")).await.is_err());
    assert_eq!(client.channels(), 0);
    // Data that was under way meanwhile does not break the connection.
    let (second, kept) = opened(&client);
    second.data(false, Bytes::from_static(b"x")).await.unwrap();
    kept.until(|kept| kept.ended() == ["refused"]).await;
    assert!(client.end().is_none());
}

#[tokio::test]
async fn a_goodbye_comes_behind_what_was_sent() {
    let (client, node, admitted) = pair(true);
    let (channel, _) = opened(&client);
    channel.data(false, Bytes::from(vec![7; 50_000])).await.unwrap();
    client.finish(Farewell::Cut, "enough");
    let end = timeout(Duration::from_secs(20), node.ended()).await.unwrap();
    assert_eq!(end, End { told: Some(Farewell::Cut), reason: "enough".to_owned() });
    let far = first(&admitted).await;
    assert_eq!((far.len(), far.ended()), (50_000, vec!["gone"]));
    timeout(Duration::from_secs(20), client.ended()).await.unwrap();
    assert!(matches!(
        client.open_with(Open::Agent, |_| (Arc::<Kept>::default() as Arc<dyn Taker>, ())),
        Err(NotOpened::Gone)
    ));
}

#[tokio::test]
async fn bulk_both_ways_at_once_gets_through_a_narrow_stream() {
    let (client, _node, admitted) = pair(true);
    let (channel, kept) = opened(&client);
    first(&admitted).await;
    let (far_channel, far) = admitted.lock().pop().unwrap();
    let total = 3_000_000;
    let send = |channel: Channel| async move {
        for _ in 0..total / 30_000 {
            channel.data(false, Bytes::from(vec![5; 30_000])).await.unwrap();
        }
        channel
    };
    let read = |mux: Mux, id: u32, kept: Arc<Kept>| async move {
        let mut seen = 0;
        while seen < total {
            kept.until(|kept| kept.len() > seen).await;
            let now = kept.len();
            mux.taken(id, now - seen);
            seen = now;
        }
    };
    let readers = (
        read(channel.mux().clone(), channel.id(), kept),
        read(far_channel.mux().clone(), far_channel.id(), far),
    );
    let all = async { tokio::join!(send(channel), send(far_channel), readers.0, readers.1) };
    timeout(Duration::from_secs(30), all).await.expect("it stands still");
}
