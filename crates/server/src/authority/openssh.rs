//! Stock OpenSSH servers: registering them, and the certificates with which proxies stand before them.

use sallyport_access::yaml::{self, Errors, Problems, Section};
use sallyport_access::{
    HostId, HostRole, Identity, Labels, Login, NodeName, OpenSshServer, Principal, ServerTrust,
};
use sallyport_audit::Code;
use sallyport_ca::{
    CaKind, CertificateKind, HostRequest, MIN_TTL, SshOptions, check_ssh_accepted, issue_openssh_user,
    issue_target_host, keys,
};
use sallyport_store::typed;
use sallyport_wire::{convert, v1};
use time::OffsetDateTime;
use tonic::Status;

use super::Inner;
use super::admin::{Write, op};
use super::caller::Caller;
use super::hosts::{shown, storage};
use super::issued::with_certificates;
use super::names::{Claim, public_names, registered_name};
use super::resources;
use super::state::{HostRecord, NodeRecord};
use crate::config::HostPort;
use crate::openssh::default_host_key;
use crate::reach::written_apart;

/// The `sub_kind` of these nodes.
pub(super) const SUB_KIND: &str = "openssh";
/// The port of an address that names none.
const SSH_PORT: u16 = 22;
/// Names of one server.
const MOST_NAMES: usize = 32;
/// How long a proxy may stand for a server by one certificate. It renews well before.
const TARGET_TTL: time::Duration = time::Duration::hours(24);
/// How long a proxy may log in for a user by one certificate. It is needed for a login alone: what has begun goes on without.
const FOR_TARGET_TTL: time::Duration = time::Duration::minutes(5);

/// A registered server as an administrator writes it.
#[derive(Debug)]
pub(super) struct NodeDocument {
    pub(super) id: Option<HostId>,
    pub(super) name: NodeName,
    labels: Labels,
    openssh: OpenSshServer,
}

/// An address with or without a port.
pub(super) fn address(text: &str) -> Result<String, &'static str> {
    let bare = text.parse::<std::net::Ipv6Addr>().is_ok();
    let parsed = match text.parse::<HostPort>() {
        Ok(address) => address,
        Err(_) if bare => HostPort { host: text.to_owned(), port: SSH_PORT },
        Err(_) if !text.contains(':') => format!("{text}:{SSH_PORT}").parse()?,
        Err(problem) => return Err(problem),
    };
    if parsed.port == 0 {
        return Err("has the port 0, which nobody listens on");
    }
    Ok(parsed.to_string())
}

/// An address that a server says of itself. One that means another machine to each machine that dials it is an administrator's
/// to write: a token is not the right to have proxies and agents dial their own machines and what their cloud keeps for them.
fn joining_address(name: &NodeName, text: &str) -> Result<String, Status> {
    let address = address(text)
        .map_err(|problem| Status::invalid_argument(format!("the address {} {problem}", shown(text))))?;
    let host = address.parse::<HostPort>().map(|parsed| parsed.host).unwrap_or_default();
    match written_apart(&host) {
        None => Ok(address),
        Some(what) => Err(Status::permission_denied(format!(
            "{address} is {what}, which only an administrator registers: sallyport admin nodes add {name} --address {address}"
        ))),
    }
}

/// Reads the document of a node. Nodes with an agent describe themselves: only the other kind is written.
pub(super) fn document(text: &str) -> Result<NodeDocument, Errors> {
    let document = yaml::parse("node", text)?;
    let mut problems = Problems::new();
    let known = ["kind", "sub_kind", "version", "metadata", "spec"];
    let node = Section::read(&document, "", &known, &mut problems).and_then(|top| node(&top, &mut problems));
    problems.finish("node")?;
    node.ok_or_else(|| Errors { file: "node".to_owned(), problems: Vec::new() })
}

