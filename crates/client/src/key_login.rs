//! A login that the person proves with a security key at this machine: the authority asks, this program says for which page the key
//! signs, as a browser would, and which authority it has reached, as no browser does. No page and no proxy has a part in it.

use std::time::Duration;

use futures::future::BoxFuture;
use sallyport_access::UserName;
use sallyport_sal::{hash, selection};
use sallyport_wire::fips;
use sallyport_wire::v1::{BeginKeyLoginRequest, FinishKeyLoginRequest, KeyAssertion, PingRequest};
use serde::{Deserialize, Serialize};

use super::authority::{self, FirstTrust};
use super::browser_login::{GiveUp, fresh_verifier, not_certified};
use super::device::Devices;
use super::login::{LoggedIn, save, word};
use super::login_keys::LoginKeys;
use super::own_ssh_key::OwnSshKey;
use super::profile::Profiles;
use crate::error::{Doing, Error, Result};

/// Flags, counter and hash of the relying party's id (WebAuthn L3 §6.1).
const LEAST_DATA_BYTES: usize = 37;

/// What a security key is to sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The domain that the cluster's passkeys are bound to.
    pub rp_id: String,
    /// Client data (WebAuthn L3 §5.8.1), as JSON.
    pub client_data: String,
}

impl Asked {
    /// What the key is given in its place.
    #[must_use]
    pub fn client_data_hash(&self) -> [u8; 32] {
        hash::sha256(self.client_data.as_bytes())
    }
}

/// What a security key has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// As the authenticator has it.
    pub authenticator_data: Vec<u8>,
    /// Over that and the hash of the client data.
    pub signature: Vec<u8>,
    /// Whose passkey it is, by the name that the authority has for them towards authenticators.
    pub user_handle: Vec<u8>,
}

impl Signed {
    /// Whether it is of a relying party, by what the authenticator says.
    #[must_use]
    pub fn is_of(&self, rp_id: &str) -> bool {
        self.authenticator_data.len() >= LEAST_DATA_BYTES
            && self.authenticator_data.starts_with(&hash::sha256(rp_id.as_bytes()))
    }
}

/// A login that waits for a security key.
#[derive(Debug)]
pub struct KeyLogin {
    proxy: String,
    first: FirstTrust,
    user: UserName,
    keys: LoginKeys,
    challenge: String,
    verifier: String,
    asked: Asked,
}

/// As much of `PublicKeyCredentialRequestOptionsJSON` as a program uses that asks for any passkey.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Options {
    challenge: String,
    rp_id: String,
}

/// In the order of WebAuthn L3 §5.8.1.1, which has further members behind these.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClientData<'a> {
    r#type: &'static str,
    challenge: &'a str,
    origin: &'a str,
    cross_origin: bool,
    /// The pin of the certificate authority by which the server was verified that has asked.
    sallyport_authority: &'a str,
}

/// The client data for what the authority asks, where this program may sign it.
///
/// A browser lets a page ask for passkeys of its own domain alone, and says in what is signed which page it was. This program has to, too:
/// it may be talking to a cluster that would like an answer for another site's passkeys. So the page is the address that the person has
/// named, and never one that the cluster has.
///
/// It may also be talking to a false cluster at that address, which passes on what the true one has asked the false one. So `pin` is of the
/// certificate authority that this program has verified, and never what an answer says: the true one takes nothing that is for another.
fn asked(cluster: &str, proxy: &str, pin: &str, options: &str, origins: &[String]) -> Result<Asked> {
    let options: Options =
        serde_json::from_str(options).doing("understand what the security key is to sign")?;
    let elsewhere = || Error::PasskeysElsewhere {
        cluster: cluster.to_owned(),
        proxy: proxy.to_owned(),
        origins: origins.to_vec(),
    };
    let proxy = proxy.to_ascii_lowercase();
    let address = proxy.strip_suffix(":443").unwrap_or(&proxy);
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let within = |host: &str| host.strip_suffix(&options.rp_id).is_some_and(|below| below.ends_with('.'));
    // No domain of one word has passkeys, but that of this machine.
    let is_domain = options.rp_id.contains('.') || options.rp_id == host;
    if !is_domain || !(host == options.rp_id || within(host)) {
        return Err(elsewhere());
    }
    let origin = format!("https://{address}");
    if !origins.contains(&origin) {
        return Err(elsewhere());
    }
    let said = ClientData {
        r#type: "webauthn.get",
        challenge: &options.challenge,
        origin: &origin,
        cross_origin: false,
        sallyport_authority: pin,
    };
    let client_data = serde_json::to_string(&said).doing("say what the security key is to sign")?;
    Ok(Asked { rp_id: options.rp_id, client_data })
}

