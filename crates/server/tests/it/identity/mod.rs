//! Factors, and logins that are proven at a page. The test is the proxy that serves the page, and the browser at it.

mod administrators;
mod approvals;
pub(crate) mod devices;
mod factors;
mod key_logins;
mod logins;
mod passkey_policies;
mod passwords;
mod session_factors;
mod shown_factors;
mod stolen;
mod user_verification;

use std::collections::HashMap;
use std::time::Duration;

use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::{Suite, hash, totp};
use sallyport_server::Config;
use sallyport_server::config::WebauthnSection;
use sallyport_wire::v1;
use sallyport_wire::v1::begin_proof_request::Purpose;
use sallyport_wire::v1::factor_proof::Proof;
use sallyport_wire::v1::factors_client::FactorsClient;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::v1::web_client::WebClient;
use serde_json::Value;
use time::OffsetDateTime;
use tonic::Status;
use tonic::transport::Channel;

use crate::authenticator::Authenticator;
use crate::support::{self, Cluster, PASSWORD, PATIENCE, User, authority_as, pinned};

pub(crate) const ORIGIN: &str = "https://sallyport.example.org";
/// Where browsers are.
const BROWSER: &str = "198.51.100.7";
const PORT: u32 = 45_678;
/// A password in the place of the first one.
const CHANGED: &str = "nine purple umbrellas dancing";

/// Passkeys are on.
pub(crate) fn with_passkeys(config: &mut Config) {
    let webauthn = WebauthnSection {
        rp_id: "sallyport.example.org".to_owned(),
        origins: vec![ORIGIN.to_owned()],
        user_verification: Default::default(),
        attestation: None,
        counter: Default::default(),
        backup: Default::default(),
    };
    config.auth.as_mut().unwrap().authentication.webauthn = Some(webauthn);
}

/// What stands at the pages of a cluster: a proxy's way to the authority.
pub(crate) struct Bench<'c> {
    cluster: &'c Cluster,
    pin: String,
    /// The proxy's way.
    proxy: Channel,
    web: WebClient<Channel>,
    /// What terminals show, by the id of the challenge.
    codes: parking_lot::Mutex<HashMap<String, String>>,
}

/// A login that a program has begun.
struct Begun {
    id: String,
    verifier: String,
    headless_code: String,
}

async fn joined_proxy(cluster: &Cluster) -> Channel {
    let (token, pin) = support::token(&mut cluster.admin().await, "proxy").await;
    let ssh = SshKeyPair::generate(Suite::BalancedV1, "pages").unwrap();
    let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
    let request = v1::JoinRequest {
        token,
        name: "pages".to_owned(),
        role: "proxy".to_owned(),
        ssh_public_key: ssh.public_line().to_owned(),
        tls_public_key: tls.spki_der().to_vec().into(),
        ..Default::default()
    };
    let mut login = LoginClient::new(pinned(&cluster.proxy(), &pin).await);
    let issued = login.join(request).await.unwrap().into_inner();
    let trust = cluster.running.authority().unwrap().trust();
    authority_as(&cluster.proxy(), &trust, &issued.tls_certificate_pem, &tls.pkcs8_pem()).await
}

fn secret_of(uri: &str) -> totp::Secret {
    let secret = uri.split_once("secret=").unwrap().1.split('&').next().unwrap();
    totp::Secret::from_base32(secret).unwrap()
}

fn proof(proof: Proof) -> Option<v1::FactorProof> {
    Some(v1::FactorProof { proof: Some(proof) })
}

fn to_add(kind: &str, name: &str) -> v1::FactorToAdd {
    v1::FactorToAdd { kind: kind.to_owned(), name: name.to_owned() }
}

fn at(id: &str) -> v1::WebRequest {
    v1::WebRequest { id: id.to_owned(), address: BROWSER.to_owned() }
}