fn node(top: &Section<'_>, problems: &mut Problems) -> Option<NodeDocument> {
    if top.text("sub_kind", problems).as_deref() != Some(SUB_KIND) {
        problems.push(
            top.place("sub_kind"),
            "sub_kind",
            "is not openssh",
            "write sub_kind: openssh; nodes with an agent come by joining: sallyport admin tokens add",
        );
        return None;
    }
    let metadata = top.section("metadata", &["name", "id", "labels", "revision"], problems);
    let name = metadata.as_ref().and_then(|metadata| {
        metadata.parsed("name", "write the server's name, such as db-1", problems, |text| NodeName::new(text))
    });
    if metadata.as_ref().is_none_or(|metadata| metadata.present("name").is_none()) {
        problems.push(top.at(), "metadata.name", "is missing", "write metadata: with name: below it");
    }
    let id = metadata.as_ref().and_then(|metadata| {
        metadata.parsed("id", "leave it out, or write the id that `ls` shows", problems, |text| {
            text.parse::<HostId>()
        })
    });
    let labels = metadata.as_ref().map(|metadata| metadata.pairs("labels", problems)).unwrap_or_default();
    let Some(spec) = top.section("spec", &["address", "via", "host_key", "names", "trust"], problems) else {
        problems.push(top.at(), "spec", "is missing", "write spec: with address: HOST:PORT below it");
        return None;
    };
    let address = spec.parsed("address", "write host:port, such as 10.0.0.5:22", problems, address);
    if spec.present("address").is_none() {
        problems.push(spec.at(), "spec.address", "is missing", "write address: HOST:PORT");
    }
    let via = spec.parsed("via", "write the name of a node whose agent reaches it", problems, |text| {
        NodeName::new(text)
    });
    let host_key =
        spec.parsed("host_key", &format!("write the line of {}.pub", default_host_key()), problems, host_key);
    let names = spec.several("names", "write names or addresses of the server", problems, |text| {
        Ok::<_, std::convert::Infallible>(text.to_owned())
    });
    if names.len() > MOST_NAMES {
        let fix = format!("write at most {MOST_NAMES}");
        problems.push(spec.at(), "spec.names", format!("has {} names", names.len()), fix);
    }
    let trust = spec
        .parsed("trust", "write openssh, or user where sshd trusts the user CA alone", problems, |text| {
            text.parse::<ServerTrust>()
        })
        .unwrap_or_default();
    if trust == ServerTrust::User && host_key.is_some() {
        problems.push(
            spec.at(),
            "spec.trust",
            "is user, and a host key is pinned",
            "leave host_key out: a user's key signs for servers with a certificate alone (sallyport join openssh)",
        );
    }
    let openssh = OpenSshServer { address: address?, via, host_key, names, trust };
    Some(NodeDocument { id, name: name?, labels: labels.into_iter().collect(), openssh })
}

/// A host key line as it is stored: without its comment.
fn host_key(text: &str) -> Result<String, String> {
    keys::public_line(text).map_err(|error| error.to_string())
}

impl Inner {
    /// Registers a server, or changes what is registered of it.
    pub(super) async fn write_node(
        &self,
        caller: &Caller,
        document: NodeDocument,
        write: Write,
    ) -> Result<v1::Resource, Status> {
        let now = OffsetDateTime::now_utc();
        let NodeDocument { id, name, labels, mut openssh } = document;
        let is_new = id.is_none() && self.presence.find(name.as_str()).is_empty();
        if is_new || id.is_some_and(|id| self.presence.get(id).is_none_or(|known| known.node.name != name)) {
            registered_name(HostRole::OpenSsh, name.as_str(), &self.config.cluster)?;
        }
        openssh.names = public_names(&openssh.names, &self.config.cluster)?;
        if let Some(pinned) = &openssh.host_key {
            // Proxies and agents agree with the server on no key that the suite does not accept.
            check_ssh_accepted(self.authorities().suite(), pinned).map_err(|error| {
                Status::invalid_argument(format!(
                    "spec.host_key: {error}; pin another host key of the server: the line of /etc/ssh/ssh_host_ecdsa_key.pub"
                ))
            })?;
        }
        let known = match id {
            Some(id) => self.presence.get(id).into_iter().collect(),
            None => self.presence.find(name.as_str()),
        };
        let existing = match (known.as_slice(), write) {
            ([], Write::Update(_)) => return Err(Status::not_found(format!("there is no node {name}"))),
            ([], _) => None,
            ([one, ..], Write::Create) => {
                return Err(Status::already_exists(format!(
                    "there is a node {} already, {}; give the server another name, or change it: sallyport admin edit node/{}",
                    one.node.name, one.node.id, one.node.name
                )));
            }
            ([one], _) if one.openssh().is_some() => Some(one.clone()),
            ([one], _) => {
                return Err(Status::failed_precondition(format!(
                    "the node {} has an agent, which says itself what it is; give the server another name",
                    one.node.name
                )));
            }
            (several, _) => {
                return Err(Status::failed_precondition(format!(
                    "{} nodes are called {name}; write metadata.id",
                    several.len()
                )));
            }
        };
        let id = existing.as_ref().map(|known| known.node.id).or(id).unwrap_or_else(HostId::new);
        let record = NodeRecord {
            id,
            name,
            fixed: labels.clone().into(),
            labels,
            version: existing.as_ref().map(|known| known.version.clone()).unwrap_or_default(),
            os_user: String::new(),
            openssh: Some(openssh),
            databases_end_to_end: false,
        };
        let claim = Claim::of_node(&record, &self.config.cluster);
        let reserved = self
            .names
            .reserve(claim, None)
            .map_err(|taken| Status::already_exists(taken.advice(HostRole::OpenSsh)))?;
        let mut steps = vec![op(&id.to_string(), &record, None, write).map_err(|error| storage(&error))?];
        // The host certificate is for the name that is registered.
        let host =
            self.store.get::<HostRecord>(&id.to_string(), now).await.map_err(|error| storage(&error))?;
        if let Some(host) = host.filter(|host| host.value.name != record.name) {
            let renamed = HostRecord { name: record.name.clone(), ..host.value };
            let step = typed::update(&id.to_string(), host.revision, &renamed, host.expires);
            steps.push(step.map_err(|error| storage(&error))?);
        }
        let revisions = self.store.backend().transact(steps, now).await.map_err(|error| storage(&error))?;
        reserved.keep();
        self.presence.put(record.clone());
        let yaml = resources::node_yaml(&record);
        let code = if existing.is_some() { Code::NodeUpdated } else { Code::NodeCreated };
        let event = self
            .event(code, caller)
            .node(record.name.as_str())
            .message(format!("node/{}", record.name))
            .field("name", record.name.to_string())
            .field("yaml", yaml.clone());
        self.record(vec![event]).await?;
        let revision = revisions.first().copied().unwrap_or_default();
        Ok(resources::of("node", record.name.as_str(), revision, None, yaml))
    }

