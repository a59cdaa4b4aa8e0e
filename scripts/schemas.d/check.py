"""Validates the documents of a manifest, YAML on standard input, against the published schemas.

An unknown field is an error. Prints one line for each document, and exits with 1 if one is invalid. No
package contains the schemas of LeaderWorkerSet, Volcano and Kubeflow's older operators: only their pods
are validated.
"""

import sys

import yaml
from kubeflow_trainer_api import models
from kubernetes_validate import utils

# The first release with every field in use (`podReplacementPolicy`), and the newest. No field of these
# objects was removed in between.
RELEASES = ["1.29", utils.major_minor(utils.latest_version())]


def validate_kubernetes(document):
    """Validates strictly: unknown fields are errors."""
    for release in RELEASES:
        try:
            utils.validate(document, release, strict=True)
        except utils.ValidationError as error:
            path = ".".join(str(part) for part in error.path)
            raise ValueError(f"Kubernetes {release}: {path}: {error.message}") from None
    return f"Kubernetes {RELEASES[0]} and {RELEASES[-1]}"


def validate_pods(template):
    validate_kubernetes({"apiVersion": "v1", "kind": "PodTemplate", "template": template})


def validate_jobs(replicated):
    """Validates the Jobs inside another object against the schemas of Kubernetes."""
    for job in replicated:
        template = job["template"]
        validate_kubernetes({"apiVersion": "batch/v1", "kind": "Job", **template})


def without_jobs(document, *path):
    """The document with empty Jobs at this path."""
    if not path:
        return [{**job, "template": {}} for job in document]
    first, *rest = path
    return {**document, first: without_jobs(document[first], *rest)}


def validate_model(model, document):
    """Validates by a round trip: a model drops unknown fields when it is written again."""
    written = model.from_dict(document).to_dict()
    lost = [path for path in paths(document) if path not in set(paths(written))]
    if lost:
        raise ValueError(f"{model.__name__} has no {', '.join(lost)}")


def paths(value, prefix=""):
    yield prefix
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, f"{prefix}.{key}")
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from paths(inner, f"{prefix}[{at}]")


def job_set(document):
    validate_jobs(document["spec"]["replicatedJobs"])
    outside = without_jobs(document, "spec", "replicatedJobs")
    validate_model(models.JobsetV1alpha2JobSet, outside)
    return "JobSet v1alpha2"


def runtime(document):
    path = ("spec", "template", "spec", "replicatedJobs")
    replicated = document["spec"]["template"]["spec"]["replicatedJobs"]
    # A completed Job: the Trainer sets the number of pods.
    validate_jobs(replicated)
    validate_model(models.TrainerV1alpha1ClusterTrainingRuntime, without_jobs(document, *path))
    return "Trainer v1alpha1"


def group(document):
    validate_pods(document["spec"]["leaderWorkerTemplate"]["workerTemplate"])
    return "its pods alone"


def volcano(document):
    for task in document["spec"]["tasks"]:
        validate_pods(task["template"])
    return "its pods alone"


def replicas(field):
    def check(document):
        for replica in document["spec"][field].values():
            validate_pods(replica["template"])
        return "its pods alone"

    return check


CHECKS = {
    ("v1", "Secret"): validate_kubernetes,
    ("v1", "Service"): validate_kubernetes,
    ("batch/v1", "Job"): validate_kubernetes,
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
