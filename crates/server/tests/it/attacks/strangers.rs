//! Strangers at the authority's API, with messages that no client sends, and a user with keys that no client makes.

use std::time::{Duration, Instant};

use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::Suite;
use sallyport_wire::v1;
use sallyport_wire::v1::login_client::LoginClient;
use tonic::Code;
use tonic::transport::Channel;

use crate::auth_api::{OPEN, call, methods};
use crate::support::{Cluster, PASSWORD, PATIENCE, authority_as, pin, pinned};

/// A tag of protobuf and its value, for a field that no message has or has with another type.
pub(super) fn field(number: u32, kind: u32, value: &[u8]) -> Vec<u8> {
    [varint(u64::from(number << 3 | kind)), value.to_vec()].concat()
}

pub(super) fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Bytes in place of any message: enums and numbers beyond what is known, choices that are not made, fields that are not
/// listed, text that is none, lengths that lie.
fn odd_messages() -> Vec<Vec<u8>> {
    let each = |kind: u32, value: &[u8]| -> Vec<u8> {
        (1..=16).flat_map(|number| field(number, kind, value)).collect()
    };
    let deep = (0..200)
        .fold(Vec::new(), |inner: Vec<u8>, _| field(1, 2, &[varint(inner.len() as u64), inner].concat()));
    vec![
        Vec::new(),
        each(0, &varint(u64::MAX)),
        each(0, &varint(0x7fff_ffff)),
        each(0, &varint(9_999)),
        each(1, &[0xff; 8]),
        each(5, &[0xff; 4]),
        each(2, &[0]),
        each(2, &[1, 0]),
        each(2, &[2, 0xff, 0xfe]),
        each(2, &[varint(4), b"root".to_vec()].concat()),
        field(536_870_911, 0, &varint(1)),
        field(1, 2, &varint(u64::MAX)),
        field(1, 3, &[]),
        field(0, 0, &[0]),
        vec![0xff; 11],
        vec![0x80],
        deep,
    ]
}

/// What one address may ask in a minute.
const CALLS_OF_PLACE: usize = 600;

#[tokio::test(flavor = "multi_thread")]
async fn no_message_of_a_strangers_gets_an_answer() {
    let cluster = Cluster::without_node().await;
    let pin = pin(&mut cluster.admin().await).await;
    let stranger = pinned(&cluster.proxy(), &pin).await;
    let (methods, messages) = (methods(), odd_messages());
    // Within what one address may ask in a minute, with what is asked below: each method has a few of the messages, and
    // all methods together all of them.
    let closed = methods.iter().filter(|method| !OPEN.contains(&method.as_str())).count();
    let share = (CALLS_OF_PLACE - 20 - (methods.len() - closed) * messages.len()) / closed;
    assert!(share > 2, "too many methods for one address: let several addresses ask");
    for (index, method) in methods.into_iter().enumerate() {
        let open = OPEN.contains(&method.as_str());
        let most = if open { messages.len() } else { share };
        for message in messages.iter().cycle().skip(index * share).take(most) {
            let answer = call(&stranger, &method, message.clone()).await;
            if ["Login.Ping", "Login.DeviceChallenge"].contains(&method.as_str()) {
                continue;
            }
            let Err(status) = answer else { panic!("{method} answers {message:02x?}") };
            let fine = match status.code() {
                Code::Unauthenticated | Code::PermissionDenied => true,
                // Bytes that are no message: before anything is done with them.
                Code::Internal => open && status.message().contains("decode"),
                Code::InvalidArgument | Code::NotFound | Code::ResourceExhausted => open,
                _ => false,
            };
            assert!(fine, "{method} {message:02x?}: {status:?}");
        }
    }
    // Methods and services that are not there.
    for method in ["Login.Nothing", "Admin.nothing", "Nothing.Ping", "Transport.ProxySsh"] {
        let status = call(&stranger, method, Vec::new()).await.unwrap_err();
        let expected = [Code::Unimplemented, Code::Unauthenticated, Code::ResourceExhausted];
        assert!(expected.contains(&status.code()), "{method}: {status:?}");
    }
    ping(&stranger).await;
}

