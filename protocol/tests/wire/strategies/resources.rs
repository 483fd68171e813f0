//! Resources that definitions reserve and workers offer.

use longshore_protocol::container::Resources;
use longshore_protocol::resources::OfferedResources;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::text;

pub(super) fn offer() -> impl Strategy<Value = OfferedResources> {
    let name = "[A-Za-z0-9][A-Za-z0-9._:-]{0,20}";
    let gpus = proptest::collection::btree_set(name, 0..3);
    let custom = proptest::collection::btree_map(name, any::<u32>(), 0..3);
    (of(any::<u32>()), of(any::<u64>()), gpus, custom).prop_map(|(cpus_milli, memory_bytes, gpus, custom)| {
        let (gpus, custom) = (gpus.into_iter().collect(), custom.into_iter().collect());
        OfferedResources { cpus_milli, memory_bytes, gpus, custom }
    })
}

pub(super) fn resources() -> impl Strategy<Value = Resources> {
    let custom = vec((text(), any::<u32>()), 0..3);
    (of(any::<u32>()), of(any::<u64>()), of(any::<u32>()), any::<u32>(), custom).prop_map(
        |(cpus_milli, memory_bytes, pids, gpus, custom)| Resources {
            cpus_milli,
            memory_bytes,
            pids,
            gpus,
            custom,
        },
    )
}
