//! The schemas of users (RFC 7643 §4.1 and §4.3).
//!
//! Credentials are left out: neither `password` nor `x509Certificates` is read, kept or shown, since no user logs in with what a
//! provisioning client says. `roles` and `entitlements` are words of the client; they grant nothing here.

use super::row::{Attribute, Schema};

const DISPLAY: Attribute = Attribute::text("display", "The value for people to read.");
const PRIMARY: Attribute = Attribute::boolean("primary", "Whether it is the preferred one of the values.");

const fn kind(canonical: &'static [&'static str]) -> Attribute {
    Attribute::text("type", "What the value is for.").one_of(canonical)
}

/// The core schema of users.
pub(crate) static USER: Schema = Schema {
    id: "urn:ietf:params:scim:schemas:core:2.0:User",
    name: "User",
    description: "User Account",
    attributes: &[
        Attribute::text("userName", "The name of the user, unique in the cluster whatever its case.")
            .required()
            .unique(),
        Attribute::complex(
            "name",
            "The parts of the user's name.",
            &[
                Attribute::text("formatted", "The full name, for people to read."),
                Attribute::text("familyName", "The family name."),
                Attribute::text("givenName", "The given name."),
                Attribute::text("middleName", "The middle names."),
                Attribute::text("honorificPrefix", "What stands before the name, such as a title."),
                Attribute::text("honorificSuffix", "What stands after the name."),
            ],
        ),
        Attribute::text("displayName", "A name of the user for people."),
        Attribute::text("nickName", "The casual name of the user."),
        Attribute::reference("profileUrl", "The address of a page about the user.", &["external"]),
        Attribute::text("title", "The user's title in the organisation."),
        Attribute::text("userType", "What the user is to the organisation."),
        Attribute::text("preferredLanguage", "The user's languages, as in Accept-Language."),
        Attribute::text("locale", "The user's locale, for times and numbers."),
        Attribute::text("timezone", "The user's time zone, by its name in the time zone database."),
        Attribute::boolean("active", "Whether the user may log in. A user who is not active has no sessions."),
        Attribute::complex(
            "emails",
            "E-mail addresses of the user.",
            &[
                Attribute::text("value", "The address."),
                DISPLAY,
                kind(&["work", "home", "other"]),
                PRIMARY,
            ],
        )
        .many(),
        Attribute::complex(
            "phoneNumbers",
            "Telephone numbers of the user.",
            &[
                Attribute::text("value", "The number."),
                DISPLAY,
                kind(&["work", "home", "mobile", "fax", "pager", "other"]),
                PRIMARY,
            ],
        )
        .many(),
        Attribute::complex(
            "ims",
            "Instant messaging addresses of the user.",
            &[
                Attribute::text("value", "The address."),
                DISPLAY,
                kind(&["aim", "gtalk", "icq", "xmpp", "msn", "skype", "qq", "yahoo"]),
                PRIMARY,
            ],
        )
        .many(),
        Attribute::complex(
            "photos",
            "Addresses of pictures of the user.",
            &[
                Attribute::reference("value", "The address.", &["external"]),
                DISPLAY,
                kind(&["photo", "thumbnail"]),
                PRIMARY,
            ],
        )
        .many(),
        Attribute::complex(
            "addresses",
            "Postal addresses of the user.",
            &[
                Attribute::text("formatted", "The whole address, in lines."),
                Attribute::text("streetAddress", "The street with the number, in lines."),
                Attribute::text("locality", "The city."),
                Attribute::text("region", "The state or region."),
                Attribute::text("postalCode", "The postal code."),
                Attribute::text("country", "The country, as two letters."),
                kind(&["work", "home", "other"]),
                PRIMARY,
            ],
        )
        .many(),
        Attribute::complex(
            "groups",
            "The groups that the user is in, by itself or through groups in groups. They are changed at the group.",
            &[
                Attribute::text("value", "The identifier of the group.").case_exact().read_only(),
                Attribute::reference("$ref", "The address of the group.", &["Group"]).read_only().computed(),
                Attribute::text("display", "The name of the group.").read_only(),
                Attribute::text("type", "Whether the user itself is a member.")
                    .one_of(&["direct", "indirect"])
                    .read_only(),
            ],
        )
        .many()
        .read_only(),
        Attribute::complex(
            "entitlements",
            "What the client says that the user is entitled to.",
            &[Attribute::text("value", "The entitlement."), DISPLAY, kind(&[]), PRIMARY],
        )
        .many(),
        Attribute::complex(
            "roles",
            "What the client calls the user's roles.",
            &[Attribute::text("value", "The role."), DISPLAY, kind(&[]), PRIMARY],
        )
        .many(),
    ],
};

/// The enterprise extension. Nothing here acts on it.
pub(crate) static ENTERPRISE_USER: Schema = Schema {
    id: "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User",
    name: "EnterpriseUser",
    description: "Enterprise User",
    attributes: &[
        Attribute::text("employeeNumber", "The number of the user in the organisation."),
        Attribute::text("costCenter", "The cost centre."),
        Attribute::text("organization", "The organisation."),
        Attribute::text("division", "The division."),
        Attribute::text("department", "The department."),
        Attribute::complex(
            "manager",
            "The user's manager.",
            &[
                Attribute::text("value", "The identifier of the manager.").case_exact(),
                Attribute::reference("$ref", "The address of the manager.", &["User"]),
                Attribute::text("displayName", "The name of the manager.").read_only(),
            ],
        ),
    ],
};