fn begin_at(id: &str, code: &str) -> v1::WebBeginPasskeyRequest {
    v1::WebBeginPasskeyRequest { id: id.to_owned(), address: BROWSER.to_owned(), code: code.to_owned() }
}

fn response_at(id: &str, response: String) -> v1::WebFinishPasskeyRequest {
    v1::WebFinishPasskeyRequest { id: id.to_owned(), address: BROWSER.to_owned(), response_json: response }
}

/// The code in the address that the browser goes to, and the state that the program makes of the id, too.
fn answer_of(proven: &v1::WebProven) -> (String, String) {
    let answer = proven.redirect.strip_prefix(&format!("http://127.0.0.1:{PORT}/callback?code="));
    let parts = answer.and_then(|answer| answer.split_once("&state="));
    let (code, state) = parts.unwrap_or_else(|| panic!("{}", proven.redirect));
    (code.to_owned(), state.to_owned())
}

fn code_of(proven: &v1::WebProven) -> String {
    answer_of(proven).0
}

async fn factors(user: &User) -> FactorsClient<Channel> {
    FactorsClient::new(user.authority().await)
}

/// A cluster with passkeys.
async fn cluster_with(adjust: impl FnOnce(&mut Config)) -> Cluster {
    let cluster = Cluster::start(|config| {
        with_passkeys(config);
        adjust(config);
    })
    .await;
    cluster.running.ready(PATIENCE).await.unwrap();
    cluster
}

impl<'c> Bench<'c> {
    async fn at(cluster: &'c Cluster) -> Self {
        let pin = support::pin(&mut cluster.admin().await).await;
        let proxy = joined_proxy(cluster).await;
        let web = WebClient::new(proxy.clone());
        Self { cluster, pin, proxy, web, codes: parking_lot::Mutex::default() }
    }

    async fn login(&self) -> LoginClient<Channel> {
        LoginClient::new(pinned(&self.cluster.proxy(), &self.pin).await)
    }

    /// What a program does first; port 0 for one without a browser.
    async fn begin(&self, port: u32) -> Result<Begun, Status> {
        let ssh = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
        self.begin_over(port, &ssh, &TlsKey::generate(Suite::BalancedV1).unwrap()).await
    }

    async fn begin_over(&self, port: u32, ssh: &SshKeyPair, tls: &TlsKey) -> Result<Begun, Status> {
        self.begin_from(port, ssh, tls, None).await
    }

    /// From a trusted device, or from none.
    async fn begin_from(
        &self,
        port: u32,
        ssh: &SshKeyPair,
        tls: &TlsKey,
        device: Option<v1::DeviceProof>,
    ) -> Result<Begun, Status> {
        let verifier = "v".repeat(43);
        let request = v1::BeginBrowserLoginRequest {
            ssh_public_key: ssh.public_line().to_owned(),
            tls_public_key: tls.spki_der().to_vec().into(),
            ttl_seconds: 0,
            code_challenge: hash::sha256(verifier.as_bytes()).to_vec().into(),
            redirect_port: port,
            host_name: "laptop\u{7}\n of alice".to_owned(),
            device,
        };
        let begun = self.login().await.begin_browser_login(request).await?.into_inner();
        let page = begun.page.unwrap();
        assert_eq!(page.path, format!("/login#{}", page.challenge));
        Ok(Begun { id: page.challenge, verifier, headless_code: begun.headless_code })
    }

    async fn finish(&self, begun: &Begun, code: &str) -> Result<v1::FinishBrowserLoginResponse, Status> {
        self.tell(begun, code, false).await
    }

    /// What a program says of the login that it has begun.
    async fn tell(
        &self,
        begun: &Begun,
        code: &str,
        cancel: bool,
    ) -> Result<v1::FinishBrowserLoginResponse, Status> {
        let request = v1::FinishBrowserLoginRequest {
            challenge: begun.id.clone(),
            code: code.to_owned(),
            code_verifier: begun.verifier.clone(),
            cancel,
        };
        Ok(self.login().await.finish_browser_login(request).await?.into_inner())
    }

