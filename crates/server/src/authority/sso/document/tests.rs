use sallyport_sal::KeyAlgorithm;

use super::*;

const FULL: &str = "kind: oidc
version: v1
metadata: {name: corp, description: Everyone}
spec:
  title: Corporate login
  issuer: https://login.example.com/tenant
  client_id: sallyport
  private_key_jwt: {algorithm: ES256}
  scopes: [openid, groups]
  redirect_urls: ['https://a.example.com/web/sso/callback/corp', 'https://b.example.com:8443/web/sso/callback']
  max_age: 8h
  max_people: 500
  scim: {external_id: '{{claims.oid}}'}
  acr_values: ['urn:mace:incommon:iap:silver']
  prompt: select_account
  amr_is_second_factor: [mfa, hwk]
  algorithms: [ES256]
  mapping:
    roles:
      - {claim: groups, value: 'ops-*', roles: [admin, 'team-{{claims.department}}']}
      - {claim: '[\"https://example.com/roles\"].name', roles: [dev]}
      - {claim: groups, matches: '(qa|dev)-.*', roles: [dev]}
    traits:
      logins: ['{{claims.preferred_username}}', deploy]
      shell: '{{claims.shell}}'
      teams: {claim: groups, value: 'team-*'}
      env:
        - {claim: groups, value: 'ops-*', values: [prod, 'of-{{claims.department}}']}
        - {claim: groups, matches: 'dev|qa', values: [dev]}
  username: '{{claims.email}}'
  email_without_verification: true
  allowed_hosts: [graph.microsoft.com]
  ca_file: /etc/ssl/corp.pem
  user_lifetime: 1h30m
  refresh: {interval: 5m, grace: 30m}
  logout: back-channel
";

#[test]
fn a_connector_survives_being_written() {
    let connector = Connector::parse(FULL).unwrap();
    assert_eq!(connector.allowed_hosts[0].to_string(), "graph.microsoft.com:443");
    assert_eq!(connector.proof, ClientProof::Key(KeyAlgorithm::EcdsaP256));
    let sources: Vec<_> =
        connector.mapping.traits.iter().map(|(name, of)| (name.as_str(), of.len())).collect();
    assert_eq!(sources, [("env", 2), ("logins", 2), ("shell", 1), ("teams", 1)]);
    assert_eq!(Connector::parse(&connector.to_yaml()).unwrap(), connector);
    let least = "kind: oidc\nversion: v1\nmetadata: {name: g}\nspec: {issuer: 'https://accounts.google.com', client_id: a, \
                 client_secret_file: /etc/s, mapping: {roles: [{claim: sub, roles: [dev]}]}}\n";
    let connector = Connector::parse(least).unwrap();
    assert_eq!(connector.title, "g");
    assert_eq!(connector.scopes, ["openid", "profile", "email"]);
    assert_eq!(connector.max_people, 20_000);
    assert_eq!(
        (connector.user_lifetime, connector.back_channel_logout),
        (Duration::from_secs(12 * 3600), false)
    );
    assert_eq!(Connector::parse(&connector.to_yaml()).unwrap(), connector);
}

#[test]
fn browsers_come_back_to_where_they_came_from_and_to_nowhere_else() {
    let mut connector = Connector::parse(FULL).unwrap();
    let of =
        |connector: &Connector, origin: &str| connector.redirect_url(origin, "c.example.com:443").unwrap();
    assert_eq!(of(&connector, "https://b.example.com:8443"), "https://b.example.com:8443/web/sso/callback");
    for foreign in ["https://evil.example", "https://b.example.com", "", "https://a.example.com/web"] {
        assert_eq!(of(&connector, foreign), "https://a.example.com/web/sso/callback/corp", "{foreign}");
    }
    connector.redirect_urls.clear();
    assert_eq!(of(&connector, "https://evil.example"), "https://c.example.com/web/sso/callback/corp");
    assert_eq!(connector.redirect_url("", ""), None);
}

