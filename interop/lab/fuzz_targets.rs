//! Every fuzz target as a property test: on the inputs that the fuzzer has kept, on what a target was seeded with, on noise,
//! and on all of them changed. The fuzzer itself is not run with the tests (`cargo xtask fuzz` runs it).

#[path = "../../fuzz/fuzz_targets/mod.rs"]
mod targets;

use std::fs;
use std::path::Path;

use targets::TARGETS;

/// Inputs of one target: a million are the fuzzer's business, a few thousand find what is simply wrong.
const ROUNDS: usize = 3_000;
/// The same where each of them makes keys, or a directory.
const FEW_ROUNDS: usize = 400;
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

/// Inputs that the fuzzer has kept.
fn kept(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut paths: Vec<_> = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn replay(name: &str, seeds: &[&[u8]]) {
    replay_rounds(name, seeds, ROUNDS);
}

fn replay_rounds(name: &str, seeds: &[&[u8]], rounds: usize) {
    let target = TARGETS.iter().find(|(known, _)| *known == name).unwrap().1;
    let run = |round: usize, input: &[u8]| {
        let outcome = std::panic::catch_unwind(|| target(input));
        assert!(outcome.is_ok(), "{name}, round {round}: {input:02x?}");
    };
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let kept = kept(name);
    let inputs: Vec<&[u8]> = seeds.iter().copied().chain(kept.iter().map(Vec::as_slice)).collect();
    for input in &inputs {
        run(0, input);
    }
    for round in 1..=rounds {
        if inputs.is_empty() || round % 4 == 0 {
            let length = numbers.below(if round % 8 == 0 { LONGEST } else { 64 });
            run(round, &numbers.bytes(length));
        } else {
            let input = inputs[numbers.below(inputs.len())];
            run(round, &changed(input, &mut numbers));
        }
    }
}

#[test]
fn every_target_has_a_test() {
    let tests = include_str!("fuzz_targets.rs");
    let without: Vec<_> =
        TARGETS.iter().filter(|(name, _)| !tests.contains(&format!("fn {name}_holds()"))).collect();
    assert!(without.is_empty(), "{without:?}");
}

#[test]
fn audit_line_holds() {
    replay("audit_line", &[br#"{"seq":1,"hash":"00","event":{"code":"SP2001","kind":"session.start"}}"#]);
}

#[test]
fn client_hello_holds() {
    replay("client_hello", &[&[22, 3, 1, 0, 47, 1, 0, 0, 43, 3, 3], &[22, 3, 1, 0, 5, 1, 0, 0, 1, 0]]);
}

#[test]
fn detect_holds() {
    replay("detect", &[b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n", &[22, 3, 1, 0, 5, 1, 0, 0, 1, 0]]);
}

#[test]
fn inspect_holds() {
    replay("inspect",
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
    replay("http_response",
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
        &[b"labels.env == \"prod\" && name startswith \"web\"", b"!(online) || search(\"x\")"],
    );
}

#[test]
fn postgres_login_holds() {
    replay(
        "postgres_login",
        &[
            b"\x00\x00\x06\x03a\0b\x07\x09",
            b"\x01\x01\x02\x02zz\x03\x00\x04\x00",
            b"\x05\x01\x02\x00\x00\x01\x0a\x05SERR\0",
            b"\x03\x0c\x02\x01a\xff\x0a\x03C0\0\x09",
        ],
    );
}

#[test]
fn postgres_message_holds() {
    replay(
        "postgres_message",
        &[
            b"Qselect 1\0",
            b"B\0s1\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x2a\0\0",
            b"Ps1\0select $1\0\0\x01\0\0\0\x17",
        ],
    );
}

#[test]
fn postgres_scram_holds() {
    replay("postgres_scram", &[b"r=abcd,s=AAAA,i=1", b"v=AAAA", b"e=invalid-proof"]);
}

#[test]
fn postgres_session_holds() {
    replay("postgres_session",
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
        &[
            b"\0\0\0\x08\x04\xd2\x16\x2f",
            b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x07abcd",
            b"\0\0\0\x3c\0\x03\0\0user\0app\0options\0-c sallyport.database=prod -c x=y\0\0",
        ],
    );
}

#[test]
fn read_private_holds() {
    replay("read_private", &[b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n", b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n-----END OPENSSH PRIVATE KEY-----\n"]);
}

#[test]
fn read_public_holds() {
    replay("read_public", &[b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBGDT0PVEKZTwqzZ6yQNkFhVYJlJPfjrHRZlHQWzgzEO x", b"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n"]);
}

#[test]
fn recording_reader_holds() {
    replay("recording_reader", &[b"\xf5CHK\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10"]);
}

#[test]
fn relay_header_holds() {
    replay(
        "relay_header",
        &[
            b"\0\x21{\"client_addr\":\"192.0.2.1:47110\"}",
            b"\0\x24{\"client_addr\":\"[2001:db8::1]:4711\"}",
            b"{\"client_addr\":\"[fe80::1%3]:1\"}",
        ],
    );
}

#[test]
fn role_yaml_holds() {
    replay("role_yaml", &[b"kind: role\nversion: v1\nmetadata:\n  name: dev\nspec:\n  allow:\n    logins: [root]\n    node_labels:\n      '*': '*'\n  options: {max_sessions: 3}\n", b"kind: lock\nversion: v1\nmetadata:\n  name: x\nspec:\n  target: {user: alice}\n"]);
}

#[test]
fn sftp_client_holds() {
    replay_rounds(
        "sftp_client",
        &[
            // A file, a tree with links and odd names, and one that goes on past its end.
            b"\x10\x01\x00\x05\x10\x00\x04\x00\x02hh\x00\x00\xb0\x00\x00\x00",
            b"\x23\x00\x01\x00\x00\x04\x02\x1d\x00\x02dd\x00\x03\x02\x04\x00\x00\x03\x04\x04\x07\x06\x00\xb0\x00",
            b"\x07\x01\x00\x04\x00\x18\x00\x01h\x00\x02\x00\x04\x04\x00\x04\x04\x04\x00\xb0\x00\x00\x01\x00",
            // A directory with a file and a link, which is kept.
            b"\x25\x01\x00\x04\x02\x1d\x00\x01\x68\x00\x02\x00\x04\x04\x00\x01\x04\x00\x04\xb0\x00\x00\x00\x00\x01\x68\x00\x02\xb0\x00\x00\x00\x00\x01\x07\x04\x00\x00\x00\x00",
            // To the server.
            b"\xc1\x01\x00\x04\x02\x1d\x00\x00\x00\x01h\x00\x00\x00",
        ],
        FEW_ROUNDS,
    );
}

#[test]
fn sftp_observer_holds() {
    replay(
        "sftp_observer",
        &[b"\0\0\0\x05\x01\0\0\0\x03", b"\0\0\0\x11\x03\0\0\0\x01\0\0\0\x04/tmp\0\0\0\x01\0\0\0\0"],
    );
}

#[test]
fn ssh_certificate_holds() {
    replay("ssh_certificate", &[b"\0\0\0\x20ssh-ed25519-cert-v01@openssh.com\0\0\0\x04nnnn\0\0\0\x20kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x05alice"]);
}

#[test]
fn ssh_client_holds() {
    replay_rounds(
        "ssh_client",
        &[
            // Output and an exit status; channels that the server opens; keys renewed; a login that is refused.
            b"\x00\x06\x00\x00\x00\x02hi\x0b\x00\x03\x00\x04\x00\x05\x00",
            b"\x08\x08\x01\x05\x01\x01\x01a\x00\x08\x02\x06\x01\x01\x00\x0e\x02ab\x01\x0d\x00\x01x\x01",
            b"\x02\xf0\x01\x00\x20\xf8\x03\x00\xff\xdd\x5e\x00\x00\x00",
            b"\x85\x13\x01x\x0f\x02\x1b\n\x10\x03a,b\x01",
        ],
        FEW_ROUNDS,
    );
}

#[test]
fn ssh_host_key_holds() {
    replay("ssh_host_key",
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
    replay("ip_packet", &[&syn, &datagram]);
}

#[test]
fn ssh_login_holds() {
    // The first byte is where the second half begins, and the size of the parts: a greeting, one with half a proposal, a key.
    replay_rounds(
        "ssh_login",
        &[
            b"\x07SSH-2.0-x\r\n",
            b"\x20SSH-2.0-x\r\n\0\0\0\x1c\x06\x14cookiecookiecook\0\0\0\x04none\0\0\0",
            b"\x0bssh-ed25519\0\0\0\x0bssh-ed25519\0\0\0\x20aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        ],
        FEW_ROUNDS,
    );
}

#[test]
fn ssh_offer_holds() {
    replay(
        "ssh_offer",
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
    replay("ssh_pipelined", &seeds);
}

#[test]
fn stream_header_holds() {
    replay(
        "stream_header",
        &[
            br#"{"kind":"ssh","client_addr":"192.0.2.1:7","user":"alice","ssh_alone":true}"#,
            br#"{"kind":"openssh","client_addr":"[::1]:7","user":"alice","server":{"node":"01a1fcd0-285f-75c5-bfa8-264bbd1d2bdd","login":"deploy","proof":{"ssh":"ssh-ed25519-cert-v01@openssh.com AAAA"}}}"#,
            br#"{"kind":"postgres","client_addr":"192.0.2.1:7","user":"alice","postgres":{"database":"orders","proof":{"tls":"MIIB"},"opened":"AAEC","cancel":"0000000711223344","end_to_end":true}}"#,
            br#"{"version":2,"kind":"telnet","user":"alice"}"#,
        ],
    );
}

#[test]
fn tls_answer_holds() {
    replay(
        "tls_answer",
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
fn webauthn_holds() {
    replay(
        "webauthn",
        &[
            b"\0{\"id\":\"AQ\",\"rawId\":\"AQ\",\"type\":\"public-key\",\"response\":{\"clientDataJSON\":\"e30\",\"authenticatorData\":\"AA\",\"signature\":\"AA\"}}",
            b"\x01{\"type\":\"webauthn.create\",\"challenge\":\"AA\",\"origin\":\"https://example.org\",\"crossOrigin\":false}",
            b"\x02\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x41\x00",
            b"\x03\xa2\x63alg\x26\x63sig\x41\x000000000000000000\x00\x01\x01\xa1\x01\x02",
            b"\x05\xa1\x6bcredProtect\x02",
            b"\x07{\"entries\":[{\"aaguid\":\"00000000-0000-0000-0000-000000000001\",\"metadataStatement\":{\"attestationRootCertificates\":[\"MAA=\"]}}]}",
            b"\x07https://example.org:8443",
        ],
    );
}

#[test]
fn x509_certificate_holds() {
    replay("x509_certificate", &[b"\x30\x82\x01\x00\x30\x81\xb3\xa0\x03\x02\x01\x02\x02\x01\x01"]);
}

#[test]
fn invite_link_holds() {
    replay("invite_link", &[b"https://proxy.example:443/invite/abc123#sha256:00ff,sha256:11ee"]);
}

#[test]
fn document_yaml_holds() {
    replay(
        "document_yaml",
        &[
            b"kind: db\nversion: v1\nmetadata:\n  name: app\n  labels: {env: prod}\nspec:\n  address: db.example:5432\n",
            b"kind: session_policy\nversion: v1\nspec:\n  early_data: false\n",
        ],
    );
}

#[test]
fn event_json_holds() {
    replay(
        "event_json",
        &[
            br#"{"id":"01890f6e-6f1a-7cc0-98b6-d4b5a3a5f6d2","time":"2026-01-01T00:00:00Z","code":"SP2001I","severity":"info"}"#,
            b"12 0000000000000000000000000000000000000000000000000000000000000000 1767225600 AAAA",
        ],
    );
}

#[test]
fn oidc_holds() {
    replay(
        "oidc",
        &[
            b"\0eyJhbGciOiJub25lIn0.eyJpc3MiOiJ4In0.",
            b"\x01{\"alg\":\"ES256\",\"kid\":\"KID\"}\n{\"iss\":\"https://example.org\",\"exp\":60}\nsig",
            b"\x02{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"a\",\"x\":\"GYT5c5LqtyjHgdT1gSjh-ZBmnRIaKtxkRVr9a3oVT2A\"}]}",
            b"\x03{\"issuer\":\"https://example.org\",\"authorization_endpoint\":\"https://a\",\"token_endpoint\":\"https://a\",\"jwks_uri\":\"https://a\",\"response_types_supported\":[\"code\"],\"id_token_signing_alg_values_supported\":[\"RS256\"]}",
            b"\x04{\"roles\":[{\"claim\":\"a.b\",\"value\":\"x*\",\"roles\":[\"{{claims.c}}\"]}],\"traits\":{\"t\":[\"{{claims.g}}\"]}}\n{\"a\":[{\"b\":\"xy\"}],\"c\":1,\"_claim_names\":{\"g\":\"s\"}}",
            b"\x05claims[\"a b\"].c-{{claims.groups}}",
        ],
    );
}

#[test]
fn scim_holds() {
    replay(
        "scim",
        &[
            br#"\0userName eq "a" and (emails[type eq "work" and not (value co "@")] or active eq true)"#,
            b"\0urn:ietf:params:scim:schemas:core:2.0:User:name.familyName sw \"\\u0041\" or not(title pr)",
            br#"\x01{"op":"Replace","path":"emails[type eq \"work\"].value","value":"n@x"}"#,
            br#"\x01{"op":"add","value":{"emails":[{"value":"a","primary":true}],"name.givenName":"A","active":"False"}},{"op":"remove","path":"name"}"#,
            br#"\x02{"op":"Remove","path":"members","value":[{"value":"00000001"}]}"#,
            br#"\x03"userName":"b","emails":[{"value":"x","type":"work"}],"urn:ietf:params:scim:schemas:extension:enterprise:2.0:User":{"manager":"7"}"#,
            b"\x04GET /Users/00000001?attributes=name.givenName",
            b"\x04GET /Groups?filter=members%20eq%20%2200000001%22&sortBy=displayName&count=1",
            b"\x05{\"schemas\":[\"urn:ietf:params:scim:api:messages:2.0:SearchRequest\"],\"filter\":\"displayName pr\",\"count\":2}",
        ],
    );
}

#[test]
fn playback_holds() {
    replay(
        "playback",
        &[
            br#"{"at_us":0,"type":"output","data":"hello\r\n"}"#,
            b"{\"at_us\":5,\"type\":\"resize\",\"data\":{\"cols\":80,\"rows\":24}}\n{\"at_us\":9,\"type\":\"exec\",\"data\":{\"command\":\"id\"}}",
        ],
    );
}

#[test]
fn ssh_server_holds() {
    replay_rounds(
        "ssh_server",
        &[
            // A user who is in: a node that gives back what it hears, one that talks; a shell; keys renewed; a forwarding that is asked for.
            b"\x00\x0d\x01\x08\x08\x00\x16\x00\x00\x00\x05hello\x03\x00\xf7\x04\x00\x05\x00",
            b"\x04\x0d\x01\xff\xff\x01\x16\x00\x03\x00\xff\xf0\x05\x00",
            b"\x01\x0b\x01\x08\x08\x00\x00\x00\x0f\x00\x03\x01\x05xterm\x10\x0f\x00\x00\x01\x00\x00",
            b"\x02\xf0\x11\x00\x01\x09127.0.0.1\x16\xf0\xdc\xdd\x50\x00\x00\x00",
            // One who is not: the service, a key that is asked about, a forged signature, the second factor.
            b"\x80\x12\x00\x13\x00\x00\x0a\x00\x13\x00\x00\x30\x00\x05\x15\x00\x00\x01\x00\x00\x00",
            b"\x80\x12\x00\x13\x01\x00\x00\x00\x16\x17\x01\x01\x17\x01\x00\x0b\x00\x01\x01\x01",
        ],
        FEW_ROUNDS,
    );
}