impl KeyLogin {
    /// Reaches the authority of the cluster at an address, and asks what the security key is to sign. Where this machine is a trusted device,
    /// it gives its word. With `own`, the authority certifies that SSH key.
    ///
    /// # Errors
    /// The authority cannot be reached, is not the one that `first` says, has no passkeys or knows no such logins; or its passkeys are of
    /// other addresses than the one that the person has named.
    pub fn begin<'a>(
        proxy: &'a str,
        first: &'a FirstTrust,
        user: &'a UserName,
        ttl: Option<Duration>,
        host_name: &'a str,
        devices: &'a Devices,
        own: Option<OwnSshKey>,
    ) -> BoxFuture<'a, Result<Self>> {
        Box::pin(async move {
            let (mut client, pin) = authority::login_by_pin(proxy, first).await?;
            let ping = client.ping(PingRequest {}).await;
            let ping = ping.map_err(|status| Error::answered("reach the authority", status))?.into_inner();
            let making = LoginKeys::making(user.as_str(), ping.suite.parse().unwrap_or_default(), own);
            let keys = making.await.doing("make keys")??;
            let device = devices.open(&ping.cluster).await?;
            let device = word(device.as_ref(), &mut client, &ping.cluster, &keys).await?;
            let verifier = fresh_verifier()?;
            let request = BeginKeyLoginRequest {
                ssh_public_key: keys.ssh.public_line().to_owned(),
                tls_public_key: keys.tls.spki_der().to_vec().into(),
                ttl_seconds: ttl.map_or(0, |ttl| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX)),
                code_challenge: hash::sha256(verifier.as_bytes()).to_vec().into(),
                host_name: host_name.to_owned(),
                device,
            };
            let begun = client
                .begin_key_login(fips::saying(request, selection::global().is_fips()))
                .await
                .map_err(|status| Error::answered("begin a login with a security key", status))?
                .into_inner();
            let asked = match asked(&ping.cluster, proxy, &pin, &begun.options_json, &begun.origins) {
                Ok(asked) => asked,
                Err(error) => {
                    // It would keep its place among those that this address may have open.
                    GiveUp::of(proxy, first, &begun.challenge, &verifier).tell().await;
                    return Err(error);
                }
            };
            Ok(Self {
                proxy: proxy.to_owned(),
                first: first.clone(),
                user: user.clone(),
                keys,
                challenge: begun.challenge,
                verifier,
                asked,
            })
        })
    }

    /// What the key is to sign.
    #[must_use]
    pub fn asked(&self) -> &Asked {
        &self.asked
    }

    /// What to say where the login is given up before it is finished.
    #[must_use]
    pub fn give_up(&self) -> GiveUp {
        GiveUp::of(&self.proxy, &self.first, &self.challenge, &self.verifier)
    }

    /// Has the keys of the login certified for what the security key has signed, once for each account that it holds, and stores them.
    ///
    /// # Errors
    /// The key is not one of the user's here, the authority does not certify the login, or the files cannot be written.
    pub fn finish(self, profiles: &Profiles, signed: Vec<Signed>) -> BoxFuture<'_, Result<LoggedIn>> {
        Box::pin(async move {
            let assertion = |signed: Signed| KeyAssertion {
                client_data_json: self.asked.client_data.clone().into_bytes().into(),
                authenticator_data: signed.authenticator_data.into(),
                signature: signed.signature.into(),
                user_handle: signed.user_handle.into(),
            };
            let request = FinishKeyLoginRequest {
                challenge: self.challenge.clone(),
                code_verifier: self.verifier.clone(),
                user: self.user.to_string(),
                assertions: signed.into_iter().map(assertion).collect(),
            };
            // The authority keeps no connection of a program without a certificate for as long as a person may take.
            let mut client = authority::login(&self.proxy, &self.first).await?;
            let answer = client.finish_key_login(fips::saying(request, selection::global().is_fips())).await;
            let response = answer.map_err(not_certified)?.into_inner();
            save(profiles, &self.proxy, &self.user, &self.keys, response)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PIN: &str = "sha256:0a";

    fn at(proxy: &str, rp_id: &str, origins: &[&str]) -> Result<Asked> {
        let options = json!({ "challenge": "AAEC", "rpId": rp_id, "timeout": 300_000 }).to_string();
        let origins: Vec<String> = origins.iter().map(|origin| (*origin).to_owned()).collect();
        asked("main", proxy, PIN, &options, &origins)
    }

    #[test]
    fn the_page_is_the_address_that_the_person_has_named_and_the_authority_the_one_that_was_reached() {
        let origins = ["https://sp.example.org", "https://eu.sp.example.org:3080", "https://localhost:3080"];
        for (proxy, rp_id, origin) in [
            ("sp.example.org:443", "sp.example.org", origins[0]),
            ("EU.sp.example.org:3080", "sp.example.org", origins[1]),
            ("localhost:3080", "localhost", origins[2]),
        ] {
            let asked = at(proxy, rp_id, &origins).unwrap();
            assert_eq!(
                asked.client_data,
                format!(
                    "{{\"type\":\"webauthn.get\",\"challenge\":\"AAEC\",\"origin\":\"{origin}\",\"crossOrigin\":false,\
                     \"sallyportAuthority\":\"{PIN}\"}}"
                )
            );
            assert_eq!(asked.rp_id, rp_id);
        }
    }

    #[test]
    fn attacks_no_cluster_gets_an_answer_for_another_sites_passkeys() {
        for (proxy, rp_id, origins) in [
            // A cluster that wants what a bank would take.
            ("sp.example.org:443", "bank.example", &["https://sp.example.org", "https://bank.example"][..]),
            ("sp.example.org:443", "bank.example", &["https://bank.example"]),
            // Names that look alike.
            ("evilbank.example:443", "bank.example", &["https://evilbank.example"]),
            ("bank.example.evil.org:443", "bank.example", &["https://bank.example.evil.org"]),
            ("sp.example.org:443", "org", &["https://sp.example.org"]),
            ("sp.example.org:443", "", &["https://sp.example.org"]),
            // The right domain, by an address or a port that the cluster does not have.
            ("sp.example.org:8443", "sp.example.org", &["https://sp.example.org"]),
            ("192.0.2.1:443", "sp.example.org", &["https://sp.example.org"]),
            ("sp.example.org:443", "sp.example.org", &[]),
        ] {
            let refused = at(proxy, rp_id, origins);
            assert!(matches!(refused, Err(Error::PasskeysElsewhere { .. })), "{proxy} {rp_id}: {refused:?}");
        }
    }

    #[test]
    fn what_is_signed_for_another_relying_party_is_told_apart() {
        let of = |rp_id: &str, more: usize| Signed {
            authenticator_data: [&hash::sha256(rp_id.as_bytes())[..], &vec![0; more]].concat(),
            signature: Vec::new(),
            user_handle: Vec::new(),
        };
        assert!(of("sp.example.org", 5).is_of("sp.example.org"));
        assert!(!of("sp.example.org", 4).is_of("sp.example.org"), "it is cut off");
        assert!(!of("bank.example", 5).is_of("sp.example.org"));
    }
}