#[test]
fn every_mistake_is_named_with_its_path() {
    let wrong = "kind: oidc
version: v1
metadata: {name: Corp}
spec:
  title: \"a\\u202eb\"
  issuer: http://login.example.com
  scopes: [profile]
  redirect_urls: ['https://a.example.com/callback', 'http://a.example.com/web/sso/callback']
  max_age: 90d
  prompt: none
  algorithms: [none, HS256]
  mapping:
    roles: [{value: x, roles: ['no role']}, {claim: 'a..b', roles: [x]}]
    traits: {logins: ['{{name}}']}
  username: '{{claims.'
  scim: {external_id: always-the-same, username: x}
  allowed_hosts: ['https://graph.microsoft.com']
  ca_file: corp.pem
  user_lifetime: 10s
  logout: front-channel
  roles: []
";
    let told = Connector::parse(wrong).unwrap_err();
    let keys: Vec<&str> = told.problems.iter().map(|problem| problem.key.as_str()).collect();
    for key in [
        "metadata.name",
        "spec.title",
        "spec.issuer",
        "spec.client_id",
        "spec.client_secret_file",
        "spec.scopes",
        "spec.redirect_urls",
        "spec.max_age",
        "spec.prompt",
        "spec.algorithms",
        "spec.mapping.roles[0].claim",
        "spec.mapping.roles[0].roles",
        "spec.mapping.roles[1].claim",
        "spec.mapping.traits.logins",
        "spec.username",
        "spec.scim.external_id",
        "spec.scim.username",
        "spec.allowed_hosts",
        "spec.ca_file",
        "spec.user_lifetime",
        "spec.logout",
        "spec.roles",
    ] {
        assert!(keys.contains(&key), "{key}: {told}");
    }
    // Without TLS only where the document says so, and only on this machine.
    let local = FULL.replace("https://login.example.com/tenant", "http://127.0.0.1:9000");
    assert!(Connector::parse(&local).unwrap_err().to_string().contains("insecure_loopback"));
    assert!(Connector::parse(&format!("{local}  insecure_loopback: true\n")).is_ok());
    let mixed = Connector::parse(&format!("{FULL}  insecure_loopback: true\n")).unwrap_err();
    assert!(mixed.to_string().contains("the issuer is on another machine"), "{mixed}");
    let any = Connector::parse(&FULL.replace("'team-{{", "'{{")).unwrap_err().to_string();
    assert!(any.contains("begins with a claim"), "{any}");
    let two = format!("{FULL}  client_secret_file: /etc/s\n");
    assert!(Connector::parse(&two).unwrap_err().to_string().contains("spec.private_key_jwt"));
    // The address of another connector, and what looks like one's own.
    for other in [
        "callback/other",
        "callback/corp/",
        "callback/corp/x",
        "callback/",
        "callback/corp?x=y",
        "callback/Corp",
    ] {
        let document = FULL.replace("callback/corp", other);
        let told = Connector::parse(&document).unwrap_err().to_string();
        assert!(told.contains("write https://PROXY/web/sso/callback/corp"), "{other}: {told}");
    }
    let path = FULL.replace("/etc/ssl/corp.pem", "/etc/ssl/../shadow");
    assert!(Connector::parse(&path).unwrap_err().to_string().contains("spec.ca_file"));
}

#[test]
fn a_rule_of_a_trait_that_is_none_says_what_is_wrong_with_it() {
    for (env, key, problem) in [
        ("[{value: x, values: [y]}]", "env[0].claim", "is missing"),
        ("[a, {claim: groups, matches: '(', values: [y]}]", "env[1].matches", "no regular expression"),
        ("[{claim: groups, roles: [y]}]", "env[0].roles", "no such key"),
        ("[{claim: groups, values: []}]", "env[0].values", "gives no value"),
        ("[{claim: groups, values: ['{{groups}}']}]", "env[0].values", "claims."),
        ("[{claim: 'a..b', values: [y]}]", "env[0].claim", "a name is empty"),
        ("[[a]]", "env", "expected a template or a rule"),
        ("{claim: groups, value: x, vales: [y]}", "env.vales", "did you mean values?"),
    ] {
        let document = FULL
            .replace("      shell: '{{claims.shell}}'\n", "")
            .replace("      env:\n", &format!("      env: {env}\n      more:\n"));
        let told = Connector::parse(&document).unwrap_err();
        let key = format!("spec.mapping.traits.{key}");
        let text = told.to_string();
        assert!(told.problems.iter().any(|one| one.key == key) && text.contains(problem), "{env}: {text}");
    }
}

#[test]
fn the_examples_of_the_guide_are_connectors() {
    let guide = include_str!("../../../../../../docs/sso.md");
    let blocks: Vec<&str> =
        guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    for yaml in &blocks {
        drop(Connector::parse(yaml).unwrap_or_else(|errors| panic!("{errors}\n{yaml}")));
    }
    assert_eq!(blocks.len(), 8);
    let settings = guide.split("## Settings").nth(1).unwrap();
    let hubs = guide.split("## GitHub and GitLab").nth(1).unwrap();
    for key in crate::authority::sso::hubs::KEYS.iter().flat_map(|keys| keys.iter()) {
        assert!(
            hubs.contains(&format!("`{key}`")) || settings.contains(&format!("| `{key}` |")),
            "what is {key}?"
        );
    }
    for key in SPEC.iter().filter(|key| **key != "mapping") {
        assert!(settings.contains(&format!("| `{key}` |")), "the guide does not say what {key} is");
    }
}

