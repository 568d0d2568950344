//! Logins by security keys, at the node and at the proxy: a key that signs without its holder's touch opens neither, as sshd has it
//! (`user_pubkey` of OpenSSH's auth2-pubkey.c). The keys are in software: they say of themselves what the test wants.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::BASE64;
use sallyport_audit::Code;
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer, hash};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;

use crate::hostile::blob;
use crate::hostile::certificates::{Fields, user_signer};
use crate::hostile::face::{Face, LOGIN_TIMEOUT, Target};
use crate::hostile::raw::{Packet, Raw, message, take_string};
use crate::world::{World, ok, output, text};

const KEY: &str = "sk-ssh-ed25519@openssh.com";
const CERTIFICATE: &str = "sk-ssh-ed25519-cert-v01@openssh.com";
/// What OpenSSH names where its user names no other.
const APPLICATION: &str = "ssh:";

/// What the key says of a signature (PROTOCOL.u2f).
const SILENT: u8 = 0;
const TOUCHED: u8 = 0x01;
const VERIFIED: u8 = 0x04;

/// How many signatures the key has made, as it says.
const COUNTER: [u8; 4] = [0, 0, 0, 9];

/// A security key of alice's, with a certificate of the cluster.
struct SecurityKey {
    key: MemoryKey,
    certificate: Vec<u8>,
}

impl SecurityKey {
    fn new(world: &World) -> Self {
        let key = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap();
        let public = Packet(Vec::new()).string(KEY).string(key.public_key().raw()).string(APPLICATION).0;
        let line = format!("{KEY} {} alice", BASE64.encode(&public));
        let certificate = blob(&world.certify(&world.card("alice"), &line));
        Self { key, certificate }
    }

    /// A signature with these flags.
    fn signature(&self, flags: u8, message: &[u8]) -> Vec<u8> {
        let said = [&[flags][..], &COUNTER].concat();
        let signed = [&hash::sha256(APPLICATION.as_bytes())[..], &said, &hash::sha256(message)[..]].concat();
        Packet(Vec::new()).string(KEY).string(self.key.sign(&signed).unwrap()).raw(&said).0
    }

    /// What a server answers to a login.
    fn logs_in(&self, raw: &mut Raw, login: &str, certificate: &[u8], flags: u8) -> u8 {
        raw.prove(login, CERTIFICATE, certificate, |message| self.signature(flags, message)).unwrap()
    }

    /// Its certificate, changed and signed anew by the cluster's authority.
    fn certified(&self, world: &World, change: impl FnOnce(&mut Fields)) -> Vec<u8> {
        let mut fields = Fields::of(&self.certificate);
        change(&mut fields);
        fields.signed(user_signer(world).as_ref())
    }
}

/// One option or extension more, which has no value. They stand in the order of their names (PROTOCOL.certkeys).
fn with_flag(options: &[u8], name: &str) -> Vec<u8> {
    let mut all = BTreeMap::from([(name.as_bytes().to_vec(), Vec::new())]);
    let mut rest = options;
    while !rest.is_empty() {
        let (name, value) = (take_string(&mut rest).to_vec(), take_string(&mut rest).to_vec());
        all.insert(name, value);
    }
    all.iter().fold(Packet(Vec::new()), |packet, (name, value)| packet.string(name).string(value)).0
}

fn asking(target: &Target) -> Raw {
    let mut raw = Raw::keyed(target.address).unwrap();
    raw.service().unwrap();
    raw
}

/// Why the node refused last.
fn reason(world: &World) -> String {
    world.events(&Code::SessionRefused).pop().expect("a refusal is on record").message
}

