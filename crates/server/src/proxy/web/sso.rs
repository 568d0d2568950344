//! `/web/login/sso/…`: a login that goes to an identity provider and comes back; and what providers tell of logouts.

use sallyport_wire::v1;
use sallyport_wire::v1::web_client::WebClient;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::answer::Refused;
use super::calls::{Calls, Channel, heard};
use super::fields::{Typed, Word};
use super::login::Proven;
use crate::routes::Routes;

pub(super) fn routes<S: Channel>(calls: &Calls<S>) -> Routes {
    Routes::default()
        .page("/web/login/sso/begin", calls.call("BeginLoginSso", begin))
        .page("/web/login/sso/finish", calls.call("FinishLoginSso", finish))
        .page("/web/sso/logout/{connector}", calls.told("SsoLogout", logout))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    id: Word,
    #[serde(default)]
    code: Typed<64>,
    connector: Word,
    origin: Typed<512>,
}

/// Where the browser goes, and what the page keeps.
#[derive(Debug, Serialize)]
struct Sent {
    redirect: String,
    binding: String,
}

async fn begin<S: Channel>(
    mut authority: WebClient<S>,
    asked: Begin,
    address: String,
) -> Result<Sent, Refused> {
    let request = v1::WebBeginSsoRequest {
        id: asked.id.into_inner(),
        address,
        code: asked.code.into_inner(),
        connector: asked.connector.into_inner(),
        origin: asked.origin.into_inner(),
    };
    let v1::WebSsoBegun { redirect, binding } = heard(authority.begin_login_sso(request).await)?;
    Ok(Sent { redirect, binding })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Finish {
    /// From the address of the page; empty where that is the one of every connector, and absent from a page of a proxy of the release
    /// before.
    #[serde(default)]
    connector: Typed<256>,
    state: Typed<4096>,
    code: Typed<4096>,
    iss: Typed<4096>,
    error: Typed<4096>,
    error_description: Typed<4096>,
    binding: Typed<64>,
}

async fn finish<S: Channel>(
    mut authority: WebClient<S>,
    asked: Finish,
    address: String,
) -> Result<Proven, Refused> {
    let request = v1::WebFinishSsoRequest {
        address,
        state: asked.state.into_inner(),
        code: asked.code.into_inner(),
        iss: asked.iss.into_inner(),
        error: asked.error.into_inner(),
        error_description: asked.error_description.into_inner(),
        binding: asked.binding.into_inner(),
        connector: asked.connector.into_inner(),
    };
    heard(authority.finish_login_sso(request).await).map(Proven::from)
}

/// OpenID Connect Back-Channel Logout 1.0 §2.5: a form with one token; §2.8: 200, or 400 with an error of OAuth.
async fn logout<S: Channel>(
    mut authority: WebClient<S>,
    connector: String,
    form: Zeroizing<Vec<u8>>,
    address: String,
) -> Result<(), Refused> {
    let connector = Word::try_from(connector).map_err(|problem| Refused::Invalid(problem.to_owned()))?;
    let token = form_member(&form, "logout_token")
        .ok_or_else(|| Refused::Invalid("the form has no logout_token".to_owned()))?;
    let request = v1::WebSsoLogoutRequest { address, connector: connector.into_inner(), logout_token: token };
    heard(authority.sso_logout(request).await).map(drop)
}

/// A member of a form (application/x-www-form-urlencoded). A token has no character that is encoded; one that has is none.
fn form_member(form: &[u8], name: &str) -> Option<String> {
    let text = std::str::from_utf8(form).ok()?;
    let mut found =
        text.split('&').filter_map(|member| member.split_once('=')).filter(|(found, _)| *found == name);
    let (_, value) = found.next()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (found.next().is_none() && !value.is_empty() && value.bytes().all(plain)).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_one_token() {
        assert_eq!(form_member(b"a=b&logout_token=x.y-_.z", "logout_token").as_deref(), Some("x.y-_.z"));
        for bad in [
            "",
            "logout_token=",
            "logout_token=a&logout_token=b",
            "logout_token=a%2Eb",
            "logout_token",
            "token=a",
        ] {
            assert_eq!(form_member(bad.as_bytes(), "logout_token"), None, "{bad}");
        }
        assert_eq!(form_member(b"logout_token=\xff", "logout_token"), None);
    }
}
