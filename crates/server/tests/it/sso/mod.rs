//! Single sign-on by a certified provider, panva's oidc-provider: the test is the proxy that serves the page, and the browser at it.

mod dex;
mod factors;
mod hubs;
mod keycloak;
mod linked;
mod logins;
mod provider;
mod provisioned;
mod refreshed;
mod ruled;

use std::collections::BTreeMap;

use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::{Suite, hash};
use sallyport_wire::v1;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::v1::sso_client::SsoClient;
use sallyport_wire::v1::web_client::WebClient;
use tonic::Status;
use tonic::transport::Channel;

use self::provider::{Browser, Provider, REDIRECT};
use crate::support::{self, Cluster, User, admin_channel, authority_as, pinned};

/// Where browsers are.
const ADDRESS: &str = "198.51.100.7";
const PORT: u32 = 45_678;

/// A query or a form, decoded.
fn members(text: &str) -> BTreeMap<String, String> {
    let decoded = |text: &str| {
        let (mut bytes, mut rest) = (Vec::new(), text.bytes());
        while let Some(byte) = rest.next() {
            match byte {
                b'%' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
                }
                b'+' => bytes.push(b' '),
                other => bytes.push(other),
            }
        }
        String::from_utf8(bytes).unwrap()
    };
    let pairs = text.split('&').filter_map(|one| one.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

/// The document of a connector to a provider.
fn document(name: &str, provider: &Provider, more: &str) -> String {
    match more.contains("private_key_jwt") {
        true => document_at(name, &provider.issuer, more),
        false => {
            let proof = format!("  client_secret_file: {}\n{more}", provider.secret().display());
            document_at(name, &provider.issuer, &proof)
        }
    }
}

fn document_at(name: &str, issuer: &str, more: &str) -> String {
    format!(
        "kind: oidc\nversion: v1\nmetadata: {{name: {name}}}\nspec:\n  title: The {name}\n  issuer: {issuer}\n  client_id: sallyport\n  \
         insecure_loopback: true\n  scopes: [openid, profile, groups]\n  redirect_urls: ['{}']\n  \
         provider_checks_second_factor: true\n  mapping:\n    roles:\n      - {{claim: groups, value: 'ops-*', roles: [access]}}\n      \
         - {{claim: groups, value: everyone, roles: [auditor]}}\n    traits: {{logins: ['{{{{claims.preferred_username}}}}']}}\n{more}",
        REDIRECT.replace("/corp", &format!("/{name}"))
    )
}

/// What stands at the pages of a cluster.
struct Pages<'c> {
    cluster: &'c Cluster,
    pin: String,
    /// The proxy's way to the authority.
    proxy: Channel,
    web: WebClient<Channel>,
    /// What terminals show, by the id of the login.
    codes: parking_lot::Mutex<BTreeMap<String, String>>,
}

/// A login that a program has begun.
struct Begun {
    id: String,
    ssh: SshKeyPair,
    tls: TlsKey,
}

/// A login that is at the provider.
struct Away {
    url: String,
    binding: String,
}

const VERIFIER: &str = "a-verifier-of-forty-three-characters-or-more";

async fn joined_proxy(cluster: &Cluster) -> Channel {
    let (token, pin) = support::token(&mut cluster.admin().await, "proxy").await;
    let ssh = SshKeyPair::generate(Suite::BalancedV1, "pages").unwrap();
    let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
    let request = v1::JoinRequest {
        token,
        name: "sso-pages".to_owned(),
        role: "proxy".to_owned(),
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.spki_der().to_vec().into(),
        ..Default::default()
    };
    let issued =
        LoginClient::new(pinned(&cluster.proxy(), &pin).await).join(request).await.unwrap().into_inner();
    let trust = cluster.running.authority().unwrap().trust();
    authority_as(&cluster.proxy(), &trust, &issued.tls_certificate_pem, &tls.pkcs8_pem()).await
}

/// A cluster whose people come by a provider.
async fn connect(cluster: &Cluster, yaml: String) {
    let create = v1::CreateResourceRequest { yaml, replace: true };
    cluster.admin().await.create_resource(create).await.unwrap();
}

impl<'c> Pages<'c> {
    async fn of(cluster: &'c Cluster) -> Self {
        let pin = support::pin(&mut cluster.admin().await).await;
        let proxy = joined_proxy(cluster).await;
        let web = WebClient::new(proxy.clone());
        Self { cluster, pin, proxy, web, codes: parking_lot::Mutex::default() }
    }

    async fn program(&self) -> LoginClient<Channel> {
        LoginClient::new(pinned(&self.cluster.proxy(), &self.pin).await)
    }

    async fn begin(&self) -> Begun {
        let ssh = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        let request = v1::BeginBrowserLoginRequest {
            ssh_public_key: ssh.public_line().to_owned(),
            tls_public_key: tls.spki_der().to_vec().into(),
            ttl_seconds: 0,
            code_challenge: hash::sha256(VERIFIER.as_bytes()).to_vec().into(),
            redirect_port: PORT,
            host_name: "laptop".to_owned(),
            device: None,
        };
        let begun = self.program().await.begin_browser_login(request).await.unwrap().into_inner();
        let id = begun.page.unwrap().challenge;
        self.codes.lock().insert(id.clone(), begun.headless_code);
        Begun { id, ssh, tls }
    }

