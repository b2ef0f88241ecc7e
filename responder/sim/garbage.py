"""The garbage collector's part in foreground deletion: dependents first, then the owner."""

from responder.sim.objects import Object, ObjectStore
from responder.sim.view import PODS, REPLICASETS, Ref, View

FINALIZER = "foregroundDeletion"


def finishing(obj: Object) -> bool:
    """Whether an object waits for its dependents to go."""
    meta = obj["metadata"]
    return bool(meta.get("deletionTimestamp")) and FINALIZER in (meta.get("finalizers") or ())


def collect(store: ObjectStore, view: View, ref: Ref, obj: Object) -> None:
    """Deletes the dependents of an object that waits for them, then lets it go."""
    uid = obj["metadata"]["uid"]
    for resource in (REPLICASETS, PODS):
        for entry in view.owned(uid, resource):
            store.delete(resource, *entry.key)
    if obj["metadata"]["finalizers"] == [FINALIZER]:
        store.delete(*ref)
        return

    def change(new: Object) -> None:
        new["metadata"]["finalizers"].remove(FINALIZER)

    store.mutate(*ref, change, manager="kube-controller-manager")
