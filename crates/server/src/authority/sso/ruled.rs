//! What a provider has said, as login rules see it.

use std::collections::BTreeSet;

use sallyport_access::{LoginClaims, ResourceName};
use sallyport_oidc::{Identity, Leaf, leaves, overages};
use sallyport_wire::CLAIMS_BYTES;
use serde_json::{Map, Value};
use time::OffsetDateTime;
use tonic::Status;

use super::claims::Claims;
use super::connector::Connector;
use super::connectors::Connectors;
use crate::authority::accounts::means::Said;
use crate::authority::caller::shown;
use crate::authority::identities::origins::person_key;

/// What counts in the ID token alone, which is signed for this login.
const OF_TOKEN: [&str; 4] = ["acr", "amr", "auth_time", "sid"];
/// What belongs to the login's protocol, or says where claims are: it is no word about the person.
const NOT_SAID: [&str; 7] =
    ["_claim_names", "_claim_sources", "at_hash", "c_hash", "hasgroups", "nonce", "s_hash"];
/// What the connector's SCIM client says.
const PROVISIONED: &str = "scim";

impl Claims {
    /// What rules see of it: as the mapping does, and of `acr` and `amr` what the ID token says. `unasked`: what was not asked for.
    fn for_rules(&self, connector: &Connector, unasked: Option<&str>) -> LoginClaims {
        let (mut all, _) = self.counted(connector);
        for name in OF_TOKEN {
            match self.token.get(name) {
                Some(value) => drop(all.insert(name.to_owned(), value.clone())),
                None => drop(all.remove(name)),
            }
        }
        let elsewhere = overages(&all).into_iter().map(|one| one.claim);
        let mut unknown: BTreeSet<String> = elsewhere.filter(|claim| !self.has(claim)).collect();
        unknown.extend(unasked.map(str::to_owned));
        for name in NOT_SAID {
            all.remove(name);
        }
        let (found, more) = leaves(&all);
        unknown.extend(found.iter().filter(|leaf| leaf.cut).map(|leaf| leaf.path.clone()));
        let said = found.into_iter().map(|Leaf { path, values, .. }| (path, values));
        LoginClaims::new(said, unknown, more)
    }

    /// By which connector the person came, and what was said.
    pub(super) fn ruled(&self, connector: &Connector, unasked: Option<&str>) -> Said {
        Said { connector: connector.name.to_string(), claims: self.for_rules(connector, unasked) }
    }
}

impl Connectors {
    /// What was said of a person who signs in again, with the groups that the connector's SCIM client has them in. Where that cannot be
    /// told now, the groups are not known, and rules that look at them say so.
    pub(super) async fn said_again(
        &self,
        connector: &Connector,
        claims: &Claims,
        now: OffsetDateTime,
    ) -> Said {
        let mut claims = claims.clone();
        let _provisioned = self.provisioning.steady().await;
        let _changing = self.identities.change().await;
        let key = person_key(&claims.identity.issuer, &claims.identity.subject);
        let placed = self.place(connector, &key, &mut claims, now).await;
        claims.ruled(connector, placed.is_err().then_some(PROVISIONED))
    }

    /// What an administrator describes of a login: the connector that it goes by, and what the provider says in it.
    ///
    /// # Errors
    /// There is no such connector, or the claims are none.
    pub(crate) async fn described(
        &self,
        connector: &str,
        claims_json: &str,
        now: OffsetDateTime,
    ) -> Result<Option<Said>, Status> {
        if connector.is_empty() {
            return match claims_json {
                "" => Ok(None),
                _ => Err(Status::invalid_argument(
                    "claims are what a connector's provider says, and no connector is named: add --connector NAME",
                )),
            };
        }
        let missing = || {
            let name = shown(connector);
            Status::not_found(format!("there is no connector {name:?}; see: sallyport admin sso ls"))
        };
        let name = ResourceName::new(connector).map_err(|_| missing())?;
        let remote = self.remote(name.as_str(), now).await.map_err(|status| match status.code() {
            tonic::Code::NotFound => missing(),
            _ => status,
        })?;
        if claims_json.is_empty() {
            return Ok(Some(Said { connector: name.to_string(), claims: LoginClaims::unknown() }));
        }
        let claims = described_claims(claims_json)?;
        Ok(Some(claims.ruled(remote.connector(), None)))
    }
}