    async fn send(&self, id: &str, connector: &str) -> Result<Away, Status> {
        let request = v1::WebBeginSsoRequest {
            id: id.to_owned(),
            address: ADDRESS.to_owned(),
            code: self.codes.lock().get(id).cloned().unwrap_or_default(),
            connector: connector.to_owned(),
            origin: "https://proxy.example.com".to_owned(),
        };
        let begun = self.web.clone().begin_login_sso(request).await?.into_inner();
        Ok(Away { url: begun.redirect, binding: begun.binding })
    }

    async fn answer(
        &self,
        answer: &BTreeMap<String, String>,
        binding: &str,
    ) -> Result<v1::WebProven, Status> {
        let of = |name: &str| answer.get(name).cloned().unwrap_or_default();
        let request = v1::WebFinishSsoRequest {
            address: ADDRESS.to_owned(),
            state: of("state"),
            code: of("code"),
            iss: of("iss"),
            error: of("error"),
            error_description: of("error_description"),
            binding: binding.to_owned(),
            connector: of("connector"),
        };
        Ok(self.web.clone().finish_login_sso(request).await?.into_inner())
    }

    /// A person's whole login, as their program sees it.
    async fn log_in(&self, browser: &mut Browser, person: &str) -> Result<(User, v1::LoginResponse), Status> {
        let begun = self.begin().await;
        let away = self.send(&begun.id, "corp").await?;
        let answer = browser.through(&away.url, person).await;
        let proven = self.answer(&answer, &away.binding).await?;
        self.finish(&begun, &proven.redirect).await
    }

    async fn finish(&self, begun: &Begun, redirect: &str) -> Result<(User, v1::LoginResponse), Status> {
        let answer = redirect.strip_prefix(&format!("http://127.0.0.1:{PORT}/callback?code=")).unwrap();
        let (code, _) = answer.split_once("&state=").unwrap();
        let request = v1::FinishBrowserLoginRequest {
            challenge: begun.id.clone(),
            code: code.to_owned(),
            code_verifier: VERIFIER.to_owned(),
            cancel: false,
        };
        let answer = self.program().await.finish_browser_login(request).await?.into_inner();
        let login = answer.login.unwrap();
        let user = User {
            name: answer.user,
            proxy: self.cluster.proxy(),
            trust: self.cluster.running.authority().unwrap().trust(),
            ssh_key: begun.ssh.private_openssh().to_string(),
            ssh_certificate: login.ssh_certificate.clone(),
            tls_key: begun.tls.pkcs8_pem().to_string(),
            tls_chain: login.tls_certificate_pem.clone(),
            from: None,
        };
        Ok((user, login))
    }

    async fn administrator(&self) -> SsoClient<Channel> {
        SsoClient::new(admin_channel(&self.cluster.data_dir()).await)
    }
}

/// Calls what there is of single sign-on, once each, by who may; the provider is away.
pub(crate) async fn as_people(cluster: &Cluster) {
    let pages = Pages::of(cluster).await;
    let yaml = document_at("away", "http://127.0.0.1:1", "  private_key_jwt: {algorithm: ES256}\n");
    connect(cluster, yaml.clone()).await;
    connect(cluster, yaml.clone()).await;
    let begun = pages.begin().await;
    let status = pages.send(&begun.id, "away").await.map(drop).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
    let status = pages.answer(&BTreeMap::new(), "").await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::PermissionDenied, "{status:?}");
    let logout = v1::WebSsoLogoutRequest {
        address: ADDRESS.to_owned(),
        connector: "away".to_owned(),
        logout_token: "a.b.c".to_owned(),
    };
    let status = pages.web.clone().sso_logout(logout).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status:?}");
    let mut admin = pages.administrator().await;
    let listed = admin.list_connectors(v1::ListConnectorsRequest {}).await.unwrap().into_inner().connectors;
    assert_eq!((listed[0].name.as_str(), listed[0].proof.as_str()), ("away", "key"));
    let asked = v1::GetConnectorKeysRequest { name: "away".to_owned() };
    assert!(admin.get_connector_keys(asked).await.unwrap().into_inner().key_set_json.contains("ES256"));
    let begin = v1::BeginSsoTestRequest { yaml, host_name: String::new() };
    let id = admin.begin_test(begin).await.unwrap().into_inner().page.unwrap().challenge;
    let refuse = v1::WebRequest { id: id.clone(), address: ADDRESS.to_owned() };
    pages.web.clone().refuse_login(refuse).await.unwrap();
    let status = admin.await_test(v1::AwaitSsoTestRequest { challenge: id }).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::PermissionDenied, "{status:?}");
    let linda = v1::CreateUserRequest { name: "linda".to_owned(), ..Default::default() };
    cluster.admin().await.create_user(linda).await.unwrap();
    cluster.admin().await.link_user(linked::link("linda", "away", "7")).await.unwrap();
    cluster.admin().await.unlink_user(v1::UnlinkUserRequest { name: "linda".to_owned() }).await.unwrap();
    let delete = v1::DeleteResourceRequest { kind: "oidc".to_owned(), name: "away".to_owned() };
    cluster.admin().await.delete_resource(delete).await.unwrap();
    for code in ["SP1217I", "SP1218I", "SP1219I"] {
        assert_eq!(support::events(&mut cluster.admin().await, code).await.len(), 1, "{code}");
    }
}
