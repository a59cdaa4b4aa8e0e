"""Holds the documents of a manifest, YAML on standard input, against what is published of them.

A field that nobody knows is an error. One line is printed for each document, and those that do not fit
make it end with 1. No package of a registry carries the schemas of LeaderWorkerSet, of Volcano and of
Kubeflow's older operators: of these the pods alone are looked at.
"""

import sys

import yaml
from kubeflow_trainer_api import models
from kubernetes_validate import utils

# The first release that knows everything that we use (`podReplacementPolicy`), and the newest: no field
# of these objects has been taken away in between.
RELEASES = ["1.29", utils.major_minor(utils.latest_version())]


def fits_kubernetes(document):
    """Strictly."""
    for release in RELEASES:
        try:
            utils.validate(document, release, strict=True)
        except utils.ValidationError as error:
            path = ".".join(str(part) for part in error.path)
            raise ValueError(f"Kubernetes {release}: {path}: {error.message}") from None
    return f"Kubernetes {RELEASES[0]} and {RELEASES[-1]}"


def pods(template):
    fits_kubernetes({"apiVersion": "v1", "kind": "PodTemplate", "template": template})


def jobs(replicated):
    """Jobs inside of other objects: what is in them is Kubernetes' own."""
    for job in replicated:
        template = job["template"]
        fits_kubernetes({"apiVersion": "batch/v1", "kind": "Job", **template})


def without_jobs(document, *path):
    """The same with empty Jobs, at this path."""
    if not path:
        return [{**job, "template": {}} for job in document]
    first, *rest = path
    return {**document, first: without_jobs(document[first], *rest)}


def fits_model(model, document):
    """What a model does not know is not there any more when it is written again."""
    written = model.from_dict(document).to_dict()
    lost = [path for path in paths(document) if path not in set(paths(written))]
    if lost:
        raise ValueError(f"{model.__name__} does not know {', '.join(lost)}")


def paths(value, prefix=""):
    yield prefix
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, f"{prefix}.{key}")
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from paths(inner, f"{prefix}[{at}]")


def job_set(document):
    jobs(document["spec"]["replicatedJobs"])
    outside = without_jobs(document, "spec", "replicatedJobs")
    fits_model(models.JobsetV1alpha2JobSet, outside)
    return "JobSet v1alpha2"


def runtime(document):
    path = ("spec", "template", "spec", "replicatedJobs")
    replicated = document["spec"]["template"]["spec"]["replicatedJobs"]
    # A completed Job: the Trainer says how many pods there are.
    jobs(replicated)
    fits_model(models.TrainerV1alpha1ClusterTrainingRuntime, without_jobs(document, *path))
    return "Trainer v1alpha1"


def group(document):
    pods(document["spec"]["leaderWorkerTemplate"]["workerTemplate"])
    return "its pods alone"


def volcano(document):
    for task in document["spec"]["tasks"]:
        pods(task["template"])
    return "its pods alone"


def replicas(field):
    def check(document):
        for replica in document["spec"][field].values():
            pods(replica["template"])
        return "its pods alone"

    return check


CHECKS = {
    ("v1", "Secret"): fits_kubernetes,
    ("v1", "Service"): fits_kubernetes,
    ("batch/v1", "Job"): fits_kubernetes,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): job_set,
    ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"): runtime,
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): group,
    ("batch.volcano.sh/v1alpha1", "Job"): volcano,
    ("kubeflow.org/v2beta1", "MPIJob"): replicas("mpiReplicaSpecs"),
    ("kubeflow.org/v1", "PyTorchJob"): replicas("pytorchReplicaSpecs"),
}


def main():
    problems = 0
    for document in filter(None, yaml.safe_load_all(sys.stdin)):
        kind = (document["apiVersion"], document["kind"])
        try:
            print(f"{kind[1]}: {CHECKS[kind](document)}")
        except ValueError as error:
            problems += 1
            print(f"{kind[1]}: {error}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
