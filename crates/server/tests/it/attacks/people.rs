//! What attackers of the API hold: accounts with a few rights, and hosts that have joined.

use std::collections::HashMap;

use sallyport_ca::Trust;
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::Suite;
use sallyport_wire::v1;
use sallyport_wire::v1::login_client::LoginClient;
use tonic::Status;
use tonic::transport::Channel;

use crate::support::{self, Cluster, PASSWORD, User, authority_as, log_in, pin, pinned};

/// A role as YAML, with its `spec` in one line.
pub(super) fn role(name: &str, spec: &str) -> String {
    format!("kind: role\nversion: v1\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

/// A user as YAML.
pub(super) fn account(name: &str, roles: &[&str], traits: &[(&str, &[&str])]) -> String {
    let traits: Vec<String> =
        traits.iter().map(|(name, values)| format!("{name}: [{}]", values.join(", "))).collect();
    format!(
        "kind: user\nversion: v1\nmetadata: {{name: {name}}}\nspec: {{roles: [{}], traits: {{{}}}}}\n",
        roles.join(", "),
        traits.join(", ")
    )
}

/// Writes a document as the administrator of the machine.
pub(super) async fn write(cluster: &Cluster, yaml: String) {
    let mut admin = cluster.admin().await;
    admin.create_resource(v1::CreateResourceRequest { yaml, replace: true }).await.unwrap();
}

pub(super) async fn remove(cluster: &Cluster, kind: &str, name: &str) -> Result<(), Status> {
    let request = v1::DeleteResourceRequest { kind: kind.to_owned(), name: name.to_owned() };
    cluster.admin().await.delete_resource(request).await.map(drop)
}

/// A user with these roles and traits, and the link for it.
pub(super) async fn invited(
    cluster: &Cluster,
    name: &str,
    roles: &[&str],
    traits: &[(&str, &[&str])],
) -> v1::InviteResponse {
    let values = |values: &[&str]| v1::TraitValues {
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    };
    let request = v1::CreateUserRequest {
        name: name.to_owned(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        traits: traits.iter().map(|(name, of)| ((*name).to_owned(), values(of))).collect::<HashMap<_, _>>(),
    };
    cluster.admin().await.create_user(request).await.unwrap().into_inner()
}

/// A connection to the authority without a certificate.
pub(super) async fn stranger(cluster: &Cluster) -> LoginClient<Channel> {
    let pin = pin(&mut cluster.admin().await).await;
    LoginClient::new(pinned(&cluster.proxy(), &pin).await)
}

pub(super) fn finish(token: &str, password: &str) -> v1::FinishInviteRequest {
    v1::FinishInviteRequest { token: token.to_owned(), password: password.to_owned(), otp: String::new() }
}

/// Logs in with the usual password.
pub(super) async fn logged_in(cluster: &Cluster, name: &str) -> Result<User, Status> {
    let pin = pin(&mut cluster.admin().await).await;
    log_in(&cluster.proxy(), &pin, name, None).await
}

/// A user with these roles and traits who has logged in.
pub(super) async fn person(
    cluster: &Cluster,
    name: &str,
    roles: &[&str],
    traits: &[(&str, &[&str])],
) -> User {
    let invite = invited(cluster, name, roles, traits).await;
    stranger(cluster).await.finish_invite(finish(&invite.token, PASSWORD)).await.unwrap();
    logged_in(cluster, name).await.unwrap()
}

/// A host that has joined by the API alone, with what was certified for it.
pub(super) struct Host {
    pub(super) id: String,
    pub(super) chain: String,
    pub(super) tls_key: String,
    pub(super) ssh: SshKeyPair,
    pub(super) ssh_certificate: String,
    pub(super) trust: Trust,
    pub(super) channel: Channel,
}

/// What asks to join.
pub(super) fn join_request(
    token: &str,
    role: &str,
    name: &str,
    ssh: &SshKeyPair,
    tls: &TlsKey,
) -> v1::JoinRequest {
    v1::JoinRequest {
        token: token.to_owned(),
        name: name.to_owned(),
        role: role.to_owned(),
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.spki_der().to_vec().into(),
        ..Default::default()
    }
}

pub(super) async fn joined(cluster: &Cluster, name: &str) -> Host {
    joined_as(cluster, "node", name).await
}

pub(super) async fn joined_as(cluster: &Cluster, role: &str, name: &str) -> Host {
    let (token, pin) = support::token(&mut cluster.admin().await, role).await;
    let ssh = SshKeyPair::generate(Suite::BalancedV1, name).unwrap();
    let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
    let mut login = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
    let issued = login.join(join_request(&token, role, name, &ssh, &tls)).await.unwrap().into_inner();
    let trust = cluster.running.authority().unwrap().trust();
    let (chain, tls_key) = (issued.tls_certificate_pem, tls.pkcs8_pem().to_string());
    let channel = authority_as(&cluster.proxy(), &trust, &chain, &tls_key).await;
    Host { id: issued.host_id, chain, tls_key, ssh, ssh_certificate: issued.ssh_certificate, trust, channel }
}