async fn ping(channel: &Channel) {
    let asked = LoginClient::new(channel.clone());
    let mut asked = asked;
    tokio::time::timeout(PATIENCE, asked.ping(v1::PingRequest::default())).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_oversized_message_is_refused_and_keeps_no_user_waiting() {
    let cluster = Cluster::without_node().await;
    let pin = pin(&mut cluster.admin().await).await;
    let others = pinned(&cluster.proxy(), &pin).await;
    let mut sending = Vec::new();
    for _ in 0..8 {
        let channel = pinned(&cluster.proxy(), &pin).await;
        sending.push(tokio::spawn(async move {
            let padding = field(1, 2, &[varint(6 << 20), vec![b'x'; 6 << 20]].concat());
            call(&channel, "Login.LoginWithPassword", padding).await
        }));
    }
    let began = Instant::now();
    for _ in 0..5 {
        ping(&others).await;
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    for sending in sending {
        let status = sending.await.unwrap().unwrap_err();
        let refused =
            [Code::OutOfRange, Code::ResourceExhausted, Code::Unknown, Code::Internal, Code::Unavailable];
        assert!(refused.contains(&status.code()), "{status:?}");
    }
    ping(&others).await;
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

fn line(kind: &str, parts: &[&[u8]]) -> String {
    let fields: Vec<u8> = [kind.as_bytes()].iter().chain(parts).flat_map(|part| string(part)).collect();
    format!("{kind} {}", data_encoding::BASE64.encode(&fields))
}

/// An RSA modulus of so many bits.
fn modulus(bits: usize) -> Vec<u8> {
    [&[0][..], &vec![0xd5; bits / 8]].concat()
}

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&[tag, 0x84][..], &length, content].concat()
}

/// The DER form of the same, with lengths in a form that is longer than need be.
fn rsa_spki(bits: usize) -> Vec<u8> {
    let key = der(0x30, &[der(2, &modulus(bits)), der(2, &[1, 0, 1])].concat());
    let algorithm = der(0x30, &[der(6, b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01"), vec![5, 0]].concat());
    der(0x30, &[algorithm, der(3, &[&[0], &key[..]].concat())].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_public_key_is_too_odd_to_be_refused() {
    let cluster = Cluster::without_node().await;
    let alice = cluster.user("alice", &["alice"]).await;
    let pin = pin(&mut cluster.admin().await).await;
    let ssh = SshKeyPair::generate(Suite::BalancedV1, "alice").unwrap().public_line().to_owned();
    let tls = TlsKey::generate(Suite::BalancedV1).unwrap().spki_der().to_vec();
    let lines = [
        String::new(),
        "ssh-rsa".to_owned(),
        "ssh-rsa AAAA".to_owned(),
        line("ssh-rsa", &[]),
        line("ssh-rsa", &[b"", b""]),
        line("ssh-rsa", &[&[1, 0, 1], b""]),
        line("ssh-rsa", &[&[1, 0, 1], &modulus(16_384)]),
        line("ssh-rsa", &[&modulus(16_384), &modulus(16_384)]),
        line("ssh-rsa", &[&[1, 0, 1], &modulus(65_536)]),
        line("ssh-rsa", &[&[1, 0, 1], &[0; 512]]),
        line("ssh-rsa", &[&[1, 0, 1], &[0xff; 256]]),
        line("ssh-ed25519", &[]),
        line("ssh-ed25519", &[b""]),
        line("ssh-ed25519", &[&[0; 33]]),
        line("ecdsa-sha2-nistp256", &[b"nistp256", b""]),
        line("ecdsa-sha2-nistp256", &[b"nistp384", &[4; 97]]),
        line("ecdsa-sha2-nistp256", &[b"nistp256", &[0]]),
        line("ssh-ed25519-cert-v01@openssh.com", &[b""]),
        alice.ssh_certificate.clone(),
    ];
    let keys = [
        Vec::new(),
        vec![0x30],
        vec![0x30, 0],
        vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
        vec![0x30, 0x80, 0, 0],
        rsa_spki(16_384),
        rsa_spki(65_536),
        rsa_spki(0),
        tls[..tls.len() - 1].to_vec(),
        [&tls[..], &[0]].concat(),
    ];
    // Those who have proven a password, and the machine that joins, choose keys.
    let mut login = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
    let pairs = lines.iter().map(|line| (line.clone(), tls.clone()));
    for (ssh_public_key, tls_key) in pairs.chain(keys.iter().map(|key| (ssh.clone(), key.clone()))) {
        let what = format!("{:.80} {:02x?}", ssh_public_key, &tls_key[..tls_key.len().min(16)]);
        let request = v1::LoginRequest {
            user: "alice".to_owned(),
            password: PASSWORD.to_owned(),
            ssh_public_key,
            tls_public_key: tls_key.into(),
            ..Default::default()
        };
        let answer = tokio::time::timeout(PATIENCE, login.login_with_password(request)).await;
        let status = answer.unwrap_or_else(|_| panic!("{what} is thought about")).expect_err(&what);
        assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status:?}");
    }
    // Everything is where it was.
    let channel = authority_as(&cluster.proxy(), &alice.trust, &alice.tls_chain, &alice.tls_key).await;
    ping(&channel).await;
}