#[tokio::test(flavor = "multi_thread")]
async fn a_security_key_opens_a_node_by_what_it_did() {
    a_security_key_opens(Face::Node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_security_key_opens_the_proxy_by_what_it_did() {
    a_security_key_opens(Face::Proxy).await;
}

async fn a_security_key_opens(face: Face) {
    let target = Target::new(face, LOGIN_TIMEOUT).await;
    let (world, login) = (&target.world, &target.world.own.name);
    let security_key = SecurityKey::new(world);
    let usual = security_key.certificate.clone();
    let extended = |name: &str| {
        security_key.certified(world, |fields| fields.extensions = with_flag(&fields.extensions, name))
    };
    let (untouched, verified) = (extended("no-touch-required"), extended("verify-required"));
    // As OpenSSH writes it. No authority of ours does, and our servers refuse critical options that their cluster does not write.
    let critical = security_key.certified(world, |fields| {
        fields.critical = with_flag(&fields.critical, "verify-required");
    });
    let (not_touched, not_verified) = ("without being touched", "without verifying its holder");
    for (certificate, flags, refused) in [
        (&usual, TOUCHED, None),
        (&usual, TOUCHED | VERIFIED, None),
        (&usual, SILENT, Some(not_touched)),
        (&usual, VERIFIED, Some(not_touched)),
        (&untouched, SILENT, None),
        (&untouched, TOUCHED, None),
        (&verified, TOUCHED, Some(not_verified)),
        (&verified, VERIFIED, Some(not_touched)),
        (&verified, TOUCHED | VERIFIED, None),
        (&critical, TOUCHED, Some(not_verified)),
        (&critical, TOUCHED | VERIFIED, Some("the critical option \"verify-required\"")),
    ] {
        let mut raw = asking(&target);
        let asked = raw.would_do(login, CERTIFICATE, certificate).unwrap();
        assert_eq!(asked, message::USERAUTH_PK_OK, "{flags} {refused:?}");
        let before = world.events(&Code::SessionRefused).len();
        let answer = security_key.logs_in(&mut raw, login, certificate, flags);
        let expected = if refused.is_none() { message::USERAUTH_SUCCESS } else { message::USERAUTH_FAILURE };
        assert_eq!(answer, expected, "{flags} {refused:?}");
        if let (Face::Node, Some(why)) = (face, refused) {
            let told = reason(world);
            assert!(told.contains(why), "{flags}: {told}");
            assert_eq!(world.events(&Code::SessionRefused).len(), before + 1, "{flags}: told once");
        }
    }
    // The flags are signed: what the key did not do, the client cannot write in.
    let mut raw = asking(&target);
    let forged = raw.prove(login, CERTIFICATE, &usual, |message| {
        let mut signature = security_key.signature(SILENT, message);
        let flags = signature.len() - COUNTER.len() - 1;
        signature[flags] = TOUCHED;
        signature
    });
    assert_eq!(forged.unwrap(), message::USERAUTH_FAILURE);
}

/// An SSH agent that holds alice's security key, which says this of each signature.
fn agent(path: PathBuf, security_key: Arc<SecurityKey>, flags: u8) {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let security_key = security_key.clone();
            // A client that goes away ends it.
            tokio::spawn(async move { serve(stream, &security_key, flags).await });
        }
    });
}

/// As draft-ietf-sshm-ssh-agent has it.
async fn serve(mut stream: UnixStream, security_key: &SecurityKey, flags: u8) -> std::io::Result<()> {
    const FAILURE: u8 = 5;
    const REQUEST_IDENTITIES: u8 = 11;
    const IDENTITIES_ANSWER: u8 = 12;
    const SIGN_REQUEST: u8 = 13;
    const SIGN_RESPONSE: u8 = 14;
    loop {
        let mut request = vec![0_u8; stream.read_u32().await? as usize];
        stream.read_exact(&mut request).await?;
        let answer = match request[0] {
            REQUEST_IDENTITIES => {
                Packet::new(IDENTITIES_ANSWER).number(1).string(&security_key.certificate).string("alice")
            }
            SIGN_REQUEST => {
                let mut rest = &request[1..];
                let (_key, message) = (take_string(&mut rest), take_string(&mut rest));
                Packet::new(SIGN_RESPONSE).string(security_key.signature(flags, message))
            }
            _ => Packet::new(FAILURE),
        };
        stream.write_all(&Packet(Vec::new()).string(answer.0).0).await?;
    }
}

/// `ssh` with what the agent holds and nothing else: to the node, through the proxy where that is what is entered.
fn ssh(target: &Target, agent: &Path) -> Command {
    let world = &target.world;
    let mut options: Vec<String> = world.options("none");
    options.retain(|option| !option.starts_with("-oIdentit"));
    options.push(format!("-oIdentityAgent={}", agent.display()));
    options.push("-oIdentityFile=none".to_owned());
    let mut command = Command::new("ssh");
    if target.face == Face::Proxy {
        // The host certificate that the world can issue besides the node's is for this name.
        let first = options.join(" ").replace("HostKeyAlias=web-1", "HostKeyAlias=web-2");
        let port = target.address.port();
        command.arg(format!("-oProxyCommand=ssh {first} -p {port} -W web-1:22 jump@127.0.0.1"));
    }
    command.args(options).arg("-p").arg(world.address.port().to_string()).arg(world.destination());
    command.arg("echo in").env_remove("SSH_AUTH_SOCK").kill_on_drop(true);
    command.stdin(std::process::Stdio::null());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn stock_ssh_enters_with_a_security_key_that_was_touched() {
    for (face, flags, is_in) in [
        (Face::Node, TOUCHED, true),
        (Face::Node, SILENT, false),
        (Face::Proxy, TOUCHED, true),
        (Face::Proxy, SILENT, false),
    ] {
        let target = Target::new(face, LOGIN_TIMEOUT).await;
        let path = target.world.path("agent");
        agent(path.clone(), Arc::new(SecurityKey::new(&target.world)), flags);
        let ran = output(ssh(&target, &path)).await;
        if is_in {
            assert_eq!(ok(&ran), "in\n", "{face:?}");
        } else {
            let told = text(&ran.stderr);
            assert_eq!(ran.status.code(), Some(255), "{face:?}: {told}");
            assert!(told.contains("Permission denied (publickey)"), "{face:?}: {told}");
        }
    }
}
