//! Schemas as tables (RFC 7643 §7): what is read, compared, patched, shown and published comes from one row an attribute.

mod discovery;
mod group;
mod user;

pub(crate) use discovery::{RESOURCE_TYPE, SCHEMA, SERVICE_PROVIDER_CONFIG};
pub(crate) use group::GROUP;
pub(crate) use user::{ENTERPRISE_USER, USER};

pub(crate) mod row;

use row::{Attribute, Schema};

/// What every resource has (RFC 7643 §3.1), besides what its schemas say.
pub(crate) static COMMON: &[Attribute] = &[
    Attribute::text("id", "The identifier that Sallyport gave the resource.")
        .case_exact()
        .read_only()
        .always()
        .unique(),
    Attribute::text("externalId", "The identifier that the provisioning client gave the resource.")
        .case_exact(),
    Attribute::reference("schemas", "The schemas of the resource.", &["uri"]).many().read_only().always(),
    Attribute::complex(
        "meta",
        "What is known of the resource itself.",
        &[
            Attribute::text("resourceType", "The name of its resource type.").case_exact().read_only(),
            Attribute::moment("created", "When it was made.").read_only(),
            Attribute::moment("lastModified", "When it was changed last.").read_only(),
            Attribute::reference("location", "Its address.", &["uri"]).read_only().computed(),
            Attribute::text("version", "Its version, as in the header ETag.")
                .case_exact()
                .read_only()
                .computed(),
        ],
    )
    .read_only(),
];

/// All schemas, those of the discovery documents too (RFC 7643 §8.7).
pub(crate) const ALL: &[&Schema] =
    &[&USER, &ENTERPRISE_USER, &GROUP, &SERVICE_PROVIDER_CONFIG, &RESOURCE_TYPE, &SCHEMA];