    /// The record of a server that joins: the one that is registered under its name, or a new one.
    pub(super) async fn joining_server(
        &self,
        request: &v1::JoinRequest,
        joining: &HostRecord,
        labels: Labels,
        replaces: bool,
        now: OffsetDateTime,
    ) -> Result<NodeRecord, Status> {
        let name = &joining.name;
        let registered: Vec<_> =
            self.presence.find(name.as_str()).into_iter().filter(|known| known.openssh().is_some()).collect();
        let known = registered.first();
        let bad = |problem: String| Status::invalid_argument(problem);
        if let Some(known) = known {
            // A token is not the right to take a server's place: what an administrator wrote stands, and a server
            // that has joined has its certificate already.
            let host = self.store.get::<HostRecord>(&known.node.id.to_string(), now).await;
            if host.map_err(|error| storage(&error))?.is_some() && !replaces {
                return Err(Status::already_exists(format!(
                    "the server {name} has joined already; renew there with `sallyport join openssh --renew`, or make a token that replaces it: sallyport admin tokens add --role openssh --replace {name}"
                )));
            }
            let pinned = known.openssh().and_then(|server| server.host_key.as_deref());
            let own = keys::public_line(&request.ssh_public_key).map_err(|error| bad(error.to_string()))?;
            if pinned.is_some_and(|pinned| pinned != own) {
                return Err(Status::permission_denied(format!(
                    "the server {name} is registered with another host key than the one that joins"
                )));
            }
        }
        let address = match (request.address.as_str(), known.and_then(super::view::Known::openssh)) {
            ("", Some(openssh)) => openssh.address.clone(),
            (text, Some(openssh)) if address(text).as_deref() != Ok(openssh.address.as_str()) => {
                return Err(Status::permission_denied(format!(
                    "the server {name} is registered at {}; to move it: sallyport admin edit node/{name}",
                    openssh.address
                )));
            }
            ("", None) => {
                return Err(bad(format!(
                    "no server {name} is registered, so its address is needed: join with --address HOST:PORT"
                )));
            }
            (text, Some(_)) => {
                address(text).map_err(|problem| bad(format!("the address {} {problem}", shown(text))))?
            }
            (text, None) => joining_address(name, text)?,
        };
        let via = match request.via.as_str() {
            "" => known.and_then(|known| known.openssh()?.via.clone()),
            text => Some(NodeName::new(text).map_err(|error| bad(error.to_string()))?),
        };
        let host_key = known.and_then(|known| known.openssh()?.host_key.clone());
        let registered = known.and_then(|known| Some(known.openssh()?.trust));
        let trust = match (request.trust.as_str(), registered) {
            ("", registered) => registered.unwrap_or_default(),
            (text, registered) => {
                let asked =
                    text.parse::<ServerTrust>().map_err(|problem| bad(format!("the trust {problem}")))?;
                if let Some(registered) = registered.filter(|registered| *registered != asked) {
                    return Err(Status::permission_denied(format!(
                        "the server {name} is registered with trust: {}, and joins with {}; to change it: sallyport admin edit node/{name}",
                        registered.name(),
                        asked.name()
                    )));
                }
                asked
            }
        };
        // Labels that an administrator has written stay; those of the token win.
        let mut own: std::collections::BTreeMap<String, String> =
            known.map(|known| known.node.labels.clone().into()).unwrap_or_default();
        own.extend(std::collections::BTreeMap::<String, String>::from(labels));
        Ok(NodeRecord {
            id: joining.id,
            name: name.clone(),
            fixed: own.clone(),
            labels: own.into_iter().collect(),
            version: String::new(),
            os_user: String::new(),
            openssh: Some(OpenSshServer {
                address,
                via,
                host_key,
                names: joining.public_names.clone(),
                trust,
            }),
            databases_end_to_end: false,
        })
    }

