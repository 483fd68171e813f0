//! `required|auto|off`: when a step is done that needs more than cargo.

use clap::ValueEnum;

/// When a step is done.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// It is done; if something that it needs is missing, the command fails
    Required,
    /// It is done if all that it needs is here
    Auto,
    /// It is not done
    Off,
}

impl When {
    /// True if the step is off. Then a line says what is left out.
    pub(crate) fn is_off(self, flag: &str, left_out: &str) -> bool {
        if self == Self::Off {
            println!("{flag}: off; {left_out}");
        }
        self == Self::Off
    }

    /// Something that the step needs is missing. A line says what is left out.
    ///
    /// # Errors
    /// The step is required.
    pub(crate) fn leave_out(self, flag: &str, missing: anyhow::Error, left_out: &str) -> anyhow::Result<()> {
        if self == Self::Required {
            return Err(missing.context(format!("--{flag} required")));
        }
        println!("{flag}: {missing:#}; {left_out}");
        Ok(())
    }
}
