//! Resources that jobs reserve on workers: cores, memory, GPUs, and resources that operators name.
//!
//! A definition reserves what it declares in `resources`. An attempt holds its reservation from its assignment until it is not current
//! any more, and longer if its container may still exist.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use protocol::container::Resources;
use protocol::resources::OfferedResources;

/// Resources that each attempt of a definition reserves.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reservation {
    /// Thousandths of a core.
    pub cpus_milli: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Number of GPUs.
    pub gpus: u32,
    /// Amounts of custom resources, by name.
    pub custom: Vec<(String, u32)>,
}

/// A kind of resource that a reservation asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceKind {
    /// Thousandths of a core.
    Cpus,
    /// Bytes of memory.
    Memory,
    /// Whole GPUs, by id.
    Gpus,
    /// The custom resource with this index in the reservation.
    Custom(u16),
}

impl Reservation {
    /// The reservation of a definition with these resources.
    #[must_use]
    pub fn of(resources: &Resources) -> Self {
        let Resources { cpus_milli, memory_bytes, gpus, ref custom, .. } = *resources;
        Self {
            cpus_milli: cpus_milli.unwrap_or(0),
            memory_bytes: memory_bytes.unwrap_or(0),
            gpus,
            custom: custom.clone(),
        }
    }

    /// A definition with these resources reserves something.
    #[must_use]
    pub const fn is_made_by(resources: &Resources) -> bool {
        resources.cpus_milli.is_some()
            || resources.memory_bytes.is_some()
            || resources.gpus > 0
            || !resources.custom.is_empty()
    }

    /// This reservation together with another one, in those resources only that this one reserves.
    #[must_use]
    pub fn with_amounts_of(&self, other: &Self) -> Self {
        let both = |own: u32, others: u32| if own == 0 { 0 } else { own.saturating_add(others) };
        let amount = |name: &String| {
            let found = other.custom.iter().find(|(it, _)| it == name);
            found.map_or(0, |(_, amount)| *amount)
        };
        let memory = if self.memory_bytes == 0 { 0 } else { other.memory_bytes };
        Self {
            cpus_milli: both(self.cpus_milli, other.cpus_milli),
            memory_bytes: self.memory_bytes.saturating_add(memory),
            gpus: both(self.gpus, other.gpus),
            custom: self.custom.iter().map(|(name, own)| (name.clone(), both(*own, amount(name)))).collect(),
        }
    }

    /// Nothing is reserved.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.cpus_milli == 0 && self.memory_bytes == 0 && self.gpus == 0 && self.custom.is_empty()
    }
}

/// The reservation of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// Amounts, as its definition says.
    pub amounts: Reservation,
    /// Ids of its GPUs. Fewer than the number of them if the store does not know them any more.
    pub gpus: Vec<String>,
}

impl Reserved {
    /// The reservation of an attempt that holds these GPUs; `None` if its definition reserves nothing.
    #[must_use]
    pub fn of(resources: &Resources, gpus: Vec<String>) -> Option<Self> {
        Reservation::is_made_by(resources).then(|| Self { amounts: Reservation::of(resources), gpus })
    }
}

/// Reservations of one worker together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Thousandths of a core.
    pub cpus_milli: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// GPUs by id, with the number of attempts that hold each: more than one only if a lost attempt may still use it.
    pub gpus: BTreeMap<String, u32>,
    /// Amounts of custom resources by name; no entry is zero.
    pub custom: BTreeMap<String, u64>,
}

impl InUse {
    /// Adds a reservation.
    pub fn add(&mut self, reserved: &Reserved) {
        self.cpus_milli += u64::from(reserved.amounts.cpus_milli);
        self.memory_bytes = self.memory_bytes.saturating_add(reserved.amounts.memory_bytes);
        for id in &reserved.gpus {
            *self.gpus.entry(id.clone()).or_default() += 1;
        }
        for (name, amount) in &reserved.amounts.custom {
            *self.custom.entry(name.clone()).or_default() += u64::from(*amount);
        }
    }

