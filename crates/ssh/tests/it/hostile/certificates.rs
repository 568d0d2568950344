//! Certificates that are wrong in every way there is: none opens anything, and none does harm.

use std::sync::Arc;

use sallyport_audit::Code;
use sallyport_ca::keys::{ssh_public_key, ssh_signature};
use sallyport_sal::Signer;
use sallyport_sal::custody::{Custody, SealedCustody, SealingKey};

use crate::hostile::face::{Face, LOGIN_TIMEOUT, Target};
use crate::hostile::raw::{Packet, Raw, message, take_string};
use crate::hostile::{Alice, blob};
use crate::world::World;

/// The fields of an Ed25519 certificate (PROTOCOL.certkeys), to be changed one by one.
#[derive(Clone)]
pub(super) struct Fields {
    algorithm: Vec<u8>,
    nonce: Vec<u8>,
    key: Vec<u8>,
    /// Of a security key's certificate alone.
    application: Option<Vec<u8>>,
    serial: [u8; 8],
    kind: u32,
    id: Vec<u8>,
    principals: Vec<u8>,
    after: u64,
    before: u64,
    pub(super) critical: Vec<u8>,
    pub(super) extensions: Vec<u8>,
    reserved: Vec<u8>,
    issuer: Vec<u8>,
}

fn fixed<const N: usize>(from: &mut &[u8]) -> [u8; N] {
    let (value, rest) = from.split_at(N);
    *from = rest;
    value.try_into().unwrap()
}

impl Fields {
    pub(super) fn of(blob: &[u8]) -> Self {
        let mut rest = blob;
        let rest = &mut rest;
        let algorithm = take_string(rest).to_vec();
        let is_security_keys = algorithm.starts_with(b"sk-");
        Self {
            algorithm,
            nonce: take_string(rest).to_vec(),
            key: take_string(rest).to_vec(),
            application: is_security_keys.then(|| take_string(rest).to_vec()),
            serial: fixed(rest),
            kind: u32::from_be_bytes(fixed(rest)),
            id: take_string(rest).to_vec(),
            principals: take_string(rest).to_vec(),
            after: u64::from_be_bytes(fixed(rest)),
            before: u64::from_be_bytes(fixed(rest)),
            critical: take_string(rest).to_vec(),
            extensions: take_string(rest).to_vec(),
            reserved: take_string(rest).to_vec(),
            issuer: take_string(rest).to_vec(),
        }
    }

    fn body(&self) -> Vec<u8> {
        let begun = Packet(Vec::new()).string(&self.algorithm).string(&self.nonce).string(&self.key);
        let keyed = match &self.application {
            Some(application) => begun.string(application),
            None => begun,
        };
        keyed
            .raw(&self.serial)
            .number(self.kind)
            .string(&self.id)
            .string(&self.principals)
            .raw(&self.after.to_be_bytes())
            .raw(&self.before.to_be_bytes())
            .string(&self.critical)
            .string(&self.extensions)
            .string(&self.reserved)
            .string(&self.issuer)
            .0
    }

    pub(super) fn signed(&self, by: &dyn Signer) -> Vec<u8> {
        let body = self.body();
        let signature = ssh_signature(by, &body).unwrap();
        Packet(body).string(signature).0
    }
}

/// Names in a string each, in one string.
fn list(names: &[&[u8]]) -> Vec<u8> {
    names.iter().fold(Packet(Vec::new()), |packet, name| packet.string(name)).0
}