/// Claims as an administrator writes them: those of the ID token and of the user information in one object, and `scim.groups`.
fn described_claims(json: &str) -> Result<Claims, Status> {
    let wrong = |problem: String| {
        Status::invalid_argument(format!(
            "the claims {problem}: write a JSON object such as {{\"groups\": [\"ops\"], \"email\": \"a@example.com\", \"email_verified\": true}}"
        ))
    };
    if json.len() > CLAIMS_BYTES {
        return Err(wrong(format!("have {} bytes, and at most {CLAIMS_BYTES} are read", json.len())));
    }
    let token: Map<String, Value> = match serde_json::from_str(json) {
        Ok(Value::Object(members)) => members,
        Ok(_) => return Err(wrong("are not an object".to_owned())),
        Err(error) => return Err(wrong(format!("are not JSON ({error})"))),
    };
    let groups = token.get(PROVISIONED).and_then(|scim| scim.get("groups")).and_then(Value::as_array);
    let groups = groups.map(|groups| groups.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    Ok(Claims {
        identity: Identity { issuer: String::new(), subject: String::new() },
        token,
        userinfo: None,
        fetched: Map::new(),
        groups,
        renewal: None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn connector(more: &str) -> Connector {
        let text = format!(
            "kind: oidc\nversion: v1\nmetadata: {{name: corp}}\nspec: {{issuer: 'https://login.example.com', client_id: a, \
             client_secret_file: /etc/s, mapping: {{roles: [{{claim: sub, roles: [dev]}}]}}{more}}}\n"
        );
        Connector::parse(&text).unwrap()
    }

    /// A condition over what was said; none where it cannot be told.
    fn meets(claims: &LoginClaims, when: &str) -> Option<bool> {
        let text = format!(
            "kind: login_rule\nversion: v1\nmetadata: {{name: one}}\nspec:\n  then: deny\n  when: 'context has claims && {when}'\n"
        );
        let rule = sallyport_access::LoginRule::parse(&text).unwrap();
        let rules = sallyport_access::LoginRules::compile(vec![rule]).unwrap();
        let user = sallyport_access::UserName::new("alice").unwrap();
        let asked = sallyport_access::LoginAsked {
            user: &user,
            roles: &[],
            traits: &sallyport_access::Traits::new(),
            address: None,
            way: "single sign-on",
            factor_kind: "",
            second_factor: false,
            user_verified: false,
            single_sign_on: true,
            renewal: false,
            device: None,
            connector: "corp",
            claims: Some(claims),
        };
        rules.outcomes(&asked, OffsetDateTime::UNIX_EPOCH).remove(0).meets.ok()
    }

    #[test]
    fn rules_see_what_counts_and_nothing_of_the_protocol() {
        let mut said = described_claims(
            r#"{"groups": ["ops"], "realm_access": {"roles": ["auditor"]}, "email": "a@example.com", "nonce": "secret",
                "_claim_names": {"teams": "s"}, "scim": {"groups": ["staff"]}}"#,
        )
        .unwrap();
        said.userinfo = serde_json::from_str(r#"{"amr": ["mfa"], "title": "boss"}"#).unwrap();
        let claims = said.ruled(&connector(""), None).claims;
        for (when, expected) in [
            (
                r#"context.claims.hasTag("groups") && context.claims.getTag("groups").contains("ops")"#,
                Some(true),
            ),
            (r#"context.claims.hasTag("realm_access.roles")"#, Some(true)),
            (
                r#"context.claims.hasTag("scim.groups") && context.claims.getTag("scim.groups") == ["staff"]"#,
                Some(true),
            ),
            (r#"context.claims.hasTag("title")"#, Some(true)),
            // No provider has verified it, the user information is not signed for this login, and a nonce is no claim about a person.
            (r#"context.claims.hasTag("email")"#, Some(false)),
            (r#"context.claims.hasTag("amr")"#, Some(false)),
            (r#"context.claims.hasTag("nonce")"#, Some(false)),
            // Elsewhere, and not known.
            (r#"context.claims.hasTag("teams")"#, None),
            (r#"!context.claims.hasTag("teams.name")"#, None),
            (r#"context.claims.hasTag(context.user)"#, None),
        ] {
            assert_eq!(meets(&claims, when), expected, "{when}");
        }
        let any = connector(", email_without_verification: true");
        assert_eq!(meets(&said.ruled(&any, None).claims, r#"context.claims.hasTag("email")"#), Some(true));
        let unasked = said.ruled(&connector(""), Some(PROVISIONED)).claims;
        assert_eq!(meets(&unasked, r#"context.claims.hasTag("scim.groups")"#), None);
        for (json, problem) in
            [("[]", "are not an object"), ("{", "are not JSON"), (&" ".repeat(70_000), "have 70000 bytes")]
        {
            let told = described_claims(json).map(drop).unwrap_err();
            assert!(told.message().contains(problem), "{told:?}");
        }
    }
}
