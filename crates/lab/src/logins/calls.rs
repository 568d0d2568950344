//! The calls of a login at the page, as a program and its browser make them.

use sallyport_sal::hash;
use sallyport_testing::authenticator::Authenticator;
use sallyport_wire::v1;
use sallyport_wire::v1::login_client::LoginClient;
use sallyport_wire::v1::web_client::WebClient;
use tonic::Status;
use tonic::transport::Channel;

use super::line::Line;

/// What a program keeps to itself until its login is proven (RFC 7636 §4.1).
const VERIFIER: &str = "a-verifier-of-forty-three-characters-or-more";
/// Where a program awaits its browser. Nothing listens there: the lab reads the address itself.
const PORT: u32 = 45_678;

/// A program at an address, and the browser beside it.
pub(super) struct Program {
    pub(super) line: Line,
    pub(super) address: String,
}

impl Program {
    pub(super) fn login(&self) -> LoginClient<Channel> {
        LoginClient::new(self.line.channel())
    }
}

/// Keys that are certified: made once, since it is the authority that is measured.
pub(super) struct Keys {
    pub(super) ssh: String,
    pub(super) tls: Vec<u8>,
}

pub(super) async fn begin(program: &Program, keys: &Keys) -> Result<String, Status> {
    let request = v1::BeginBrowserLoginRequest {
        ssh_public_key: keys.ssh.clone(),
        tls_public_key: keys.tls.clone().into(),
        ttl_seconds: 0,
        code_challenge: hash::sha256(VERIFIER.as_bytes()).to_vec().into(),
        redirect_port: PORT,
        host_name: "lab".to_owned(),
        device: None,
    };
    let begun = program.login().begin_browser_login(request).await?;
    Ok(begun.into_inner().page.unwrap_or_default().challenge)
}

pub(super) async fn finish(
    program: &Program,
    challenge: String,
    redirect: &str,
) -> Result<v1::LoginResponse, Status> {
    let request = v1::FinishBrowserLoginRequest {
        challenge,
        code: member(redirect, "code"),
        code_verifier: VERIFIER.to_owned(),
        cancel: false,
    };
    let finished = program.login().finish_browser_login(request).await?.into_inner();
    finished.login.ok_or_else(|| Status::internal("a login that was proven is not finished"))
}

/// A login by a passkey at the page.
pub(super) async fn by_passkey(
    program: &Program,
    mut web: WebClient<Channel>,
    authenticator: &mut Authenticator,
    keys: &Keys,
) -> Result<v1::LoginResponse, Status> {
    let (id, address) = (begin(program, keys).await?, program.address.clone());
    let request =
        v1::WebBeginPasskeyRequest { id: id.clone(), address: address.clone(), code: String::new() };
    let asked = web.begin_login_passkey(request).await?.into_inner();
    let response_json = authenticator.get(&asked.options_json);
    let request = v1::WebFinishPasskeyRequest { id: id.clone(), address, response_json };
    let proven = web.finish_login_passkey(request).await?.into_inner();
    finish(program, id, &proven.redirect).await
}

/// A member of an address's query, whose values here have nothing to decode.
pub(super) fn member(address: &str, name: &str) -> String {
    let query = address.split_once('?').map_or("", |(_, query)| query);
    let found = query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
    found.map(|(_, value)| value.to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_addresses_are_found() {
        assert_eq!(member("http://127.0.0.1:1/callback?code=a-b_c&state=d", "code"), "a-b_c");
        assert_eq!(member("http://127.0.0.1:1/callback?code=a&state=d", "state"), "d");
        assert_eq!(member("http://127.0.0.1:1/callback", "code"), "");
    }
}
