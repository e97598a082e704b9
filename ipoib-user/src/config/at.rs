//! Values that remember where in the file they stand.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::borrow::Cow;
use std::fmt;
use toml::Spanned;

/// A value, and the byte of the file at which it begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct At<T> {
    /// Bytes before it in the file.
    pub offset: usize,
    /// The value.
    pub value: T,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        Ok(At {
            offset: spanned.span().start,
            value: spanned.into_inner(),
        })
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// A number, or a word that stands for one or more: `2049`, `"4420-4430"`, `"ef"`.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(untagged)]
pub enum Scalar {
    /// A number as written.
    Number(i64),
    /// A word as written.
    Word(String),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Number(number) => write!(f, "{number}"),
            Scalar::Word(word) => write!(f, "{word:?}"),
        }
    }
}

// By hand, because serde's untagged enums answer a wrong type with "did not match any variant".
impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a string")
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar::Number(number))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar::Number(i64::try_from(number).unwrap_or(i64::MAX)))
            }
            fn visit_str<E: Error>(self, word: &str) -> Result<Scalar, E> {
                Ok(Scalar::Word(word.to_owned()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}
