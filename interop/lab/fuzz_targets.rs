//! Every fuzz target as a property test: on what it was seeded with, on noise, and on both mixed. The fuzzer itself needs
//! another toolchain; the targets' code runs here with every test run.
#![allow(unused_attributes, unused_imports, reason = "the targets are written as programs of the fuzzer's")]

/// What the targets ask for as `libfuzzer_sys::fuzz_target`: makes the body of a target a function of bytes.
#[macro_export]
macro_rules! fuzz_target {
    (|$data:ident: &[u8]| $body:block) => {
        pub(crate) fn run($data: &[u8]) $body
    };
    (|$data:ident: (u8, &[u8])| $body:block) => {
        pub(crate) fn run(bytes: &[u8]) {
            let Some((first, rest)) = bytes.split_first() else { return };
            let $data: (u8, &[u8]) = (*first, rest);
            $body
        }
    };
}

#[path = "../../fuzz/fuzz_targets/audit_line.rs"]
mod audit_line;
#[path = "../../fuzz/fuzz_targets/client_hello.rs"]
mod client_hello;
#[path = "../../fuzz/fuzz_targets/detect.rs"]
mod detect;
#[path = "../../fuzz/fuzz_targets/http_response.rs"]
mod http_response;
#[path = "../../fuzz/fuzz_targets/inspect.rs"]
mod inspect;
#[path = "../../fuzz/fuzz_targets/ip_packet.rs"]
mod ip_packet;
#[path = "../../fuzz/fuzz_targets/jwt.rs"]
mod jwt;
#[path = "../../fuzz/fuzz_targets/native_frame.rs"]
mod native_frame;
#[path = "../../fuzz/fuzz_targets/node_query.rs"]
mod node_query;
#[path = "../../fuzz/fuzz_targets/postgres_message.rs"]
mod postgres_message;
#[path = "../../fuzz/fuzz_targets/postgres_scram.rs"]
mod postgres_scram;
#[path = "../../fuzz/fuzz_targets/postgres_session.rs"]
mod postgres_session;
#[path = "../../fuzz/fuzz_targets/postgres_startup.rs"]
mod postgres_startup;
#[path = "../../fuzz/fuzz_targets/read_private.rs"]
mod read_private;
#[path = "../../fuzz/fuzz_targets/read_public.rs"]
mod read_public;
#[path = "../../fuzz/fuzz_targets/recording_reader.rs"]
mod recording_reader;
#[path = "../../fuzz/fuzz_targets/relay_header.rs"]
mod relay_header;
#[path = "../../fuzz/fuzz_targets/role_yaml.rs"]
mod role_yaml;
#[path = "../../fuzz/fuzz_targets/sftp_observer.rs"]
mod sftp_observer;
#[path = "../../fuzz/fuzz_targets/ssh_certificate.rs"]
mod ssh_certificate;
#[path = "../../fuzz/fuzz_targets/ssh_host_key.rs"]
mod ssh_host_key;
#[path = "../../fuzz/fuzz_targets/ssh_offer.rs"]
mod ssh_offer;
#[path = "../../fuzz/fuzz_targets/ssh_pipelined.rs"]
mod ssh_pipelined;
#[path = "../../fuzz/fuzz_targets/tls_answer.rs"]
mod tls_answer;
#[path = "../../fuzz/fuzz_targets/trace_context.rs"]
mod trace_context;
#[path = "../../fuzz/fuzz_targets/tunnel_frame.rs"]
mod tunnel_frame;
#[path = "../../fuzz/fuzz_targets/tunnel_state.rs"]
mod tunnel_state;
#[path = "../../fuzz/fuzz_targets/x509_certificate.rs"]
mod x509_certificate;

/// Inputs of one target: a million are the fuzzer's business, a few thousand find what is simply wrong.
const ROUNDS: usize = 3_000;
/// Longest input made here.
const LONGEST: usize = 4_096;

/// xorshift64*: the same inputs every time, so that a failure can be had again.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next().to_be_bytes()[0]).collect()
    }
}

