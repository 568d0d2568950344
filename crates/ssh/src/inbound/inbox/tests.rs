use tokio::time::Instant;

use super::*;

async fn drain(inbox: &Inbox) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        match inbox.next().await {
            Some(Incoming::Data(bytes)) => {
                inbox.consumed(bytes.len());
                all.extend_from_slice(&bytes);
            }
            Some(Incoming::Eof) => return all,
            other => panic!("{other:?}"),
        }
    }
}

fn block(number: usize) -> Vec<u8> {
    vec![u8::try_from(number % 251).unwrap(); 32 * 1024]
}

fn filled() -> (Arc<Pressure>, Arc<Inbox>) {
    let pressure = Arc::new(Pressure::default());
    let inbox = Inbox::new(pressure.clone());
    while !inbox.is_full() {
        inbox.accept(&block(1)).unwrap();
    }
    (pressure, inbox)
}

#[tokio::test]
async fn order_is_kept_whatever_the_size_of_packets() {
    let inbox = Inbox::new(Arc::new(Pressure::default()));
    let mut expected = Vec::new();
    for number in 0..200_usize {
        let length = [1, 2, 4095, 32 * 1024, 3][number % 5];
        let bytes = vec![u8::try_from(number).unwrap(); length];
        expected.extend_from_slice(&bytes);
        inbox.accept(&bytes).unwrap();
    }
    assert_eq!(inbox.waiting(), expected.len());
    inbox.end();
    assert!(drain(&inbox).await == expected);
    assert_eq!((inbox.waiting(), inbox.pressure.kept.load(Ordering::Acquire)), (0, 0));
}

