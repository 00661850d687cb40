//! The two spellings of field names: `read_only`, and `readOnly` as the JavaScript SDK writes it.

use serde_json::{Map, Value};

/// Below these names are the user's own words, not field names.
const USER_DATA: &[&str] = &["headers", "driver_options", "extra_options", "labels", "config", "children", "content"];

/// The one spelling of every field name, here and further in, except where the names are the user's own.
///
/// # Errors
/// When both spellings of one name are there.
pub(super) fn snake(fields: Map<String, Value>) -> Result<Map<String, Value>, String> {
    let mut spelled = snake_keys(fields)?;
    for (name, value) in &mut spelled {
        if let Value::Object(inner) = value
            && !USER_DATA.contains(&name.as_str())
        {
            *inner = snake(std::mem::take(inner))?;
        }
    }
    Ok(spelled)
}

/// The same for one level only.
pub(super) fn snake_keys(fields: Map<String, Value>) -> Result<Map<String, Value>, String> {
    let mut spelled = Map::with_capacity(fields.len());
    for (name, value) in fields {
        let name = snake_name(name);
        if spelled.contains_key(&name) {
            return Err(format!("has `{name}` twice, in two spellings"));
        }
        spelled.insert(name, value);
    }
    Ok(spelled)
}

/// `readOnly` becomes `read_only`; anything that is not plain camel case stays.
fn snake_name(name: String) -> String {
    let camel = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && name.bytes().any(|byte| byte.is_ascii_uppercase());
    if !camel {
        return name;
    }
    let mut spelled = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            spelled.push('_');
        }
        spelled.push(letter.to_ascii_lowercase());
    }
    spelled
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_fields_have_one_spelling_and_names_of_users_their_own() {
        let Value::Object(given) = json!({
            "readOnly": true, "mountStrategy": {"pattern": {"cacheSizeMb": 1, "options": {"extraOptions": {"aB": "c"}}}},
            "headers": {"xY": "z"}, "driverOptions": {"aB": "c"}, "s3Provider": "x", "Content": 1, "a_bC": 2,
        }) else {
            unreachable!()
        };
        assert_eq!(
            Value::Object(snake(given).unwrap()),
            json!({
                "read_only": true, "mount_strategy": {"pattern": {"cache_size_mb": 1, "options": {"extra_options": {"aB": "c"}}}},
                "headers": {"xY": "z"}, "driver_options": {"aB": "c"}, "s3_provider": "x", "Content": 1, "a_bC": 2,
            })
        );
        let Value::Object(twice) = json!({"readOnly": true, "read_only": false}) else { unreachable!() };
        assert!(snake(twice.clone()).is_err() && snake_keys(twice).is_err());
    }
}
