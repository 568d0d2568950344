//! What a schema says of an attribute (RFC 7643 §2.2, §2.3 and §7).

/// A schema.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) attributes: &'static [Attribute],
}

impl Schema {
    /// Whether a URN names this schema. URNs do not tell case (RFC 8141 §3.1).
    pub(crate) fn is(&self, urn: &str) -> bool {
        self.id.eq_ignore_ascii_case(urn)
    }

    /// Finds an attribute; their names do not tell case (RFC 7643 §2.1).
    pub(crate) fn find(&self, name: &str) -> Option<&'static Attribute> {
        find(self.attributes, name)
    }
}

/// Finds an attribute among several.
pub(crate) fn find(attributes: &'static [Attribute], name: &str) -> Option<&'static Attribute> {
    attributes.iter().find(|attribute| attribute.name.eq_ignore_ascii_case(name))
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Text,
    Boolean,
    /// A count; only discovery documents have some.
    Integer,
    Moment,
    Reference,
    Complex,
}

impl Type {
    /// Its name in a published schema.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Moment => "dateTime",
            Self::Reference => "reference",
            Self::Complex => "complex",
        }
    }
}

/// Who may change a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutability {
    ReadWrite,
    ReadOnly,
    Immutable,
}

impl Mutability {
    /// Its name in a published schema.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ReadWrite => "readWrite",
            Self::ReadOnly => "readOnly",
            Self::Immutable => "immutable",
        }
    }
}

/// A row: an attribute or a sub-attribute.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) kind: Type,
    pub(crate) multi_valued: bool,
    pub(crate) required: bool,
    pub(crate) case_exact: bool,
    pub(crate) mutability: Mutability,
    /// Shown whatever a client asks for.
    pub(crate) always: bool,
    /// No two resources of the service may have the same value.
    pub(crate) unique: bool,
    /// The server fills it in, whatever a client says.
    pub(crate) computed: bool,
    pub(crate) canonical: &'static [&'static str],
    pub(crate) references: &'static [&'static str],
    pub(crate) subs: &'static [Attribute],
}

impl Attribute {
    const fn new(name: &'static str, description: &'static str, kind: Type) -> Self {
        Self {
            name,
            description,
            kind,
            multi_valued: false,
            required: false,
            case_exact: false,
            mutability: Mutability::ReadWrite,
            always: false,
            unique: false,
            computed: false,
            canonical: &[],
            references: &[],
            subs: &[],
        }
    }

    pub(crate) const fn text(name: &'static str, description: &'static str) -> Self {
        Self::new(name, description, Type::Text)
    }

    pub(crate) const fn boolean(name: &'static str, description: &'static str) -> Self {
        Self::new(name, description, Type::Boolean)
    }

    pub(crate) const fn integer(name: &'static str, description: &'static str) -> Self {
        Self::new(name, description, Type::Integer)
    }

    pub(crate) const fn moment(name: &'static str, description: &'static str) -> Self {
        Self::new(name, description, Type::Moment)
    }

    /// A reference is case exact (RFC 7643 §2.3.7).
    pub(crate) const fn reference(
        name: &'static str,
        description: &'static str,
        references: &'static [&'static str],
    ) -> Self {
        Self { references, case_exact: true, ..Self::new(name, description, Type::Reference) }
    }

    pub(crate) const fn complex(
        name: &'static str,
        description: &'static str,
        subs: &'static [Attribute],
    ) -> Self {
        Self { subs, ..Self::new(name, description, Type::Complex) }
    }

    pub(crate) const fn many(self) -> Self {
        Self { multi_valued: true, ..self }
    }

    pub(crate) const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    pub(crate) const fn case_exact(self) -> Self {
        Self { case_exact: true, ..self }
    }

    pub(crate) const fn read_only(self) -> Self {
        Self { mutability: Mutability::ReadOnly, ..self }
    }

    pub(crate) const fn immutable(self) -> Self {
        Self { mutability: Mutability::Immutable, ..self }
    }

    pub(crate) const fn always(self) -> Self {
        Self { always: true, ..self }
    }

    pub(crate) const fn unique(self) -> Self {
        Self { unique: true, ..self }
    }

    pub(crate) const fn computed(self) -> Self {
        Self { computed: true, ..self }
    }

    pub(crate) const fn one_of(self, canonical: &'static [&'static str]) -> Self {
        Self { canonical, ..self }
    }

    /// Finds a sub-attribute.
    pub(crate) fn sub(&self, name: &str) -> Option<&'static Attribute> {
        find(self.subs, name)
    }

    /// What a comparison with the whole of a complex value compares (RFC 7644 §3.4.2.2: `emails co "example.com"`).
    pub(crate) fn value(&self) -> Option<&'static Attribute> {
        self.sub("value")
    }

    /// Whether it is the members of a group, which are many, and of which only the identifier is a client's.
    pub(crate) fn is_members(&self) -> bool {
        self.name == "members"
    }
}