    /// What the page of a login does.
    async fn prove(&self, begun: &Begun, authenticator: &mut Authenticator) -> Result<v1::WebProven, Status> {
        let mut web = self.web.clone();
        let asked = web.begin_login_passkey(begin_at(&begun.id, &begun.headless_code)).await?.into_inner();
        let response = authenticator.get(&asked.options_json);
        Ok(web.finish_login_passkey(response_at(&begun.id, response)).await?.into_inner())
    }

    /// A user who is logged in by their passkey.
    async fn logged_in(&self, authenticator: &mut Authenticator) -> User {
        let ssh = SshKeyPair::generate(Suite::BalancedV1, "x").unwrap();
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        let begun = self.begin_over(PORT, &ssh, &tls).await.unwrap();
        let code = code_of(&self.prove(&begun, authenticator).await.unwrap());
        let answer = self.finish(&begun, &code).await.unwrap();
        let (login, trust) = (answer.login.unwrap(), self.cluster.running.authority().unwrap().trust());
        User {
            name: answer.user,
            proxy: self.cluster.proxy(),
            trust,
            ssh_key: ssh.private_openssh().to_string(),
            ssh_certificate: login.ssh_certificate,
            tls_key: tls.pkcs8_pem().to_string(),
            tls_chain: login.tls_certificate_pem,
            from: None,
        }
    }

    /// Adds a passkey to a user, who proves this.
    async fn enrol(&self, user: &User, name: &str, by: Proof) -> Result<Authenticator, Status> {
        let request = v1::BeginAddFactorRequest {
            factor: Some(to_add("webauthn", name)),
            proof: proof(by),
            host_name: "laptop".to_owned(),
        };
        let begun = factors(user).await.begin_add(request).await?.into_inner();
        let page = begun.page.unwrap();
        assert_eq!(page.path, format!("/enrol#{}", page.challenge));
        assert_eq!(page.origins, [ORIGIN]);
        let mut web = self.web.clone();
        let shown = web.describe_enrolment(at(&page.challenge)).await?.into_inner();
        assert_eq!((shown.user.as_str(), shown.name.as_str()), (user.name.as_str(), name));
        let options = web.begin_enrolment(begin_at(&page.challenge, &begun.code)).await?;
        let options = options.into_inner().options_json;
        let mut authenticator = Authenticator::at(ORIGIN);
        let request = v1::WebFinishEnrolmentRequest {
            id: page.challenge,
            address: BROWSER.to_owned(),
            response_json: authenticator.create(&options),
        };
        assert_eq!(web.finish_enrolment(request).await?.into_inner().name, name);
        Ok(authenticator)
    }

    /// Adds a passkey to a user who has a password alone.
    async fn first_passkey(&self, user: &User) -> Authenticator {
        self.enrol(user, "laptop", Proof::Password(PASSWORD.to_owned())).await.unwrap()
    }

    /// Adds one-time codes to a user, who proves this.
    async fn add_codes(&self, user: &User, name: &str, by: Proof) -> Result<totp::Secret, Status> {
        let mut client = factors(user).await;
        let request = v1::BeginAddFactorRequest {
            factor: Some(to_add("totp", name)),
            proof: proof(by),
            host_name: String::new(),
        };
        let begun = client.begin_add(request).await?.into_inner();
        let secret = secret_of(&begun.otp_uri);
        let request = v1::FinishAddFactorRequest {
            challenge: begun.page.unwrap().challenge,
            otp: secret.code(OffsetDateTime::now_utc()),
        };
        client.finish_add(request).await?;
        Ok(secret)
    }

    /// A challenge that a user asks for, for one later call.
    async fn begin_proof(
        &self,
        user: &User,
        purpose: v1::begin_proof_request::Purpose,
    ) -> Result<String, Status> {
        let request = v1::BeginProofRequest { purpose: Some(purpose), host_name: "laptop".to_owned() };
        let begun = factors(user).await.begin_proof(request).await?.into_inner();
        let page = begun.page.unwrap();
        assert_eq!(page.path, format!("/approve#{}", page.challenge));
        self.codes.lock().insert(page.challenge.clone(), begun.code);
        Ok(page.challenge)
    }

