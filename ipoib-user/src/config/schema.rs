//! The published JSON schema of the file, made from the types.

use super::model::File;

/// The schema as it is kept in `docs/config.schema.json`.
pub fn text() -> String {
    let schema = schemars::schema_for!(File);
    // A schema is a tree of strings and numbers: writing it can't fail.
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}