/// Changes a seed as a fuzzer would: bytes replaced, cut, repeated, and numbers that are often wrong put in.
fn changed(seed: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    const ODD: [&[u8]; 6] = [&[0xff; 4], &[0; 4], &[0x7f, 0xff, 0xff, 0xff], &[0x80, 0, 0, 0], b"\0", b"\n"];
    let mut bytes = seed.to_vec();
    for _ in 0..=numbers.below(6) {
        let at = numbers.below(bytes.len() + 1);
        match numbers.below(5) {
            0 => bytes.truncate(at),
            1 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << numbers.below(8);
                }
            }
            2 => {
                let odd = ODD[numbers.below(ODD.len())];
                bytes.splice(at..(at + odd.len()).min(bytes.len()), odd.iter().copied());
            }
            3 => {
                let part = bytes[at..(at + numbers.below(64)).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let length = numbers.below(16);
                let noise = numbers.bytes(length);
                bytes.splice(at..at, noise);
            }
        }
    }
    bytes.truncate(LONGEST);
    bytes
}

fn replay(name: &str, target: fn(&[u8]), seeds: &[&[u8]]) {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for seed in seeds {
        target(seed);
    }
    for round in 0..ROUNDS {
        let input = if seeds.is_empty() || round % 4 == 0 {
            let length = numbers.below(if round % 8 == 0 { LONGEST } else { 64 });
            numbers.bytes(length)
        } else {
            let seed = seeds[numbers.below(seeds.len())];
            changed(seed, &mut numbers)
        };
        let outcome = std::panic::catch_unwind(|| target(&input));
        assert!(outcome.is_ok(), "{name}, round {round}: {:02x?}", input);
    }
}

