//! The document of a registered OpenSSH server.

use sallyport_access::yaml::{Errors, Problems, Section};
use sallyport_access::{HostId, Labels, NodeName, OpenSshServer, ServerTrust, read_document};
use sallyport_ca::{CaError, keys};

use crate::config::HostPort;
use crate::member::host_keys::default_host_key;

/// The `sub_kind` of these nodes.
pub(crate) const SUB_KIND: &str = "openssh";

/// The port of an address that names none.
const SSH_PORT: u16 = 22;

/// Names of one server.
const MOST_NAMES: usize = 32;

/// A registered server as an administrator writes it.
#[derive(Debug)]
pub(crate) struct NodeDocument {
    pub(crate) id: Option<HostId>,
    pub(crate) name: NodeName,
    pub(crate) labels: Labels,
    pub(crate) openssh: OpenSshServer,
}

/// An address with or without a port.
pub(crate) fn address(text: &str) -> Result<String, &'static str> {
    let bare = text.parse::<std::net::Ipv6Addr>().is_ok();
    let parsed = match text.parse::<HostPort>() {
        Ok(address) => address,
        Err(_) if bare => HostPort { host: text.to_owned(), port: SSH_PORT },
        Err(_) if !text.contains(':') => format!("{text}:{SSH_PORT}").parse()?,
        Err(problem) => return Err(problem),
    };
    if parsed.port == 0 {
        return Err("has the port 0, on which nothing can listen");
    }
    Ok(parsed.to_string())
}

/// Reads the document of a node. Nodes with an agent describe themselves: only the other kind is written.
pub(crate) fn document(text: &str) -> Result<NodeDocument, Errors> {
    read_document("node", text, &["kind", "sub_kind", "version", "metadata", "spec"], node)
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
fn host_key(text: &str) -> Result<String, CaError> {
    keys::public_line(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::authority::records::NodeRecord;
    use crate::authority::resources::documents::node_yaml;

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
            kinds: Vec::new(),
        };
        let again = document(&node_yaml(&record)).unwrap();
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
