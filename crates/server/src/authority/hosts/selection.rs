//! Which nodes a person or tool asks for: labels, words and a query.

use sallyport_access::query::{Query, Subject, glob};
use sallyport_access::{Database, Labels, Listed, Login, Node, Resource};
use sallyport_wire::v1;
use tonic::Status;

use crate::authority::hosts::presence::KnownNode;

/// Words and labels of one request; a person types a handful.
const MOST_PARTS: usize = 64;
/// Of one word or label.
const LONGEST_PART: usize = 1024;

/// What a request selects by.
#[derive(Debug)]
pub(crate) struct Selection {
    labels: Vec<(String, String)>,
    /// In lower case.
    words: Vec<String>,
    query: Option<Query>,
}

impl Selection {
    pub(crate) fn new(request: &v1::ListNodesRequest) -> Result<Self, Status> {
        let words: Vec<String> = request.search.split_whitespace().map(str::to_lowercase).collect();
        let lengths = words.iter().map(String::len);
        let lengths = lengths.chain(request.labels.iter().map(|(key, value)| key.len() + value.len()));
        if words.len() + request.labels.len() > MOST_PARTS || lengths.max() > Some(LONGEST_PART) {
            return Err(Status::invalid_argument(format!(
                "at most {MOST_PARTS} words and labels of {LONGEST_PART} bytes are allowed"
            )));
        }
        let query = match request.query.trim() {
            "" => None,
            text => Some(Query::parse(text).map_err(|error| Status::invalid_argument(error.to_string()))?),
        };
        let labels = request.labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        Ok(Self { labels, words, query })
    }

    /// By what a node is alone: cheap, and asked before the roles are.
    pub(crate) fn may_fit(&self, node: &Node) -> bool {
        let has = |(key, pattern): &(String, String)| {
            node.labels.value(key).is_some_and(|value| glob(pattern, value))
        };
        self.labels.iter().all(has) && self.words.iter().all(|word| says(node, word))
    }

    /// As [`Selection::may_fit`], by what a database or another resource is alone.
    pub(crate) fn may_fit_resource<R: Resource>(&self, resource: &R) -> bool {
        let has = |(key, pattern): &(String, String)| {
            resource.labels().value(key).is_some_and(|value| glob(pattern, value))
        };
        let says =
            |word: &String| resource.name().contains(word.as_str()) || labels_say(resource.labels(), word);
        self.labels.iter().all(has) && self.words.iter().all(says)
    }

    /// As [`Selection::fits`], of a resource without accounts.
    pub(crate) fn fits_listed(&self, listed: &Listed, online: bool) -> bool {
        let Some(query) = &self.query else { return true };
        query.holds(&Subject {
            id: "",
            name: listed.name.as_str(),
            labels: &listed.labels,
            version: "",
            os_user: "",
            kind: listed.kind.row().document,
            logins: &[],
            online,
        })
    }

    /// With the users that the caller may use there, who stand for the logins of a node.
    pub(crate) fn fits_database(&self, database: &Database, users: &[String], online: bool) -> bool {
        let Some(query) = &self.query else { return true };
        let logins: Vec<Login> = users.iter().filter_map(|user| Login::new(user.as_str()).ok()).collect();
        query.holds(&Subject {
            id: "",
            name: database.name.as_str(),
            labels: &database.labels,
            version: "",
            os_user: "",
            kind: "postgres",
            logins: &logins,
            online,
        })
    }

    /// With what the caller may do there.
    pub(crate) fn fits(&self, known: &KnownNode, logins: &[Login], online: bool) -> bool {
        let Some(query) = &self.query else { return true };
        query.holds(&Subject {
            id: &known.node.id.to_string(),
            name: known.node.name.as_str(),
            labels: &known.node.labels,
            version: &known.version,
            os_user: &known.os_user,
            kind: if known.openssh().is_some() { "openssh" } else { "sallyport" },
            logins,
            online,
        })
    }
}

fn says(node: &Node, word: &str) -> bool {
    // Names are in lower case by their type, and ids are written so.
    node.name.as_str().contains(word)
        || node.id.to_string().starts_with(word)
        || labels_say(&node.labels, word)
}

fn labels_say(labels: &Labels, word: &str) -> bool {
    labels.iter().any(|(key, value)| key.to_lowercase().contains(word) || value.to_lowercase().contains(word))
}

#[cfg(test)]
mod tests {
    use sallyport_access::{NodeKind, NodeName};

    use super::*;

    fn known() -> KnownNode {
        let node = Node {
            id: "5f1d0000-0000-4000-8000-000000000001".parse().unwrap(),
            name: NodeName::new("web-1").unwrap(),
            labels: [("env", "Prod"), ("team", "db")].into_iter().collect(),
            kind: NodeKind::Sallyport,
        };
        KnownNode {
            node,
            version: "0.1.0".to_owned(),
            os_user: "root".to_owned(),
            fixed: std::collections::BTreeMap::new(),
            databases_end_to_end: false,
            kinds: Vec::new(),
            last_seen: None,
        }
    }

    fn fits(search: &str, labels: &[(&str, &str)], query: &str) -> bool {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let request = v1::ListNodesRequest {
            labels,
            search: search.to_owned(),
            query: query.to_owned(),
            ..v1::ListNodesRequest::default()
        };
        let selection = Selection::new(&request).unwrap();
        let known = known();
        selection.may_fit(&known.node) && selection.fits(&known, &[Login::new("root").unwrap()], false)
    }

    #[test]
    fn words_labels_and_query_must_all_fit() {
        assert!(fits("", &[], ""));
        assert!(fits(
            "web PROD",
            &[("team", "d*")],
            "name.endsWith(\"-1\") && !online && \"root\" in logins"
        ));
        assert!(fits("5f1d", &[], ""));
        assert!(!fits("web dev", &[], ""));
        assert!(!fits("", &[("env", "prod")], ""), "labels are compared as they are");
        assert!(!fits("", &[], "online"));
        assert!(!fits("f1d0", &[], ""), "an id is searched from its beginning");
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let refused = |search: &str, query: &str| {
            let request = v1::ListNodesRequest {
                search: search.to_owned(),
                query: query.to_owned(),
                ..v1::ListNodesRequest::default()
            };
            Selection::new(&request).unwrap_err()
        };
        let status = refused("", "name = 'x'");
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert!(status.message().contains("column 6"), "{}", status.message());
        assert!(refused(&"x ".repeat(65), "").message().contains("at most 64"));
        assert!(refused(&"x".repeat(1025), "").message().contains("1024 bytes"));
    }
}
