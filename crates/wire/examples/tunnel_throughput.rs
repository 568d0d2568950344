//! How many bytes a tunnel carries over loopback TCP: `cargo run --release -p sallyport-wire --example tunnel_throughput`.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for a person at a terminal")]

use std::time::Instant;

use bytes::Bytes;
use sallyport_wire::tunnel::{Config, Tunnel};

const TOTAL: usize = 2 << 30;

#[tokio::main]
async fn main() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let dialled = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let (client, _keep) = Tunnel::client(dialled, Config::default());
    let (_server, mut incoming) = Tunnel::server(accepted, Config::default());
    let mut near = client.open(Bytes::new()).unwrap();
    let (_, mut far) = incoming.next().await.unwrap();
    let begin = Instant::now();
    let writer = tokio::spawn(async move {
        let block = Bytes::from(vec![0; 64 * 1024]);
        for _ in 0..TOTAL / block.len() {
            near.send(block.clone()).await.unwrap();
        }
        near
    });
    let mut received = 0;
    while received < TOTAL {
        received += far.receive().await.unwrap().unwrap().len();
    }
    let seconds = begin.elapsed().as_secs_f64();
    writer.await.unwrap();
    println!("{:.0} MB/s", received as f64 / seconds / 1e6);
}
