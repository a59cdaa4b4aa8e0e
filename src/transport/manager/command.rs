//! The command line of each process manager. Pure.

use std::ffi::OsString;

use super::kind::ProcessManager;

/// What one command starts: one process on each of these hosts.
#[derive(Clone, Copy, Debug)]
pub struct ManagerCommand<'a> {
    /// The process manager.
    pub manager: ProcessManager,
    /// Its program.
    pub manager_program: &'a str,
    /// Names of the hosts.
    pub hosts: &'a [&'a str],
    /// Further options that the user gave (`--launcher_args`).
    pub words: &'a [String],
    /// GPUs of each node that the scheduler gave to the job; only for Slurm.
    pub gpus_per_node: Option<u32>,
    /// Whether the user is root: Open MPI refuses root without an option.
    pub is_root: bool,
    /// The program and its arguments.
    pub program: &'a [OsString],
}

impl ManagerCommand<'_> {
    /// Returns program and arguments of the manager.
    pub fn argv(&self) -> Vec<OsString> {
        let mut argv: Vec<OsString> = vec![self.manager_program.into()];
        argv.extend(self.options().into_iter().map(OsString::from));
        argv.extend(self.words.iter().map(OsString::from));
        if self.manager == ProcessManager::Pbs {
            argv.push("--".into());
        }
        argv.extend_from_slice(self.program);
        argv
    }

    fn options(&self) -> Vec<String> {
        let (count, hosts) = (self.hosts.len(), self.hosts.join(","));
        let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        match self.manager {
            ProcessManager::Slurm => {
                let mut options = vec![
                    format!("--nodes={count}"),
                    format!("--ntasks={count}"),
                    format!("--nodelist={hosts}"),
                ];
                // A step beside others, with all CPUs and the whole memory of the job on its nodes; a
                // task that ends does not end the others, and output goes through remuda.
                options.extend(text(&[
                    "--ntasks-per-node=1",
                    "--overlap",
                    "--cpu-bind=none",
                    "--mem=0",
                    "--mpi=none",
                    "--input=all",
                    "--unbuffered",
                    "--kill-on-bad-exit=0",
                    "--wait=0",
                    "--quit-on-interrupt",
                    "--job-name=remuda",
                ]));
                options.extend(self.gpus_per_node.map(|gpus| format!("--gpus-per-node={gpus}")));
                options
            }
            ProcessManager::OpenMpi => {
                let mut options =
                    vec!["--host".to_owned(), hosts, "-np".to_owned(), count.to_string()];
                options.extend(text(&["--map-by", "ppr:1:node", "--bind-to", "none"]));
                options.extend(self.is_root.then(|| "--allow-run-as-root".to_owned()));
                options
            }
            ProcessManager::Mpich | ProcessManager::IntelMpi | ProcessManager::Mvapich => {
                let mut options = vec!["-hosts".to_owned(), hosts];
                options.extend(text(&["-ppn", "1", "-n", &count.to_string()]));
                options.push("-disable-auto-cleanup".to_owned());
                options
            }
            // Once on every host of the job; those without a part exit.
            ProcessManager::Pbs => text(&["-u"]),
            ProcessManager::Lsf => vec!["-z".to_owned(), self.hosts.join(" ")],
            ProcessManager::Flux => text(&["exec", "--rank=all"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(manager: ProcessManager, words: &[&str], expected: &str) {
        let program: Vec<OsString> = ["/opt/remuda", "node"].map(OsString::from).to_vec();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let command = ManagerCommand {
            manager,
            manager_program: manager.usual_program(),
            hosts: &["n1", "n2"],
            words: &words,
            gpus_per_node: Some(8).filter(|_| manager == ProcessManager::Slurm),
            is_root: true,
            program: &program,
        };
        let argv = command.argv();
        let shown: Vec<_> = argv.iter().map(|word| word.to_str().expect("text")).collect();
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn each_manager_starts_one_process_on_each_host() {
        check(
            ProcessManager::Slurm,
            &["--account=a"],
            "srun --nodes=2 --ntasks=2 --nodelist=n1,n2 --ntasks-per-node=1 --overlap --cpu-bind=none \
             --mem=0 --mpi=none --input=all --unbuffered --kill-on-bad-exit=0 --wait=0 \
             --quit-on-interrupt --job-name=remuda --gpus-per-node=8 --account=a /opt/remuda node",
        );
        check(
            ProcessManager::OpenMpi,
            &["--mca", "btl", "tcp,self"],
            "mpirun --host n1,n2 -np 2 --map-by ppr:1:node --bind-to none \
             --allow-run-as-root --mca btl tcp,self /opt/remuda node",
        );
        let hydra = "-hosts n1,n2 -ppn 1 -n 2 -disable-auto-cleanup /opt/remuda node";
        check(ProcessManager::Mpich, &[], &format!("mpiexec {hydra}"));
        check(ProcessManager::Mvapich, &[], &format!("mpiexec {hydra}"));
        check(ProcessManager::IntelMpi, &[], &format!("mpiexec.hydra {hydra}"));
        check(ProcessManager::Pbs, &[], "pbsdsh -u -- /opt/remuda node");
        check(ProcessManager::Lsf, &[], "blaunch -z n1 n2 /opt/remuda node");
        check(ProcessManager::Flux, &[], "flux exec --rank=all /opt/remuda node");
    }
}