    /// A host certificate for the name of a registered server, over a proxy's key.
    pub(super) async fn certify_target(
        &self,
        caller: &Caller,
        identity: &Identity,
        request: &v1::CertifyTargetRequest,
    ) -> Result<v1::CertifyTargetResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let target = self.registered(&request.node_id)?;
        let authorities = self.authorities();
        let wrong = |error: sallyport_ca::CaError| Status::invalid_argument(error.to_string());
        check_ssh_accepted(authorities.suite(), &request.ssh_public_key).map_err(wrong)?;
        let names = target.openssh().map(|openssh| openssh.names.clone()).unwrap_or_default();
        let asked = HostRequest {
            id: target.node.id,
            name: &target.node.name,
            role: HostRole::OpenSsh,
            join_id: identity.login_id,
            public_names: &names,
            ssh_public_key: &request.ssh_public_key,
            tls_spki: &[],
        };
        let ttl = TARGET_TTL.min(self.config.lifetimes.bounds(CertificateKind::Host).max);
        let made = issue_target_host(authorities.signer(CaKind::Host)?, &asked, now, ttl).map_err(wrong)?;
        let event = self
            .event(Code::HostCertIssued, caller)
            .user(identity.display_name())
            .node(target.node.name.as_str())
            .message("for a proxy that stands before the server")
            .field("host_id", target.node.id.to_string())
            .field("ttl_seconds", ttl.whole_seconds());
        self.record(vec![with_certificates(event, std::slice::from_ref(&made.issued))]).await?;
        Ok(v1::CertifyTargetResponse {
            ssh_certificate: made.line,
            valid_until: Some(convert::time_to_proto(made.issued.valid_before)),
        })
    }

    /// A certificate of the openssh CA for a user's login on a registered server, over a proxy's key. The roles are
    /// asked here, too: what a proxy says is not enough.
    pub(super) async fn certify_for_target(
        &self,
        caller: &Caller,
        proxy: &Identity,
        request: &v1::CertifyForTargetRequest,
    ) -> Result<v1::CertifyForTargetResponse, Status> {
        let now = OffsetDateTime::now_utc();
        let target = self.registered(&request.node_id)?;
        let login =
            Login::new(&request.login).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let wrong = |error: sallyport_ca::CaError| Status::invalid_argument(error.to_string());
        let user = keys::certificate(&request.user_certificate).map_err(wrong)?;
        let authorities = self.with_signer(CaKind::Openssh).await?;
        let user = authorities
            .trust()
            .verify_user_ssh(&user, now)
            .map_err(|error| Status::permission_denied(format!("the user's certificate: {error}")))?;
        let (view, mut user) = (self.view(), self.current(&user)?.into_owned());
        let permit = view
            .policies
            .decide(&user, &target.node, &login, &view.locks, now)
            .map_err(|refusal| Status::permission_denied(refusal.public_message()))?;
        check_ssh_accepted(authorities.suite(), &request.ssh_public_key).map_err(wrong)?;
        let options = permit.options();
        // After the roles: what they refuse does not use up the word.
        let asked = (&target.node, login.as_str());
        let word = self.login_words.take(
            authorities.trust(),
            &self.config.cluster,
            asked,
            &request.user_certificate,
            request.word.as_ref(),
            now,
        );
        let by = match word {
            Ok(()) => user.display_name(),
            Err(problem) if options.require_login_word => {
                return Err(Status::permission_denied(format!(
                    "the roles of {} want the word of their own program for this login (require_login_word), and {problem}; \
                     connect with sallyport ssh, or with ssh as sallyport config writes it",
                    user.display_name()
                )));
            }
            Err(_) => proxy.display_name(),
        };
        let (tcp, sockets) = (options.port_forwarding, options.stream_local_forwarding);
        let allowed = SshOptions {
            permit_pty: true,
            port_forwarding: tcp.local || tcp.remote || sockets.local || sockets.remote,
            agent_forwarding: options.forward_agent,
            x11_forwarding: options.x11_forwarding,
        };
        let ttl = FOR_TARGET_TTL.min(user.valid_before - now).max(MIN_TTL);
        let Principal::User { logins, .. } = &mut user.principal else {
            return Err(Status::permission_denied("only users log in to servers"));
        };
        *logins = vec![login.clone()];
        let signer = authorities.signer(CaKind::Openssh)?;
        // Of servers that joined with an earlier release, sshd compares the login alone.
        let only_at = self.confirmations.takes_own_logins(target.node.id).then_some(target.node.id);
        let made = issue_openssh_user(signer, &user, &request.ssh_public_key, now, ttl, &allowed, only_at)
            .map_err(wrong)?;
        let event = self
            .event(Code::CertIssued, caller)
            .user(user.display_name())
            .login(login.as_str())
            .node(target.node.name.as_str())
            .message(format!("for {} on the way to the server", proxy.display_name()))
            .field("ttl_seconds", ttl.whole_seconds())
            .field("word_of", by);
        self.record(vec![with_certificates(event, std::slice::from_ref(&made.issued))]).await?;
        Ok(v1::CertifyForTargetResponse {
            ssh_certificate: made.line,
            valid_until: Some(convert::time_to_proto(made.issued.valid_before)),
        })
    }

    fn registered(&self, id: &str) -> Result<super::view::Known, Status> {
        let id = id.parse::<HostId>().map_err(|error| Status::invalid_argument(error.to_string()))?;
        self.presence
            .get(id)
            .filter(|known| known.openssh().is_some())
            .ok_or_else(|| Status::permission_denied(format!("{id} is not a registered OpenSSH server")))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_have_a_port() {
        assert_eq!(address("db.example.com").unwrap(), "db.example.com:22");
        assert_eq!(address("10.0.0.5:2222").unwrap(), "10.0.0.5:2222");
        assert_eq!(address("::1").unwrap(), "[::1]:22");
        assert_eq!(address("[::1]:22").unwrap(), "[::1]:22");
        for bad in ["", ":22", "host:", "host:0", "a b:22", "host:99999"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = "kind: node\nsub_kind: openssh\nversion: v1\nmetadata:\n  name: db-1\n  labels: {env: prod}\n\
                    spec:\n  address: 10.0.0.5\n  via: gate\n  trust: user\n";
        let read = document(text).unwrap();
        assert_eq!((read.openssh.address.as_str(), read.openssh.trust), ("10.0.0.5:22", ServerTrust::User));
        let record = NodeRecord {
            id: HostId::new(),
            name: read.name,
            fixed: read.labels.clone().into(),
            labels: read.labels,
            version: String::new(),
            os_user: String::new(),
            openssh: Some(read.openssh),
            databases_end_to_end: false,
        };
        let again = document(&resources::node_yaml(&record)).unwrap();
        assert_eq!((again.id, again.openssh), (Some(record.id), record.openssh.unwrap()));
    }

    #[test]
    fn mistakes_are_told_all_at_once() {
        let errors = document("kind: node\nsub_kind: openssh\nspec: {adress: x, via: 'a b'}\n").unwrap_err();
        let text = errors.to_string();
        for part in ["metadata.name", "adress", "spec.address", "spec.via"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBNNVJQ1HqzZOvWkTsMhfpEYjaLGzS8aCcdT5vEYTR6w";
        for (spec, part) in
            [("trust: nobody", "spec.trust"), (&*format!("trust: user, host_key: {key}"), "pinned")]
        {
            let text = format!(
                "kind: node\nsub_kind: openssh\nversion: v1\nmetadata: {{name: x}}\nspec: {{address: y, {spec}}}\n"
            );
            let errors = document(&text).unwrap_err().to_string();
            assert!(errors.contains(part), "{part}: {errors}");
        }
        assert!(document("kind: node\nmetadata: {name: x}\nspec: {address: y}\n").is_err());
    }
}
