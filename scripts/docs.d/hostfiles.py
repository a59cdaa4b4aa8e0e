"""The page of the dialects of hostfiles: the same hosts, written by `remuda hostfile convert` in each dialect."""

import os
import re
import tempfile

from markdown import fence

HOSTS = "node01 slots=8\nnode02 slots=8\nnode03 slots=4\n"
NAMES = {
    "deepspeed": "DeepSpeed",
    "openmpi": "Open MPI",
    "mpich": "MPICH, Intel MPI",
    "ranges": "Ranges of remuda",
    "pbs": "PBS (`$PBS_NODEFILE`)",
    "horovod": "Horovod (`horovodrun -H`)",
    "lsf": "LSF (`$LSB_MCPU_HOSTS`)",
    "sge": "Grid Engine (`$PE_HOSTFILE`)",
    "slurm": "Slurm",
    "nodeset": "Node sets",
    "json": "JSON",
}


def page(remuda):
    usage = " ".join(remuda.text("hostfile", "convert", "--help").split())
    written = re.search(r"--to <DIALECT>.*?\[possible values: (.*?)\]", usage)[1].split(", ")
    read = re.search(r"--from <DIALECT>.*?\[possible values: (.*?)\]", usage)[1].split(", ")
    out = [
        "# Hostfile dialects",
        "Three hosts with 8, 8 and 4 slots, as `remuda hostfile convert --to DIALECT` writes them. `remuda` detects the"
        " dialect of a file that it reads; `--from DIALECT` sets it.",
    ]
    with tempfile.TemporaryDirectory() as folder:
        hosts = os.path.join(folder, "hosts")
        with open(hosts, "w", encoding="utf-8") as file:
            file.write(HOSTS)
        for dialect in written:
            text = remuda.text("hostfile", "convert", "--to", dialect, hosts)
            note = "Read and written." if dialect in read else "Written only."
            out += [f"## {NAMES.get(dialect, dialect)}", f"`{dialect}`. {note}", fence("text", text)]
    return "\n\n".join(out)