    /// Removes a reservation that was added.
    pub fn remove(&mut self, reserved: &Reserved) {
        self.cpus_milli = self.cpus_milli.saturating_sub(u64::from(reserved.amounts.cpus_milli));
        self.memory_bytes = self.memory_bytes.saturating_sub(reserved.amounts.memory_bytes);
        for id in &reserved.gpus {
            if let Some(holders) = self.gpus.get_mut(id) {
                *holders -= 1;
                if *holders == 0 {
                    self.gpus.remove(id);
                }
            }
        }
        for (name, amount) in &reserved.amounts.custom {
            if let Some(used) = self.custom.get_mut(name) {
                *used = used.saturating_sub(u64::from(*amount));
                if *used == 0 {
                    self.custom.remove(name);
                }
            }
        }
    }

    /// The first resource of which the offer has too little left for this reservation; `None` if all of it fits.
    #[must_use]
    pub fn lacking(&self, offer: &OfferedResources, wanted: &Reservation) -> Option<ResourceKind> {
        let fits = |offered: Option<u64>, used: u64, wanted: u64| {
            wanted == 0 || offered.is_none_or(|offered| used.saturating_add(wanted) <= offered)
        };
        if !fits(offer.cpus_milli.map(u64::from), self.cpus_milli, u64::from(wanted.cpus_milli)) {
            return Some(ResourceKind::Cpus);
        }
        if !fits(offer.memory_bytes, self.memory_bytes, wanted.memory_bytes) {
            return Some(ResourceKind::Memory);
        }
        if wanted.gpus > 0 && self.free_gpus(offer).count() < wanted.gpus as usize {
            return Some(ResourceKind::Gpus);
        }
        let mut custom = (0..).zip(&wanted.custom);
        let short = custom.find(|(_, (name, amount))| {
            let used = self.custom.get(name).copied().unwrap_or(0);
            !fits(Some(offered_of(offer, name)), used, u64::from(*amount))
        });
        short.map(|(index, _)| ResourceKind::Custom(index))
    }

    /// The part of a reservation that an offer has not left, in thousandths of the amount that is wanted; that of the resource that lacks
    /// most. Zero if all of it fits.
    #[must_use]
    pub fn shortage(&self, offer: &OfferedResources, wanted: &Reservation) -> u16 {
        let short = |offered: Option<u64>, used: u64, wanted: u64| {
            let left = offered.map_or(wanted, |offered| offered.saturating_sub(used)).min(wanted);
            let thousandths = u128::from(wanted - left) * 1_000 / u128::from(wanted.max(1));
            u16::try_from(thousandths).unwrap_or(u16::MAX)
        };
        let free_gpus = self.free_gpus(offer).count() as u64;
        let fixed = [
            short(offer.cpus_milli.map(u64::from), self.cpus_milli, u64::from(wanted.cpus_milli)),
            short(offer.memory_bytes, self.memory_bytes, wanted.memory_bytes),
            short(Some(free_gpus), 0, u64::from(wanted.gpus)),
        ];
        let custom = wanted.custom.iter().map(|(name, amount)| {
            let used = self.custom.get(name).copied().unwrap_or(0);
            short(Some(offered_of(offer, name)), used, u64::from(*amount))
        });
        fixed.into_iter().chain(custom).max().unwrap_or(0)
    }

    /// GPUs that nobody holds, in the order of the offer.
    pub fn free_gpus<'s>(&'s self, offer: &'s OfferedResources) -> impl Iterator<Item = &'s String> {
        offer.gpus.iter().filter(|id| !self.gpus.contains_key(*id))
    }
}

/// The amount of a custom resource that is offered.
fn offered_of(offer: &OfferedResources, name: &str) -> u64 {
    offer.custom.iter().find(|(offered, _)| offered == name).map_or(0, |(_, amount)| u64::from(*amount))
}