#[test]
fn connectors_to_github_and_gitlab_survive_being_written_and_reach_the_right_servers() {
    let of = |kind: &str, more: &str| {
        format!(
            "kind: {kind}\nversion: v1\nmetadata: {{name: hub}}\nspec:\n  client_id: a\n  client_secret_file: /etc/s\n  mapping: {{roles: \
             [{{claim: teams, value: 'acme/*', roles: [dev]}}]}}\n{more}"
        )
    };
    for (more, api) in [
        ("", "https://api.github.com"),
        ("  url: https://github.com/\n", "https://api.github.com"),
        ("  url: https://acme.ghe.com\n", "https://api.acme.ghe.com"),
        ("  url: https://git.example.com:8443\n", "https://git.example.com:8443/api/v3"),
    ] {
        let document = of("github", &format!("  organizations: [Acme]\n{more}"));
        let connector = Connector::parse(&document).unwrap();
        let Protocol::GitHub(github) = &connector.protocol else { panic!("{connector:?}") };
        assert_eq!((github.api.as_str(), github.organizations.as_slice()), (api, &["acme".to_owned()][..]));
        assert_eq!(connector.scopes, ["read:org"]);
        assert_eq!(Connector::parse(&connector.to_yaml()).unwrap(), connector, "{}", connector.to_yaml());
        assert!(connector.to_yaml().starts_with("kind: github\n"));
    }
    let email = of("github", "  organizations: [acme]\n  username: '{{claims.email}}'\n");
    assert_eq!(Connector::parse(&email).unwrap().scopes, ["read:org", "user:email"]);
    let known = of("github", "  organizations: [acme]\n  scim: {external_id: '{{claims.email}}'}\n");
    assert_eq!(Connector::parse(&known).unwrap().scopes, ["read:org", "user:email"]);
    let lab = of(
        "gitlab",
        "  scim: {external_id: '{{claims.sub}}'}\n  url: https://git.example.com/gitlab/\n  refresh: {}\n  title: Lab\n",
    );
    let connector = Connector::parse(&lab).unwrap();
    assert_eq!(
        (connector.issuer.as_str(), connector.protocol.kind()),
        ("https://git.example.com/gitlab", "gitlab")
    );
    assert_eq!(connector.refresh.map(|refresh| refresh.interval.as_secs()), Some(600));
    assert_eq!(Connector::parse(&connector.to_yaml()).unwrap(), connector, "{}", connector.to_yaml());
    for (kind, more, problem) in [
        ("github", "", "spec.organizations"),
        ("github", "  organizations: []\n", "spec.organizations"),
        ("github", "  organizations: ['acme/ops']\n", "no name of an organisation"),
        ("github", "  organizations: [acme]\n  url: http://git.example.com\n", "has no TLS"),
        ("github", "  organizations: [acme]\n  url: https://git.example.com/a\n", "has a path"),
        ("github", "  organizations: [acme]\n  refresh: {}\n", "spec.refresh"),
        ("github", "  organizations: [acme]\n  insecure_loopback: true\n", "on another machine"),
        ("gitlab", "  organizations: [acme]\n", "spec.organizations"),
        ("gitlab", "  issuer: https://gitlab.com\n", "spec.issuer"),
        ("gitlab", "  scim: {}\n", "spec.scim.external_id"),
        ("gitlab", "  scim: {external_id: '{{claims.scim.groups}}'}\n", "reads what the SCIM client says"),
        ("gitlab", "  refresh: {interval: 2d}\n", "spec.refresh.interval"),
    ] {
        let told = Connector::parse(&of(kind, more)).unwrap_err().to_string();
        assert!(told.contains(problem), "{told}");
    }
}

/// A document that is cut anywhere, or has a byte of its changed, is refused or is a connector.
#[test]
fn no_text_is_too_odd() {
    let hub = "kind: github\nversion: v1\nmetadata: {name: hub}\nspec: {client_id: a, client_secret_file: /etc/s, organizations: [acme], \
               mapping: {roles: [{claim: teams, roles: [dev]}]}}\n";
    let lab = hub.replace("github", "gitlab").replace("organizations: [acme]", "refresh: {interval: 1m}");
    for whole in [FULL, hub, &lab] {
        assert!(Connector::parse(whole).is_ok(), "{whole}");
        for end in (0..whole.len()).step_by(3) {
            let mut bytes = whole.as_bytes().to_vec();
            for text in [String::from_utf8(bytes[..end].to_vec()).unwrap(), {
                bytes[end] = if bytes[end] == b'{' { b':' } else { b'{' };
                String::from_utf8(bytes).unwrap()
            }] {
                if let Ok(connector) = Connector::parse(&text) {
                    assert_eq!(Connector::parse(&connector.to_yaml()).unwrap(), connector, "{text}");
                }
            }
        }
    }
}
