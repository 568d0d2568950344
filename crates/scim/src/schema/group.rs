//! The schema of groups (RFC 7643 §4.2).

use super::row::{Attribute, Schema};

/// The core schema of groups. `$ref` and `type` of a member are the server's to say: it knows what the identifier is of.
pub(crate) static GROUP: Schema = Schema {
    id: "urn:ietf:params:scim:schemas:core:2.0:Group",
    name: "Group",
    description: "Group",
    attributes: &[
        Attribute::text("displayName", "A name of the group for people.").required(),
        Attribute::complex(
            "members",
            "The users and groups in the group.",
            &[
                Attribute::text("value", "The identifier of the member.").case_exact().immutable(),
                Attribute::reference("$ref", "The address of the member.", &["User", "Group"])
                    .immutable()
                    .computed(),
                Attribute::text("type", "What the member is.")
                    .one_of(&["User", "Group"])
                    .immutable()
                    .computed(),
            ],
        )
        .many(),
    ],
};
