//! The variables of a program.

use std::collections::BTreeMap;

use super::Workspace;
use crate::config::has_time_zone;
use crate::linux::command::Places;
use crate::linux::init::INNER_HOME;
use crate::linux::network;
use crate::linux::spec::{Spec, Walls};

impl Workspace {
    /// The environment of a program.
    pub(super) fn env(
        &self,
        spec: &Spec,
        verify: bool,
        places: &Places,
        own: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let (home, tmp) = match spec.base.walls {
            Walls::Full => (INNER_HOME.to_owned(), "/tmp".to_owned()),
            Walls::Reduced => (places.home.display().to_string(), places.scratch.display().to_string()),
        };
        let mut env = BTreeMap::from([
            ("PATH".to_owned(), self.sandbox.toolchains.path.clone()),
            ("HOME".to_owned(), home),
        ]);
        if spec.base.walls == Walls::Reduced {
            // There is no `/tmp` of its own in its place, so compilers and tests would have none at all.
            env.insert("TMPDIR".to_owned(), tmp.clone());
        }
        if !verify {
            let fixed = [
                ("LANG", "C.UTF-8"),
                ("TERM", "dumb"),
                // Bytecode is looked up by whole seconds and size: an edit right after a run would not be seen.
                ("PYTHONDONTWRITEBYTECODE", "1"),
                ("USER", "agent"),
                ("LOGNAME", "agent"),
                ("SHELL", "/bin/sh"),
            ];
            env.extend(fixed.map(|(name, value)| (name.to_owned(), value.to_owned())));
            env.insert("TMPDIR".to_owned(), tmp);
            let rustup = self.sandbox.toolchains.rustup_home.as_ref();
            env.extend(rustup.map(|path| ("RUSTUP_HOME".to_owned(), path.display().to_string())));
            let zone = self.sandbox.config.time_zone.as_ref();
            env.extend(zone.filter(|zone| has_time_zone(zone)).map(|zone| ("TZ".to_owned(), zone.clone())));
            if spec.setup.trust.is_some() {
                env.extend(network::trust());
            }
            if spec.base.walls == Walls::Full {
                env.extend(self.git_env(&spec.setup));
            }
            env.extend(own);
            // Last: a command's own variables do not lead it past its way out.
            env.extend(spec.setup.network.then(network::env).into_iter().flatten());
        } else {
            // What a gate judges; a verification is given nothing.
            env.extend(own);
        }
        env
    }
}
