//! Definitions, and those with options that their own body does not have.

use longshore_protocol::Revision;
use longshore_protocol::container::{ContainerOptions, Ulimit};
use longshore_protocol::order::Definition;
use longshore_protocol::wire::Unsent;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::{container, pairs, text};

pub(super) fn definition() -> impl Strategy<Value = Definition> {
    (any::<u128>(), ".{0,20}", container()).prop_map(|(revision, name, container)| Definition {
        revision: Revision(revision),
        name,
        container,
    })
}

pub(super) fn extended_definition() -> impl Strategy<Value = Definition> {
    let ulimit = (text(), any::<i64>(), any::<i64>());
    let ulimit = ulimit.prop_map(|(name, soft, hard)| Ulimit { name, soft, hard });
    let texts = || vec(text(), 0..3);
    let options = (of(text()), pairs(), texts(), texts(), vec(ulimit, 0..3), texts());
    (definition(), options).prop_map(|(mut definition, options)| {
        let (hostname, extra_hosts, dns, dns_search, ulimits, group_add) = options;
        definition.container.options =
            Unsent(ContainerOptions { hostname, extra_hosts, dns, dns_search, ulimits, group_add });
        definition
    })
}
