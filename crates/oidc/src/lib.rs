//! The pure part of an OpenID Connect relying party: what an identity provider sent goes in with the time, and what it is worth
//! comes out. Nothing is fetched here.
//!
//! * [`Discovery`] is what an issuer says about itself, held against the issuer that was configured;
//! * [`KeySet`] has its keys, and [`KeyCache`] says when to fetch them again;
//! * [`Attempt`] has the secrets of one login: state, nonce, and the verifier of PKCE;
//! * [`Provider::verify`] makes an [`IdToken`] of a token: one signature, by a key of the issuer's, over the very bytes that the
//!   claims are read from. `none`, shared secrets and keys that tokens bring are refused. A person's [`Identity`] is the pair
//!   of issuer and subject;
//! * [`Provider::verify_logout`] makes a [`LogoutToken`] of what a provider says when a person has logged out there;
//! * [`Mapping`] makes roles and traits of the claims, and says of each rule what it came to.
//!
//! ```
//! use sallyport_oidc::Mapping;
//!
//! let mapping = Mapping::parse(br#"{
//!     "roles": [{ "claim": "groups", "value": "ops-*", "roles": ["admin"] }],
//!     "traits": { "logins": ["{{claims.preferred_username}}"] }
//! }"#)?;
//! let claims = serde_json::json!({ "groups": ["ops-eu", "all"], "preferred_username": "alice" });
//! let mapped = mapping.apply(claims.as_object().expect("an object"));
//! assert!(mapped.roles.contains("admin") && mapped.traits["logins"].contains("alice"));
//! # Ok::<(), sallyport_oidc::OidcError>(())
//! ```
//!
//! Tokens that clusters issue themselves are made in `ca::jwt`.

mod address;
mod algorithm;
mod attempt;
mod discovery;
mod error;
mod expression;
mod json;
mod keys;
mod leaves;
mod logout;
mod mapping;
mod overage;
mod path;
mod template;
mod text;
mod token;

pub use algorithm::Algorithm;
pub use attempt::{ATTEMPT_LIFETIME, Answered, Attempt, s256};
pub use discovery::{Discovery, MAX_DISCOVERY_BYTES, discovery_url};
pub use error::OidcError;
pub use expression::Expression;
pub use keys::{FETCH_PAUSE, KeyCache, KeySet, LONGEST_KEPT, MAX_KEY_SET_BYTES, REFRESH};
pub use leaves::{Leaf, MAX_LEAVES, leaves};
pub use logout::LogoutToken;
pub use mapping::{Mapped, Mapping, Outcome, Pattern, Rule, Step, TraitRule, TraitSource};
pub use overage::{Overage, overages};
pub use path::{Found, MAX_VALUE_BYTES, MAX_VALUES, Path};
pub use template::{MAX_TEXTS, Template};
pub use token::{Expected, IdToken, Identity, MAX_AGE, MAX_TOKEN_BYTES, Provider, SKEW};