/// The first resource that even an idle worker with this offer has too little of.
#[must_use]
pub fn never_fits(offer: &OfferedResources, wanted: &Reservation) -> Option<ResourceKind> {
    InUse::default().lacking(offer, wanted)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn offer() -> OfferedResources {
        OfferedResources {
            cpus_milli: Some(2_000),
            memory_bytes: None,
            gpus: vec!["0".into(), "1".into()],
            custom: vec![("license".into(), 1)],
        }
    }

    #[test]
    fn a_reservation_fits_beside_others_up_to_the_offer_and_not_beyond() {
        let wanted = |cpus_milli, gpus, custom: &[(&str, u32)]| Reservation {
            cpus_milli,
            memory_bytes: u64::MAX,
            gpus,
            custom: custom.iter().map(|(name, amount)| ((*name).into(), *amount)).collect(),
        };
        let mut used = InUse::default();
        assert_eq!(used.lacking(&offer(), &wanted(2_000, 2, &[("license", 1)])), None);
        assert_eq!(used.lacking(&offer(), &wanted(2_001, 0, &[])), Some(ResourceKind::Cpus));
        assert_eq!(used.lacking(&offer(), &wanted(0, 3, &[])), Some(ResourceKind::Gpus));
        let seats = wanted(0, 0, &[("license", 1), ("seat", 1)]);
        assert_eq!(
            used.lacking(&offer(), &seats),
            Some(ResourceKind::Custom(1)),
            "a name that is not offered"
        );
        let one = Reserved { amounts: wanted(1_500, 1, &[("license", 1)]), gpus: vec!["0".into()] };
        used.add(&one);
        assert_eq!(used.free_gpus(&offer()).collect::<Vec<_>>(), ["1"]);
        assert_eq!(used.lacking(&offer(), &wanted(500, 1, &[])), None);
        assert_eq!(used.lacking(&offer(), &wanted(501, 1, &[])), Some(ResourceKind::Cpus));
        assert_eq!(used.lacking(&offer(), &wanted(0, 2, &[])), Some(ResourceKind::Gpus));
        assert_eq!(used.lacking(&offer(), &wanted(0, 0, &[("license", 1)])), Some(ResourceKind::Custom(0)));
        used.remove(&one);
        assert_eq!(used, InUse::default());
    }

    #[test]
    fn two_reservations_are_added_where_the_first_one_reserves_something() {
        let one = Reservation {
            cpus_milli: 500,
            memory_bytes: 0,
            gpus: 0,
            custom: vec![("license".into(), u32::MAX), ("seat".into(), 0)],
        };
        let other = Reservation {
            cpus_milli: 1_500,
            memory_bytes: 64,
            gpus: 2,
            custom: vec![("license".into(), 1), ("seat".into(), 1)],
        };
        let both = Reservation { cpus_milli: 2_000, ..one.clone() };
        assert_eq!(one.with_amounts_of(&other), both);
        assert_eq!(Reservation::default().with_amounts_of(&other), Reservation::default());
    }

    #[test]
    fn the_shortage_is_the_missing_part_of_the_scarcest_resource() {
        let wanted = |cpus_milli, gpus, license| Reservation {
            cpus_milli,
            memory_bytes: u64::MAX,
            gpus,
            custom: vec![("license".into(), license)],
        };
        let of = |wanted| InUse::default().shortage(&offer(), &wanted);
        assert_eq!(of(wanted(2_000, 2, 1)), 0, "memory is not counted");
        assert_eq!(of(wanted(2_500, 2, 1)), 200, "a fifth of the cores");
        assert_eq!(of(wanted(2_500, 2, 4)), 750, "three of four licenses");
        assert_eq!(of(wanted(0, 3, 0)), 333, "one of three GPUs");
        assert_eq!(InUse::default().shortage(&offer(), &Reservation::default()), 0);
        let mut used = InUse::default();
        used.add(&Reserved { amounts: wanted(1_500, 1, 1), gpus: vec!["1".into()] });
        assert_eq!(used.shortage(&offer(), &wanted(1_000, 1, 0)), 500);
        assert_eq!(used.shortage(&offer(), &wanted(1_000, 2, 1)), 1_000, "no license is left");
    }
}