/// Whether a server lets this in. A connection that is cut has not.
fn opens(target: &Target, alice: &Alice, certificate: &[u8]) -> bool {
    let mut raw = Raw::keyed(target.address).unwrap();
    raw.service().unwrap();
    raw.authenticate(&target.world.own.name, &alice.key, certificate)
        .is_ok_and(|answer| answer == message::USERAUTH_SUCCESS)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_malformed_certificate_opens_a_node() {
    no_malformed_certificate_opens(Face::Node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_malformed_certificate_opens_the_proxy() {
    no_malformed_certificate_opens(Face::Proxy).await;
}

async fn no_malformed_certificate_opens(face: Face) {
    let target = Target::new(face, LOGIN_TIMEOUT).await;
    let world = &target.world;
    let alice = Alice::new(world);
    let signer = user_signer(world);
    let good = Fields::of(&alice.certificate);
    let now = u64::try_from(time::OffsetDateTime::now_utc().unix_timestamp()).unwrap();
    let change = |how: &dyn Fn(&mut Fields)| {
        let mut fields = good.clone();
        how(&mut fields);
        fields.signed(signer.as_ref())
    };
    let many: Vec<Vec<u8>> = (0..20_000).map(|number| format!("login{number}").into_bytes()).collect();
    let many: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
    let other_key = Alice::new(world);

    let mut table: Vec<(String, Vec<u8>)> = [
        ("a host's", change(&|fields| fields.kind = 2)),
        ("of no kind", change(&|fields| fields.kind = 0)),
        ("of an unknown kind", change(&|fields| fields.kind = 3)),
        ("expired", change(&|fields| (fields.after, fields.before) = (now - 7200, now - 3600))),
        ("not yet valid", change(&|fields| (fields.after, fields.before) = (now + 3600, now + 7200))),
        ("valid never", change(&|fields| (fields.after, fields.before) = (now + 60, now - 60))),
        ("with no principals", change(&|fields| fields.principals = Vec::new())),
        ("with an empty principal", change(&|fields| fields.principals = list(&[b""]))),
        ("with a principal that is cut", change(&|fields| fields.principals = vec![0, 0, 1, 0, b'a'])),
        ("with a principal that is no text", change(&|fields| fields.principals = list(&[b"\xff\xfe"]))),
        (
            "with a critical option that we do not know",
            change(&|fields| fields.critical = list(&[b"be-nice@example.com", b""])),
        ),
        (
            "with force-command",
            change(&|fields| fields.critical = list(&[b"force-command", b"\0\0\0\x02id"])),
        ),
        (
            "with source-address alone, even the client's own",
            change(&|fields| fields.critical = list(&[b"source-address", b"\0\0\0\x0c127.0.0.1/32"])),
        ),
        ("with critical options that are cut", change(&|fields| fields.critical = vec![0, 0, 0, 9, b'x'])),
        ("without extensions, and so without roles", change(&|fields| fields.extensions = Vec::new())),
        (
            "with an extension twice",
            change(&|fields| {
                fields.extensions = [fields.extensions.clone(), fields.extensions.clone()].concat()
            }),
        ),
        ("with a name that is no user's", change(&|fields| fields.id = b"../alice".to_vec())),
        ("without a name", change(&|fields| fields.id = Vec::new())),
        ("with a name of 100 KB", change(&|fields| fields.id = vec![b'a'; 100_000])),
        ("with a key that is too short", change(&|fields| fields.key = vec![1; 31])),
        ("with a key that is too long", change(&|fields| fields.key = vec![1; 33])),
        ("without a key", change(&|fields| fields.key = Vec::new())),
        ("over another's key", change(&|fields| fields.key = Fields::of(&other_key.certificate).key)),
        (
            "of another algorithm",
            change(&|fields| fields.algorithm = b"ssh-rsa-cert-v01@openssh.com".to_vec()),
        ),
        ("of no algorithm", change(&|fields| fields.algorithm = Vec::new())),
        ("that names itself the issuer", change(&|fields| fields.issuer = blob(alice.key.public_line()))),
        ("without an issuer", change(&|fields| fields.issuer = Vec::new())),
        ("with the plain key", blob(alice.key.public_line())),
        ("that is empty", Vec::new()),
        ("by a stranger's authority", good.signed(&stranger())),
        ("signed by its own key", good.signed(alice.key.signer().as_ref())),
        ("without a signature", good.body()),
        ("with an empty signature", Packet(good.body()).string("").0),
        (
            "with a signature of another scheme",
            Packet(good.body()).string(Packet(Vec::new()).string("ssh-rsa").string([0; 64]).0).0,
        ),
        ("that is 200 KB of zeros", vec![0; 200_000]),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into();
    // Every prefix of a good one, and every byte of it changed.
    for at in (0..alice.certificate.len()).step_by(9) {
        table.push((format!("cut at {at}"), alice.certificate[..at].to_vec()));
        let mut changed = alice.certificate.clone();
        changed[at] ^= 0x41;
        table.push((format!("changed at {at}"), changed));
    }
    for (name, certificate) in &table {
        assert!(!opens(&target, &alice, certificate), "a certificate {name} was let in");
    }
    assert!(world.events(&Code::SessionStart).is_empty());

    // Unusual, and right: a nonce of any length, a name for every login there could be, extensions of others.
    for (name, certificate) in [
        ("as it is", alice.certificate.clone()),
        ("with an empty nonce", change(&|fields| fields.nonce = Vec::new())),
        ("with a long nonce", change(&|fields| fields.nonce = vec![7; 4096])),
        ("with something reserved", change(&|fields| fields.reserved = b"later".to_vec())),
    ] {
        assert!(opens(&target, &alice, &certificate), "a certificate {name} was refused");
    }
    // What is signed is whole, and what comes after it would not be read: refused, as by OpenSSH.
    let more = [alice.certificate.clone(), vec![0]].concat();
    assert!(!opens(&target, &alice, &more));
    // Huge: refused or served, but other clients do not notice.
    let huge = change(&|fields| fields.principals = list(&many));
    let _ = opens(&target, &alice, &huge);
    assert!(opens(&target, &alice, &alice.certificate));
}

/// What the user authority signs with.
pub(super) fn user_signer(world: &World) -> Arc<dyn Signer> {
    let custody = SealedCustody::new(Arc::new(SealingKey::open(&world.path("sealing.key")).unwrap()));
    let line = blob(world.user_ca.ssh().unwrap().public_line());
    let is_ours = |signer: &Arc<dyn Signer>| {
        ssh_public_key(&signer.public_key())
            .is_ok_and(|key| ssh_key::PublicKey::from(key).to_bytes().unwrap() == line)
    };
    world.user_ca.record().keys().map(|key| custody.load(key).unwrap()).find(is_ours).unwrap()
}

/// A key that the cluster does not know; the certificate's issuer still names the real authority.
fn stranger() -> impl Signer {
    sallyport_sal::MemoryKey::generate(sallyport_sal::KeyAlgorithm::Ed25519).unwrap()
}