#[tokio::test]
async fn small_packets_cost_little_more_than_their_bytes() {
    let inbox = Inbox::new(Arc::new(Pressure::default()));
    for _ in 0..100_000 {
        inbox.accept(b"ab").unwrap();
    }
    assert!(inbox.state().memory.len() <= 200_000 / (PIECE_BYTES - 1) + 1);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_reads_is_waited_for() {
    let (_, inbox) = filled();
    assert!(inbox.wants_room());
    let reader = {
        let inbox = inbox.clone();
        tokio::spawn(async move {
            sleep(PATIENCE / 2).await;
            let Some(Incoming::Data(bytes)) = inbox.next().await else { panic!() };
            inbox.consumed(bytes.len());
        })
    };
    let began = Instant::now();
    inbox.clone().room(32 * 1024).await;
    assert_eq!(began.elapsed(), PATIENCE / 2);
    reader.await.unwrap();
    assert!(!inbox.wants_room());
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_stuck_is_waited_for_once() {
    let (_, inbox) = filled();
    let began = Instant::now();
    inbox.clone().room(32 * 1024).await;
    assert_eq!(began.elapsed(), PATIENCE);
    assert!(!inbox.wants_room());
    // Once it has read something, it is again.
    inbox.accept(&block(1)).unwrap();
    assert!(matches!(inbox.next().await, Some(Incoming::Data(_))));
    assert!(inbox.wants_room());
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_while_output_is_held_up() {
    let (pressure, inbox) = filled();
    let guard = pressure.enter();
    let began = Instant::now();
    for _ in 0..100 {
        inbox.clone().room(32 * 1024).await;
    }
    assert_eq!(began.elapsed(), HELD_UP, "found out once");
    // Some of it went.
    drop(pressure.enter());
    inbox.clone().room(32 * 1024).await;
    assert_eq!(began.elapsed(), HELD_UP * 2);
    drop(guard);
    inbox.clone().room(32 * 1024).await;
    assert_eq!(began.elapsed(), HELD_UP * 2 + PATIENCE);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_reader_that_has_gone() {
    let (_, inbox) = filled();
    let waiting = tokio::spawn(inbox.clone().room(1));
    tokio::task::yield_now().await;
    let began = Instant::now();
    inbox.leave();
    waiting.await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(!inbox.wants_room());
}

#[tokio::test]
async fn a_closed_channel_still_gives_what_came_before() {
    let inbox = Inbox::new(Arc::new(Pressure::default()));
    inbox.accept(&block(1)).unwrap();
    inbox.close();
    inbox.accept(&block(2)).unwrap();
    assert!(drain(&inbox).await == block(1));
    assert!(inbox.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_stuck_is_given_up_when_its_client_has_gone() {
    let (pressure, inbox) = filled();
    let began = Instant::now();
    let waiting = |inbox: &Arc<Inbox>| {
        let inbox = inbox.clone();
        tokio::spawn(async move { inbox.abandoned().await })
    };
    // One that reads is waited for.
    inbox.close();
    let closed = waiting(&inbox);
    sleep(LAST_WAIT_BESIDE / 2).await;
    assert!(matches!(inbox.next().await, Some(Incoming::Data(_))));
    closed.await.unwrap();
    assert_eq!(began.elapsed(), LAST_WAIT_BESIDE * 2);
    // With the connection less patience ends, and none is left when the reader goes.
    let ended = waiting(&inbox);
    pressure.end();
    ended.await.unwrap();
    assert_eq!(began.elapsed(), LAST_WAIT_BESIDE * 2 + LAST_WAIT);
    let gone = waiting(&inbox);
    inbox.leave();
    gone.await.unwrap();
    assert_eq!(began.elapsed(), LAST_WAIT_BESIDE * 2 + LAST_WAIT);
}

#[tokio::test]
async fn a_session_that_is_cut_before_it_begins_is_over() {
    let inbox = Inbox::new(Arc::new(Pressure::default()));
    let over = tokio::spawn({
        let inbox = inbox.clone();
        async move { inbox.over().await }
    });
    tokio::task::yield_now().await;
    inbox.cut("locked");
    assert_eq!(over.await.unwrap().as_deref(), Some("locked"));
    // The reader hears of it as well.
    assert!(matches!(inbox.next().await, Some(Incoming::Cut(reason)) if reason == "locked"));
    inbox.leave();
    assert_eq!(inbox.over().await, None);
}

#[tokio::test]
async fn what_a_connection_keeps_is_bounded_and_goes_with_its_readers() {
    let pressure = Arc::new(Pressure::default());
    let (first, second) = (Inbox::new(pressure.clone()), Inbox::new(pressure.clone()));
    first.accept(&block(1)).unwrap();
    while first.accept(&block(1)).is_ok() {}
    assert!(matches!(second.accept(&block(1)), Err(InboxError::Full)));
    assert_eq!(pressure.kept.load(Ordering::Acquire), KEPT_BYTES);
    first.leave();
    second.accept(&block(1)).unwrap();
    drop(second);
    assert_eq!(pressure.kept.load(Ordering::Acquire), 0);
    first.accept(&block(1)).unwrap();
    assert_eq!(first.waiting(), 0);
}

#[tokio::test]
async fn requests_and_cuts_pass_waiting_input() {
    let inbox = Inbox::new(Arc::new(Pressure::default()));
    inbox.accept(&block(1)).unwrap();
    inbox.request(Incoming::Signal(crate::session::Signal::INT)).unwrap();
    assert!(matches!(inbox.next().await, Some(Incoming::Signal(_))));
    inbox.cut("locked");
    assert!(matches!(inbox.next().await, Some(Incoming::Cut(reason)) if reason == "locked"));
    for _ in 0..MAX_REQUESTS {
        inbox.request(Incoming::Signal(crate::session::Signal::INT)).unwrap();
    }
    let refused = inbox.request(Incoming::Signal(crate::session::Signal::INT));
    assert!(matches!(refused, Err(InboxError::Requests)));
    inbox.leave();
    assert!(inbox.next().await.is_none());
}

/// Typed byte by byte, to a process that reads nothing; and data without a byte in it, which no window bounds.
#[tokio::test]
async fn a_reader_is_handed_so_many_pieces_and_no_more() {
    let inbox = Inbox::new(Arc::new(Pressure::default()));
    for _ in 0..10 * HANDED_PIECES {
        inbox.accept(b"").unwrap();
        inbox.accept_whole(&Bytes::new());
    }
    assert!(inbox.state().memory.is_empty());
    for _ in 0..HANDED_PIECES {
        inbox.accept(b"a").unwrap();
        assert!(matches!(inbox.next().await, Some(Incoming::Data(bytes)) if bytes.len() == 1));
    }
    for _ in 0..100 {
        inbox.accept(b"b").unwrap();
    }
    assert!(futures::poll!(std::pin::pin!(inbox.next())).is_pending());
    inbox.consumed(1);
    assert!(matches!(inbox.next().await, Some(Incoming::Data(bytes)) if bytes.len() == 100));
}
