//! What the service says of itself (RFC 7644 §4): its configuration, its kinds of resource and its schemas.

use serde_json::{Map, Value, json};

use crate::kind::Kind;
use crate::listing::{MAX_PAGE, answer};
use crate::schema::row::{Attribute, Schema, Type};
use crate::schema::{ALL, RESOURCE_TYPE, SCHEMA, SERVICE_PROVIDER_CONFIG};

/// What is supported.
pub(crate) fn config(base: &str) -> Value {
    json!({
        "schemas": [SERVICE_PROVIDER_CONFIG.id],
        "patch": { "supported": true },
        "bulk": { "supported": false, "maxOperations": 0, "maxPayloadSize": 0 },
        "filter": { "supported": true, "maxResults": MAX_PAGE },
        "changePassword": { "supported": false },
        "sort": { "supported": true },
        "etag": { "supported": true },
        "authenticationSchemes": [{
            "type": "oauthbearertoken",
            "name": "Bearer token",
            "description": "A token that `sallyport admin scim token add` makes, in the header Authorization",
            "specUri": "https://www.rfc-editor.org/info/rfc6750",
            "primary": true,
        }],
        "meta": {
            "resourceType": "ServiceProviderConfig",
            "location": format!("{base}/ServiceProviderConfig"),
        },
    })
}

/// One kind of resource.
pub(crate) fn resource_type(kind: Kind, base: &str) -> Value {
    let extensions = kind.extensions().iter();
    let extensions: Vec<Value> =
        extensions.map(|extension| json!({ "schema": extension.id, "required": false })).collect();
    let mut shown = json!({
        "schemas": [RESOURCE_TYPE.id],
        "id": kind.name(),
        "name": kind.name(),
        "description": kind.schema().description,
        "endpoint": format!("/{}", kind.endpoint()),
        "schema": kind.schema().id,
        "meta": {
            "resourceType": "ResourceType",
            "location": format!("{base}/ResourceTypes/{kind}"),
        },
    });
    if let Value::Object(shown) = &mut shown
        && !extensions.is_empty()
    {
        shown.insert("schemaExtensions".to_owned(), extensions.into());
    }
    shown
}

/// All kinds of resource.
pub(crate) fn resource_types(base: &str) -> Map<String, Value> {
    let all: Vec<Value> = Kind::ALL.iter().map(|kind| resource_type(*kind, base)).collect();
    answer(all.len(), 1, all)
}

/// All schemas.
pub(crate) fn schemas(base: &str) -> Map<String, Value> {
    let all: Vec<Value> = ALL.iter().map(|schema| schema_json(schema, base)).collect();
    answer(all.len(), 1, all)
}

/// One schema.
pub(crate) fn schema(urn: &str, base: &str) -> Option<Value> {
    ALL.iter().find(|schema| schema.is(urn)).map(|schema| schema_json(schema, base))
}

fn schema_json(schema: &Schema, base: &str) -> Value {
    json!({
        "schemas": [SCHEMA.id],
        "id": schema.id,
        "name": schema.name,
        "description": schema.description,
        "attributes": attributes(schema.attributes),
        "meta": { "resourceType": "Schema", "location": format!("{base}/Schemas/{}", schema.id) },
    })
}

/// Rows, but for a complex one without sub-attributes: there the definition of definitions ends.
fn attributes(rows: &[Attribute]) -> Vec<Value> {
    rows.iter().filter(|row| row.kind != Type::Complex || !row.subs.is_empty()).map(attribute).collect()
}

fn attribute(row: &Attribute) -> Value {
    let mut shown = json!({
        "name": row.name,
        "type": row.kind.name(),
        "multiValued": row.multi_valued,
        "description": row.description,
        "required": row.required,
        "caseExact": row.case_exact,
        "mutability": row.mutability.name(),
        "returned": if row.always { "always" } else { "default" },
        "uniqueness": if row.unique { "server" } else { "none" },
    });
    if let Value::Object(shown) = &mut shown {
        for (name, values) in [("canonicalValues", row.canonical), ("referenceTypes", row.references)] {
            if !values.is_empty() {
                shown.insert(name.to_owned(), json!(values));
            }
        }
        if !row.subs.is_empty() {
            shown.insert("subAttributes".to_owned(), attributes(row.subs).into());
        }
    }
    shown
}
