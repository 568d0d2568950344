//! The schemas of the discovery documents themselves (RFC 7643 §5, §6, §7 and §8.7.2).

use super::row::{Attribute, Schema};

const SUPPORTED: Attribute =
    Attribute::boolean("supported", "Whether it is supported.").required().read_only();

/// What the service provider supports.
pub(crate) static SERVICE_PROVIDER_CONFIG: Schema = Schema {
    id: "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig",
    name: "ServiceProviderConfig",
    description: "What the service provider supports",
    attributes: &[
        Attribute::reference("documentationUri", "The address of its documentation.", &["external"])
            .read_only(),
        Attribute::complex("patch", "PATCH.", &[SUPPORTED]).required().read_only(),
        Attribute::complex(
            "bulk",
            "Bulk operations.",
            &[
                SUPPORTED,
                Attribute::integer("maxOperations", "Most operations of a request.").required().read_only(),
                Attribute::integer("maxPayloadSize", "Longest request, in bytes.").required().read_only(),
            ],
        )
        .required()
        .read_only(),
        Attribute::complex(
            "filter",
            "Filters.",
            &[
                SUPPORTED,
                Attribute::integer("maxResults", "Most resources of an answer.").required().read_only(),
            ],
        )
        .required()
        .read_only(),
        Attribute::complex("changePassword", "Changes of passwords.", &[SUPPORTED]).required().read_only(),
        Attribute::complex("sort", "Sorting.", &[SUPPORTED]).required().read_only(),
        Attribute::complex("etag", "Versions of resources.", &[SUPPORTED]).required().read_only(),
        Attribute::complex(
            "authenticationSchemes",
            "Ways in which clients say who they are.",
            &[
                Attribute::text("type", "The kind of the way.").required().read_only(),
                Attribute::text("name", "Its name.").required().read_only(),
                Attribute::text("description", "What it is.").required().read_only(),
                Attribute::reference("specUri", "Its specification.", &["external"]).read_only(),
                Attribute::reference("documentationUri", "Its documentation.", &["external"]).read_only(),
                Attribute::boolean("primary", "Whether it is the preferred one.").read_only(),
            ],
        )
        .many()
        .required()
        .read_only(),
    ],
};

/// A kind of resource.
pub(crate) static RESOURCE_TYPE: Schema = Schema {
    id: "urn:ietf:params:scim:schemas:core:2.0:ResourceType",
    name: "ResourceType",
    description: "A kind of resource",
    attributes: &[
        Attribute::text("id", "The identifier of the resource type.").read_only(),
        Attribute::text("name", "Its name.").required().read_only(),
        Attribute::text("description", "What it is.").read_only(),
        Attribute::reference("endpoint", "Where its resources are.", &["uri"]).required().read_only(),
        Attribute::reference("schema", "Its schema.", &["uri"]).required().read_only(),
        Attribute::complex(
            "schemaExtensions",
            "Extensions of its schema.",
            &[
                Attribute::reference("schema", "The extension's schema.", &["uri"]).required().read_only(),
                Attribute::boolean("required", "Whether each resource has it.").required().read_only(),
            ],
        )
        .many()
        .read_only(),
    ],
};

/// The fields of an attribute's definition, for the attributes of a schema and for their sub-attributes.
const fn definition(subs: &'static [Attribute]) -> [Attribute; 12] {
    [
        Attribute::text("name", "The attribute's name.").required().read_only(),
        Attribute::text("type", "Its type.")
            .one_of(&[
                "string",
                "complex",
                "boolean",
                "decimal",
                "integer",
                "dateTime",
                "reference",
                "binary",
            ])
            .required()
            .read_only(),
        Attribute::boolean("multiValued", "Whether it has several values.").required().read_only(),
        Attribute::text("description", "What it is for.").read_only(),
        Attribute::boolean("required", "Whether it has to be there.").required().read_only(),
        Attribute::text("canonicalValues", "Values that are suggested.").many().read_only(),
        Attribute::boolean("caseExact", "Whether case tells its values apart.").read_only(),
        Attribute::text("mutability", "Who may change it.")
            .one_of(&["readOnly", "readWrite", "immutable", "writeOnly"])
            .case_exact()
            .read_only(),
        Attribute::text("returned", "When it is shown.")
            .one_of(&["always", "never", "default", "request"])
            .case_exact()
            .read_only(),
        Attribute::text("uniqueness", "Among which resources its values are unique.")
            .one_of(&["none", "server", "global"])
            .case_exact()
            .read_only(),
        Attribute::text("referenceTypes", "What it may refer to.").many().case_exact().read_only(),
        Attribute::complex("subAttributes", "Its sub-attributes.", subs).many().read_only(),
    ]
}

const INNERMOST: &[Attribute] = &definition(&[]);
const OUTERMOST: &[Attribute] = &definition(INNERMOST);

/// A schema.
pub(crate) static SCHEMA: Schema = Schema {
    id: "urn:ietf:params:scim:schemas:core:2.0:Schema",
    name: "Schema",
    description: "The attributes of a kind of resource",
    attributes: &[
        Attribute::text("id", "The schema's URN.").required().case_exact().read_only(),
        Attribute::text("name", "Its name.").required().read_only(),
        Attribute::text("description", "What it is of.").read_only(),
        Attribute::complex("attributes", "Its attributes.", OUTERMOST).many().required().read_only(),
    ],
};
