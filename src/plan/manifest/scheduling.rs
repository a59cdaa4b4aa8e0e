//! Placement of the pods of a job by the scheduler. Pure.

use serde_json::{Value, json};

use super::names::{is_label_value, is_qualified_name};

/// Effects of a taint on pods that do not tolerate it.
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// A taint of nodes that pods tolerate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toleration {
    key: String,
    /// The value; `None`: any.
    value: Option<String>,
    /// The effect; `None`: every effect.
    effect: Option<&'static str>,
}

/// Why a text is not a toleration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TolerationError {
    /// The key is invalid.
    #[error("`{0}` is not the key of a taint")]
    Key(String),
    /// The value is invalid.
    #[error("`{0}` is not the value of a taint")]
    Value(String),
    /// The effect is invalid.
    #[error("`{0}` is not an effect of a taint")]
    Effect(String),
}

/// Placement and priority of pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scheduling {
    /// Taints that the pods tolerate.
    pub tolerations: Vec<Toleration>,
    /// Labels of the nodes on which the pods may run.
    pub node_selector: Vec<(String, String)>,
    /// A label of nodes, such as that of a rack: all pods are placed on nodes with one value of it,
    /// if possible.
    pub topology_key: Option<String>,
    /// Name of the pods' priority class.
    pub priority_class: Option<String>,
    /// Queue of Kueue, or of Volcano.
    pub queue: Option<String>,
}

impl Toleration {
    /// Parses `KEY`, `KEY=VALUE`, `KEY:EFFECT` or `KEY=VALUE:EFFECT`, the notation of `kubectl
    /// taint`.
    pub fn parse(text: &str) -> Result<Self, TolerationError> {
        let (pair, effect) = match text.split_once(':') {
            Some((pair, effect)) => (pair, Some(effect)),
            None => (text, None),
        };
        let effect = effect.map(parse_effect).transpose()?;
        let (key, value) = match pair.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (pair, None),
        };
        if !is_qualified_name(key) {
            return Err(TolerationError::Key(key.to_owned()));
        }
        if let Some(value) = value.filter(|value| !is_label_value(value)) {
            return Err(TolerationError::Value(value.to_owned()));
        }
        Ok(Self { key: key.to_owned(), value: value.map(str::to_owned), effect })
    }

    fn to_json(&self) -> Value {
        let mut json = match &self.value {
            Some(value) => json!({"key": self.key, "operator": "Equal", "value": value}),
            None => json!({"key": self.key, "operator": "Exists"}),
        };
        if let Some(effect) = self.effect {
            json["effect"] = json!(effect);
        }
        json
    }
}

fn parse_effect(text: &str) -> Result<&'static str, TolerationError> {
    let known = EFFECTS.into_iter().find(|effect| *effect == text);
    known.ok_or_else(|| TolerationError::Effect(text.to_owned()))
}

impl Scheduling {
    /// Writes the fields into the `spec` of a pod; `name` is the job's.
    pub(super) fn write(&self, spec: &mut Value, name: &str) {
        if !self.tolerations.is_empty() {
            spec["tolerations"] = self.tolerations.iter().map(Toleration::to_json).collect();
        }
        for (key, value) in &self.node_selector {
            spec["nodeSelector"][key] = json!(value);
        }
        if let Some(class) = &self.priority_class {
            spec["priorityClassName"] = json!(class);
        }
        if let Some(key) = &self.topology_key {
            // Preferred, not required: a job whose pods do not fit in one rack starts anyway.
            spec["affinity"]["podAffinity"] = json!({
                "preferredDuringSchedulingIgnoredDuringExecution": [{
                    "weight": 100,
                    "podAffinityTerm": {
                        "topologyKey": key,
                        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
                    },
                }],
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = match Toleration::parse(text) {
            Ok(toleration) => toleration.to_json().to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn tolerations_use_the_notation_of_kubectl_taint() {
        check("gpu", r#"{"key":"gpu","operator":"Exists"}"#);
        check(
            "nvidia.com/gpu:NoSchedule",
            r#"{"effect":"NoSchedule","key":"nvidia.com/gpu","operator":"Exists"}"#,
        );
        check(
            "team=ml:NoExecute",
            r#"{"effect":"NoExecute","key":"team","operator":"Equal","value":"ml"}"#,
        );
        check("team=", r#"{"key":"team","operator":"Equal","value":""}"#);
        check("", "`` is not the key of a taint");
        check("a b", "`a b` is not the key of a taint");
        check("a=b c", "`b c` is not the value of a taint");
        check("a:noschedule", "`noschedule` is not an effect of a taint");
        check("a=b:", "`` is not an effect of a taint");
    }
}