#[test]
fn audit_line_holds() {
    replay(
        "audit_line",
        audit_line::run,
        &[br#"{"seq":1,"hash":"00","event":{"code":"SP2001","kind":"session.start"}}"#],
    );
}

#[test]
fn client_hello_holds() {
    replay(
        "client_hello",
        client_hello::run,
        &[&[22, 3, 1, 0, 47, 1, 0, 0, 43, 3, 3], &[22, 3, 1, 0, 5, 1, 0, 0, 1, 0]],
    );
}

#[test]
fn detect_holds() {
    replay(
        "detect",
        detect::run,
        &[b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n", &[22, 3, 1, 0, 5, 1, 0, 0, 1, 0]],
    );
}

#[test]
fn inspect_holds() {
    replay(
        "inspect",
        inspect::run,
        &[
            b"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n",
            b"@cert-authority *.example.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBGDT0PVEKZTwqzZ6yQNkFhVYJlJPfjrHRZlHQWzgzEO x",
            b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\0kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
            br#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#,
            b"PuTTY-User-Key-File-3: ssh-ed25519\r\nPublic-Lines: 2\r\nAAAA\r\n",
        ],
    );
}

#[test]
fn http_response_holds() {
    replay(
        "http_response",
        http_response::run,
        &[
            b"\x03HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            b"\x07HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            b"\x10HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 404 Not Found\r\nConnection: close\r\n\r\nuntil the end",
        ],
    );
}

#[test]
fn jwt_holds() {
    replay(
        "jwt",
        jwt::run,
        &[
            b"eyJhbGciOiJub25lIn0.eyJpc3MiOiJ4In0.",
            b"{\"alg\":\"ES256\"}\n{\"aud\":\"fuzz\",\"exp\":9999999999}\nsig",
        ],
    );
}

#[test]
fn native_frame_holds() {
    replay(
        "native_frame",
        native_frame::run,
        &[
            b"\x01\0\0\x12\0\0\0\0SPNS\0\x01\0\x01\0\x02\0\0\0\0\0\x04root",
            b"\x10\0\0\x0d\0\0\0\x01\0\x01\0\0\0\x02id\0\0\0\0\0",
            b"\x10\0\0\x12\0\0\0\x03\x01\0\0\0\0\x01h\0\x50\0\0\0\x01x\0\x05",
            b"\x06\0\0\x0b\0\0\0\0\0\0\0\x07\x01\0\0\0\x02/s",
            b"\x13\0\0\x02\0\0\0\x01hi\x17\0\0\x04\0\0\0\x01\0\0\x10\0\x1a\0\0\x09\0\0\0\x01\0\0\0\x04TERM\0",
            b"\x99\0\0\x01\0\0\0\x01x\x16\0\0\0\0\0\0\x01\x03\0\0\x09\0\0\0\0\x01\0\0\0\x04away",
        ],
    );
}

#[test]
fn node_query_holds() {
    replay(
        "node_query",
        node_query::run,
        &[b"labels.env == \"prod\" && name startswith \"web\"", b"!(online) || search(\"x\")"],
    );
}

#[test]
fn postgres_message_holds() {
    replay(
        "postgres_message",
        postgres_message::run,
        &[
            b"Qselect 1\0",
            b"B\0s1\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x2a\0\0",
            b"Ps1\0select $1\0\0\x01\0\0\0\x17",
        ],
    );
}

#[test]
fn postgres_scram_holds() {
    replay("postgres_scram", postgres_scram::run, &[b"r=abcd,s=AAAA,i=1", b"v=AAAA", b"e=invalid-proof"]);
}

#[test]
fn postgres_session_holds() {
    replay(
        "postgres_session",
        postgres_session::run,
        &[
            b"\x03Q\0\0\0\x0dselect 1\0P\0\0\0\x10\0select 1\0\0\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04X\0\0\0\x04",
            b"\x05T\0\0\0\x05xD\0\0\0\x06\0\0C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I1\0\0\0\x042\0\0\0\x04",
            b"\x02E\0\0\0\x13SERROR\0C42601\0\0A\0\0\0\x0c\0\0\0\x07c\0p\0G\0\0\0\x07\0\0\0",
        ],
    );
}

#[test]
fn postgres_startup_holds() {
    replay(
        "postgres_startup",
        postgres_startup::run,
        &[
            b"\0\0\0\x08\x04\xd2\x16\x2f",
            b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07abcd",
            b"\0\0\0\x3c\0\x03\0\0user\0app\0options\0-c sallyport.database=prod -c x=y\0\0",
        ],
    );
}

#[test]
fn read_private_holds() {
    replay("read_private", read_private::run, &[b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n", b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n-----END OPENSSH PRIVATE KEY-----\n"]);
}

#[test]
fn read_public_holds() {
    replay("read_public", read_public::run, &[b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBGDT0PVEKZTwqzZ6yQNkFhVYJlJPfjrHRZlHQWzgzEO x", b"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n"]);
}

#[test]
fn recording_reader_holds() {
    replay(
        "recording_reader",
        recording_reader::run,
        &[b"\xf5CHK\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10"],
    );
}

#[test]
fn relay_header_holds() {
    replay(
        "relay_header",
        relay_header::run,
        &[
            b"\0\x21{\"client_addr\":\"192.0.2.1:47110\"}",
            b"\0\x24{\"client_addr\":\"[2001:db8::1]:4711\"}",
            b"{\"client_addr\":\"[fe80::1%3]:1\"}",
        ],
    );
}

#[test]
fn role_yaml_holds() {
    replay("role_yaml", role_yaml::run, &[b"kind: role\nversion: v1\nmetadata:\n  name: dev\nspec:\n  allow:\n    logins: [root]\n    node_labels:\n      '*': '*'\n  options: {max_sessions: 3}\n", b"kind: lock\nversion: v1\nmetadata:\n  name: x\nspec:\n  target: {user: alice}\n"]);
}

#[test]
fn sftp_observer_holds() {
    replay(
        "sftp_observer",
        sftp_observer::run,
        &[b"\0\0\0\x05\x01\0\0\0\x03", b"\0\0\0\x11\x03\0\0\0\x01\0\0\0\x04/tmp\0\0\0\x01\0\0\0\0"],
    );
}

#[test]
fn ssh_certificate_holds() {
    replay("ssh_certificate", ssh_certificate::run, &[b"\0\0\0\x20ssh-ed25519-cert-v01@openssh.com\0\0\0\x04nnnn\0\0\0\x20kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x05alice"]);
}

#[test]
fn ssh_host_key_holds() {
    replay(
        "ssh_host_key",
        ssh_host_key::run,
        &[
            b"\x03SSH-2.0-x\r\n\0\0\0\x30\x04\x1f\0\0\0\x0f\0\0\0\x0bssh-ed25519\0\0\0\x01Q\0\0\0\x09\0\0\0\x01s\0\0\0\0pppp",
            b"\x01line\nSSH-2.0-x\n\0\0\0\x11\x04\x1f\0\0\0\x02\x80\0\0\0\0\x01\x02pppp",
        ],
    );
}

#[test]
fn ip_packet_holds() {
    // A SYN over IPv4, and a datagram of UDP over IPv6 behind a first fragment.
    let mut syn = b"\x45\0\0\x28\0\0\x40\0\x40\x06\0\0\x0a\x4d\0\x01\x0a\x4d\0\x02".to_vec();
    syn.extend(b"\x9c\x40\0\x16\0\0\0\x07\0\0\0\0\x50\x02\xff\xff\0\0\0\0");
    let mut datagram = b"\x60\0\0\0\0\x14\x2c\x40".to_vec();
    datagram.extend([0xfd; 32]);
    datagram.extend(b"\x11\0\0\x01\0\0\0\x09\x12\x34\0\x35\0\x0c\0\0abcd");
    replay("ip_packet", ip_packet::run, &[&syn, &datagram]);
}

#[test]
fn ssh_offer_holds() {
    replay(
        "ssh_offer",
        ssh_offer::run,
        &[b"\x03SSH-2.0-OpenSSH_9.2\r\n\0\0\0\x2c\x0a\x14", b"\x01line\r\nSSH-1.99-x\n\0\0\0\x05\x00\x02aaa"],
    );
}

#[test]
fn ssh_pipelined_holds() {
    let lists = |kex: &str, keys: &str| {
        let list = |text: &str| [&u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat();
        let gcm = list("aes128-gcm@openssh.com");
        let none = [list("none"), list("none"), list(""), list("")].concat();
        let body =
            [&[20][..], &[7; 16], &list(kex), &list(keys), &gcm, &gcm, &gcm, &gcm, &none, &[0; 5]].concat();
        let padding = 4 + (8 - (9 + body.len()) % 8) % 8;
        let length = u32::try_from(1 + body.len() + padding).unwrap();
        let packet =
            [&length.to_be_bytes()[..], &[u8::try_from(padding).unwrap()], &body, &vec![0; padding]].concat();
        [b"\x07SSH-2.0-OpenSSH_9.2\r\n", packet.as_slice()].concat()
    };
    let proposal = lists("curve25519-sha256", "ssh-ed25519-cert-v01@openssh.com");
    // The answer to a share: a host key, a share and a signature that are none.
    let reply = b"\0\0\0\x1c\x08\x1f\0\0\0\x03key\0\0\0\x02sh\0\0\0\x01s00000000";
    let answered = [proposal.as_slice(), reply].concat();
    let seeds: [&[u8]; 5] = [
        b"\x03SSH-2.0-OpenSSH_9.2\r\n\0\0\0\x2c\x0a\x14",
        b"\x01line\r\nSSH-1.99-x\n\0\0\0\x0c\x0a\x15000000000",
        b"\x05\x62\0\0\0\0\0\0\0\x0bexit-status\0\0\0\0\x07",
        &proposal,
        &answered,
    ];
    replay("ssh_pipelined", ssh_pipelined::run, &seeds);
}

#[test]
fn tls_answer_holds() {
    replay(
        "tls_answer",
        tls_answer::run,
        &[
            b"\x05\x16\x03\x03\0\x2c\x02\0\0\x28\x03\x03rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr\0\xc0\x2f\0\0\0",
            b"\x01\x15\x03\x01\0\x02\x02\x46",
            b"\x09\x16\x03\x03\0\x0a\x0b\0\0\x06\0\0\x03\0\0\0",
        ],
    );
}

#[test]
fn trace_context_holds() {
    replay(
        "trace_context",
        trace_context::run,
        &[
            b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            b"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-09-later",
        ],
    );
}

#[test]
fn tunnel_frame_holds() {
    replay(
        "tunnel_frame",
        tunnel_frame::run,
        &[
            &[0, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9],
            &[1, 0, 0, 0, 1, 0, 0, 0, 0],
            &[4, 0, 0, 0, 1, 0, 0, 0, 1, b'x'],
            &[7, 0, 0, 0, 0, 0, 0, 0, 0],
        ],
    );
}

#[test]
fn tunnel_state_holds() {
    replay(
        "tunnel_state",
        tunnel_state::run,
        &[
            &[
                1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9, 2, 0, 0, 0, 1, 0, 0, 1, 0, 3, 0,
                0, 0, 1, 0, 0, 0, 0,
            ],
            &[5, 0, 0, 0, 0, 0, 0, 0, 7],
        ],
    );
}

#[test]
fn x509_certificate_holds() {
    replay(
        "x509_certificate",
        x509_certificate::run,
        &[b"\x30\x82\x01\x00\x30\x81\xb3\xa0\x03\x02\x01\x02\x02\x01\x01"],
    );
}
