//! The kinds of resource that sessions are with: a row of one table each. Documents, roles, locks, the policy's schema and rules of
//! the API read the table, so that a kind which differs in nothing else is one row.

use std::borrow::Cow;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What a kind of resource is called, and what roles say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindRow {
    /// Its documents' `kind`, its name in rules of the API and in keys of the state, and what a lock's target is called.
    pub document: &'static str,
    /// What one of them is called in messages.
    pub word: &'static str,
    /// What several are called: the section of an agent's configuration that lists them.
    pub plural: &'static str,
    /// The key of roles that selects them by their labels.
    pub labels: &'static str,
    /// The type in the policy's schema.
    pub entity: &'static str,
    /// What Cedar is asked about them.
    pub action: &'static str,
    /// What the question says besides the labels, with the types of the schema.
    pub asked: &'static [(&'static str, &'static str)],
    /// What it needs code of its own for.
    pub nature: Nature,
}

/// What a kind needs code of its own for. Where that differs, a match over this asks the compiler for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// It is a host or a registered server, with accounts.
    Node,
    /// It has accounts, and agents get certificates for them.
    Database,
    /// Nothing: the authority keeps it in the catalogue, as [`crate::Listed`], and labels alone grant sessions.
    Listed,
}

impl KindRow {
    /// A kind that the catalogue keeps.
    #[must_use]
    pub const fn listed(
        document: &'static str,
        word: &'static str,
        plural: &'static str,
        labels: &'static str,
        entity: &'static str,
        action: &'static str,
    ) -> Self {
        Self { document, word, plural, labels, entity, action, asked: &[], nature: Nature::Listed }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident: $row:expr;)+) => {
        /// A kind of resource.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[$doc])* $name,)+
        }

        impl Kind {
            /// Every kind, in the order in which roles are written.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// What is known of it.
            #[must_use]
            pub const fn row(self) -> &'static KindRow {
                match self {
                    $(Self::$name => const { &$row },)+
                }
            }
        }
    };
}

kinds! {
    /// A server that is logged in to.
    Node: KindRow {
        document: "node",
        word: "node",
        plural: "nodes",
        labels: "node_labels",
        entity: "Node",
        action: "login",
        // The account asked for.
        asked: &[("login", "String")],
        nature: Nature::Node,
    };
    /// A database server.
    Database: KindRow {
        document: "db",
        word: "database",
        plural: "databases",
        labels: "db_labels",
        entity: "Database",
        action: "connect",
        // The user and the database within the server, and whether that user has the caller's own name and users are made there.
        asked: &[("db_user", "String"), ("db_name", "String"), ("own", "Bool")],
        nature: Nature::Database,
    };
    /// A program that listens on TCP.
    App: KindRow::listed("app", "application", "apps", "app_labels", "App", "use-app");
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.row().document)
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let document = Cow::<'de, str>::deserialize(deserializer)?;
        Self::of_document(&document).ok_or_else(|| D::Error::custom("no kind of resource"))
    }
}

impl Kind {
    /// The kind of documents of this `kind`.
    #[must_use]
    pub fn of_document(document: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.row().document == document)
    }

    /// The kinds that the catalogue keeps.
    pub fn listed() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|kind| kind.is_listed())
    }

    /// Whether the catalogue keeps it.
    #[must_use]
    pub fn is_listed(self) -> bool {
        matches!(self.row().nature, Nature::Listed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Two kinds of one name would take each other's rules.
    #[test]
    fn no_two_kinds_share_a_name() {
        let columns: [fn(&KindRow) -> &str; 6] = [
            |row| row.document,
            |row| row.word,
            |row| row.plural,
            |row| row.labels,
            |row| row.entity,
            |row| row.action,
        ];
        for column in columns {
            let names: BTreeSet<&str> = Kind::ALL.iter().map(|kind| column(kind.row())).collect();
            assert_eq!(names.len(), Kind::ALL.len(), "{names:?}");
        }
        for kind in Kind::ALL {
            assert_eq!(Kind::of_document(kind.row().document), Some(*kind));
        }
        assert_eq!(Kind::of_document("role"), None);
    }
}
