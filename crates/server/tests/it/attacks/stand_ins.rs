//! Certificates and names that would stand in for others: signed by who is no authority, of the other kind, or spelled
//! so that a reader takes them for another.

use std::process::Command;

use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::Suite;
use sallyport_ssh::client::{Credentials, connect};
use sallyport_wire::alpn;
use sallyport_wire::v1;
use sallyport_wire::v1::certificates_client::CertificatesClient;
use sallyport_wire::v1::cluster_client::ClusterClient;
use tonic::Code;

use super::people::{account, finish, join_request, joined, role, stranger};
use crate::support::{self, Cluster, PASSWORD, User, admin_channel, os_login, pinned};

/// Whether the node lets these credentials in, on a stream that alice opened.
async fn enters(alice: &User, login: &str, key: &str, certificate: &str) -> bool {
    let Ok(credentials) = Credentials::from_openssh(key, certificate) else { return false };
    let stream = alice.open("web-1", login).await.unwrap();
    connect(stream, &credentials, alice.settings("web-1", login)).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_signed_by_an_authority_and_of_its_kind() {
    let cluster = Cluster::all_in_one().await;
    let login = os_login();
    let alice = cluster.user("alice", &[&login]).await;
    let directory = tempfile::tempdir().unwrap();
    let key = alice.write_keys(directory.path());
    let own = std::fs::read_to_string(&key).unwrap();
    assert!(enters(&alice, &login, &own, &alice.ssh_certificate).await);

    // Signed by a key that an authority has certified, for the same principal.
    let mallory = directory.path().join("mallory");
    let run = |arguments: &[&str]| {
        let output = Command::new("ssh-keygen").args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    run(&["-q", "-t", "ed25519", "-N", "", "-f", mallory.to_str().unwrap()]);
    let public = format!("{}.pub", mallory.display());
    run(&["-q", "-s", key.to_str().unwrap(), "-I", "root", "-n", &login, &public]);
    let forged = std::fs::read_to_string(directory.path().join("mallory-cert.pub")).unwrap();
    let mallorys = std::fs::read_to_string(&mallory).unwrap();
    assert!(!enters(&alice, &login, &mallorys, &forged).await);

    // The same with the certificate of the key in the authority's place, and with the authority's key wrapped.
    let authority = alice.trust.to_bundle().user_ssh_keys[0].clone();
    for signer in [blob(&alice.ssh_certificate), wrapped(&blob(&authority)), blob(&authority)] {
        assert!(!enters(&alice, &login, &mallorys, &with_signer(&forged, &signer)).await);
    }

    // A host's certificate names the login's own machine, and is no user's.
    let host = joined(&cluster, "web-2").await;
    let private = host.ssh.private_openssh().to_string();
    assert!(!enters(&alice, &login, &private, &host.ssh_certificate).await);
    let pair = Some((host.chain.as_str(), host.tls_key.as_str()));
    let config = sallyport_ca::tls::client_config(&host.trust, pair, &[alpn::H2]).unwrap();
    let opened = match alice.connect_by(config).await {
        Ok(channel) => {
            support::open(channel, "web-1", &login).await.map(drop).map_err(|status| status.code())
        }
        Err(_) => Err(Code::Unauthenticated),
    };
    assert!(
        matches!(opened, Err(Code::Unauthenticated | Code::PermissionDenied | Code::Unavailable)),
        "{opened:?}"
    );
    let nodes = ClusterClient::new(host.channel).list_nodes(v1::ListNodesRequest::default()).await;
    assert_eq!(nodes.unwrap_err().code(), Code::PermissionDenied);
    // And a user's is no host's.
    let user = alice.authority().await;
    let mut fleet = sallyport_wire::v1::fleet_client::FleetClient::new(user);
    let beat = fleet.heartbeat(v1::HeartbeatRequest::default()).await;
    assert_eq!(beat.unwrap_err().code(), Code::PermissionDenied);
}

fn base64() -> data_encoding::Encoding {
    data_encoding::BASE64
}

/// The bytes of a key or certificate line.
fn blob(line: &str) -> Vec<u8> {
    base64().decode(line.split(' ').nth(1).unwrap().trim().as_bytes()).unwrap()
}

/// A key of an unknown type, around another.
fn wrapped(inner: &[u8]) -> Vec<u8> {
    let mut outer = Vec::new();
    put(&mut outer, b"wrapped@example.com");
    put(&mut outer, inner);
    outer
}

fn put(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
    to.extend(bytes);
}

/// A certificate with another signer's key; the signature stays, as the thief cannot make another.
fn with_signer(line: &str, signer: &[u8]) -> String {
    let bytes = blob(line);
    let at = |offset: usize| u32::from_be_bytes(bytes[offset..offset + 4].try_into().unwrap()) as usize;
    let skip = |offset: usize| offset + 4 + at(offset);
    // Type, nonce and key; serial and type; id and principals; the times; options, extensions and what is reserved.
    let mut offset = skip(skip(skip(0))) + 12;
    offset = skip(skip(offset)) + 16;
    offset = skip(skip(skip(offset)));
    let mut made = bytes[..offset].to_vec();
    put(&mut made, signer);
    made.extend(&bytes[skip(offset)..]);
    format!("ssh-ed25519-cert-v01@openssh.com {} forged", base64().encode(&made))
}

/// Names that are read as others somewhere.
const TWINS: [&str; 9] =
    ["deploy,root", "root\n", "root\0", "ro*t", "root ", " root", "r\u{43e}\u{43e}t", "\u{ff52}oot", ""];

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_read_as_others_are_refused_at_issue_and_at_use() {
    let cluster = Cluster::all_in_one().await;
    let everything = role("all", "{allow: {logins: ['*'], node_labels: {'*': '*'}}}");
    super::people::write(&cluster, everything).await;
    let mut admin = cluster.admin().await;
    // A trait may hold any text; what is no login is no principal.
    let twins: Vec<String> = TWINS.iter().map(|twin| (*twin).to_owned()).chain(["web".to_owned()]).collect();
    let request = v1::CreateUserRequest {
        name: "alice".to_owned(),
        roles: vec!["all".to_owned()],
        traits: [("internal.logins".to_owned(), v1::TraitValues { values: twins })].into(),
    };
    let invite = admin.create_user(request).await.unwrap().into_inner();
    stranger(&cluster).await.finish_invite(finish(&invite.token, PASSWORD)).await.unwrap();
    let alice = super::people::logged_in(&cluster, "alice").await.unwrap();
    let certificate = sallyport_ca::keys::certificate(&alice.ssh_certificate).unwrap();
    assert_eq!(certificate.valid_principals(), ["web"]);

    let (token, pin) = support::token(&mut admin, "node").await;
    let mut stranger =
        sallyport_wire::v1::login_client::LoginClient::new(pinned(&cluster.proxy(), &pin).await);
    let ssh = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
    let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
    let mut certificates = CertificatesClient::new(admin_channel(&cluster.data_dir()).await);
    for twin in TWINS {
        // At use: the proxy, whose roles allow every login, and the question why.
        if !twin.is_empty() {
            let status = alice.open("web-1", twin).await.err().unwrap();
            assert!(
                matches!(status.code(), Code::InvalidArgument | Code::PermissionDenied),
                "{twin:?}: {status:?}"
            );
        }
        // At issue: people, hosts, servers, database users.
        let user = v1::CreateUserRequest { name: twin.to_owned(), ..Default::default() };
        assert_eq!(admin.create_user(user).await.unwrap_err().code(), Code::InvalidArgument, "{twin:?}");
        let join = stranger.join(join_request(&token, "node", twin, &ssh, &tls)).await;
        assert!(join.is_err(), "{twin:?}");
        for kind in ["openssh_host", "agent_to_database", "user"] {
            // Databases have users of every script; a letter of another one is another name there.
            if kind == "agent_to_database" && ["ro*t", "r\u{43e}\u{43e}t", "\u{ff52}oot"].contains(&twin) {
                continue;
            }
            let request = v1::SignCertificateRequest {
                kind: kind.to_owned(),
                subject: twin.to_owned(),
                names: vec![twin.to_owned()],
                ssh_public_key: ssh.public_line().to_owned(),
                tls_public_key: tls.spki_der().to_vec().into(),
                ..Default::default()
            };
            let signed = certificates.sign_certificate(request).await;
            assert!(signed.is_err(), "{kind} {twin:?}: {signed:?}");
        }
    }
    let document = account("bob", &["'all,editor'"], &[]);
    assert!(
        admin.create_resource(v1::CreateResourceRequest { yaml: document, replace: true }).await.is_err()
    );
}
