//! Names of hosts in a pod.

use super::super::document::{Node, Pair};
use super::super::draft::Draft;
use super::super::yaml::Yaml;

/// A line of `/etc/hosts`.
pub(super) fn host_alias(alias: &Node, draft: &mut Draft) {
    let address = alias.text_at(&["ip"]).unwrap_or_default();
    for name in alias.get("hostnames").map_or(&[][..], Node::items).iter().filter_map(|name| name.text()) {
        draft.push("extra_hosts", Yaml::text(format!("{name}:{address}")));
    }
}

/// Name servers and domains.
pub(super) fn dns_config(config: &Pair, draft: &mut Draft) {
    for pair in config.value.pairs() {
        let key = match pair.key.as_str() {
            "nameservers" => "dns",
            "searches" => "dns_search",
            other => {
                draft.drop_with_note(format!("line {}: dnsConfig.{other}", pair.line));
                continue;
            }
        };
        pair.value
            .items()
            .iter()
            .filter_map(|it| it.text())
            .for_each(|text| draft.push(key, Yaml::text(text)));
    }
}