    /// The code that the terminal of an approval shows.
    fn shown(&self, id: &str) -> String {
        self.codes.lock().get(id).cloned().unwrap_or_default()
    }

    /// What the page of an approval does.
    async fn approve(&self, id: &str, authenticator: &mut Authenticator) -> Result<v1::WebProven, Status> {
        let mut web = self.web.clone();
        let asked = web.begin_approval_passkey(begin_at(id, &self.shown(id))).await?.into_inner();
        let response = authenticator.get(&asked.options_json);
        Ok(web.finish_approval_passkey(response_at(id, response)).await?.into_inner())
    }

    /// The events of a code that are about a user.
    async fn events(&self, code: &str, user: &str) -> Vec<Value> {
        let request = v1::SearchEventsRequest { code: code.to_owned(), ..Default::default() };
        let mut found = self.cluster.admin().await.search_events(request).await.unwrap().into_inner();
        let mut events = Vec::new();
        while let Some(record) = found.message().await.unwrap() {
            events.push(serde_json::from_str::<Value>(&record.event_json).unwrap());
        }
        events.retain(|event| event["user"] == user);
        events
    }
}

/// Calls every method of people, their browsers and programs once with success.
pub(crate) async fn as_people(cluster: &Cluster) {
    let bench = Bench::at(cluster).await;
    let wendy = cluster.user("wendy", &["root"]).await;
    let mut client = factors(&wendy).await;
    client.list(v1::ListFactorsRequest {}).await.unwrap();
    let by = Proof::Password(PASSWORD.to_owned());
    let secret = bench.add_codes(&wendy, "phone", by).await.unwrap();
    let mut web = bench.web.clone();

    let asked = |purpose| v1::BeginProofRequest { purpose: Some(purpose), host_name: String::new() };
    let refused = client.begin_proof(asked(Purpose::RecoveryCodes(true))).await.unwrap().into_inner();
    let refused = refused.page.unwrap().challenge;
    web.describe_approval(at(&refused)).await.unwrap();
    web.refuse_approval(at(&refused)).await.unwrap();
    let awaited = v1::AwaitChallengeRequest { challenge: refused };
    assert_eq!(client.await_challenge(awaited).await.unwrap().into_inner().state, "refused");

    let proven = client.begin_proof(asked(Purpose::AddFactor(to_add("webauthn", "key")))).await.unwrap();
    let v1::BeginProofResponse { page, code } = proven.into_inner();
    let proven = page.unwrap().challenge;
    let otp = next_code(&secret);
    let request = v1::WebOtpRequest { id: proven.clone(), address: BROWSER.to_owned(), otp, code };
    web.prove_approval_otp(request).await.unwrap();
    let request = v1::BeginAddFactorRequest {
        factor: Some(to_add("webauthn", "key")),
        proof: proof(Proof::Challenge(proven)),
        host_name: String::new(),
    };
    let begun = client.begin_add(request).await.unwrap().into_inner();
    let page = begun.page.unwrap().challenge;
    web.describe_enrolment(at(&page)).await.unwrap();
    let options = web.begin_enrolment(begin_at(&page, &begun.code)).await.unwrap().into_inner().options_json;
    let mut key = Authenticator::at(ORIGIN);
    let request = v1::WebFinishEnrolmentRequest {
        id: page,
        address: BROWSER.to_owned(),
        response_json: key.create(&options),
    };
    web.finish_enrolment(request).await.unwrap();

    let recovery = client.begin_proof(asked(Purpose::RecoveryCodes(true))).await.unwrap().into_inner();
    let (recovery, code) = (recovery.page.unwrap().challenge, recovery.code);
    let options = web.begin_approval_passkey(begin_at(&recovery, &code)).await.unwrap().into_inner();
    let response = key.get(&options.options_json);
    web.finish_approval_passkey(response_at(&recovery, response)).await.unwrap();
    let request = v1::MakeRecoveryCodesRequest { proof: proof(Proof::Challenge(recovery)) };
    let codes = client.make_recovery_codes(request).await.unwrap().into_inner().codes;
    let listed = client.list(v1::ListFactorsRequest {}).await.unwrap().into_inner();
    let codes_id = listed.factors.iter().find(|factor| factor.kind == "totp").unwrap().id.clone();
    let request = v1::ProveAdministratorRequest { proof: proof(Proof::RecoveryCode(codes[3].clone())) };
    client.prove_administrator(request).await.unwrap();
    let request =
        v1::RemoveFactorRequest { id: codes_id, proof: proof(Proof::RecoveryCode(codes[0].clone())) };
    client.remove(request).await.unwrap();
    let by = Proof::RecoveryCode(codes[5].clone());
    shown_factors::as_a_person(&bench, &wendy, &mut key, by).await;
    let request = v1::BeginAddFactorRequest {
        factor: Some(to_add("webauthn", "spare")),
        proof: proof(Proof::RecoveryCode(codes[2].clone())),
        host_name: String::new(),
    };
    let spare = client.begin_add(request).await.unwrap().into_inner().page.unwrap().challenge;
    web.refuse_enrolment(at(&spare)).await.unwrap();

    let request = v1::ChangePasswordRequest {
        old_password: PASSWORD.to_owned(),
        new_password: CHANGED.to_owned(),
        proof: proof(Proof::RecoveryCode(codes[4].clone())),
    };
    client.change_password(request).await.unwrap();

    let begun = bench.begin(PORT).await.unwrap();
    web.describe_login(at(&begun.id)).await.unwrap();
    let asked =
        web.begin_login_passkey(begin_at(&begun.id, &begun.headless_code)).await.unwrap().into_inner();
    let response = key.get(&asked.options_json);
    let proven = web.finish_login_passkey(response_at(&begun.id, response)).await.unwrap().into_inner();
    assert_eq!(bench.finish(&begun, &code_of(&proven)).await.unwrap().user, "wendy");

    let begun = bench.begin(PORT).await.unwrap();
    let request = v1::WebPasswordRequest {
        id: begun.id,
        address: BROWSER.to_owned(),
        code: begun.headless_code,
        user: "wendy".to_owned(),
        password: CHANGED.to_owned(),
        otp: codes[1].clone(),
    };
    web.prove_login_password(request).await.unwrap();
    let begun = bench.begin(PORT).await.unwrap();
    web.refuse_login(at(&begun.id)).await.unwrap();

    key_logins::as_a_person(&bench, "wendy", &mut key).await;
    session_factors::as_people(&bench, &wendy, &mut key).await;

    let request = v1::CreateUserRequest { name: "ivan".to_owned(), ..Default::default() };
    let token = cluster.admin().await.create_user(request).await.unwrap().into_inner().token;
    let link = v1::WebInviteRequest { token: token.clone(), address: BROWSER.to_owned() };
    assert_eq!(web.describe_invite(link.clone()).await.unwrap().into_inner().user, "ivan");
    let options = web.begin_invite_passkey(link).await.unwrap().into_inner().options_json;
    let request = v1::WebFinishInviteRequest {
        token,
        address: BROWSER.to_owned(),
        name: "phone".to_owned(),
        response_json: Authenticator::at(ORIGIN).create(&options),
    };
    assert_eq!(web.finish_invite_passkey(request).await.unwrap().into_inner().user, "ivan");
}

/// A code that was not used: of the step that comes next, which is accepted already.
fn next_code(secret: &totp::Secret) -> String {
    secret.code(OffsetDateTime::now_utc() + Duration::from_secs(totp::STEP_SECONDS))
}
