"""The Kubernetes edge: the only importer of the kubernetes client and of tenacity."""

from responder.kube.access import Access, Right
from responder.kube.cluster import KubeCluster
from responder.kube.managers import FIELD_MANAGER
from responder.kube.rights import missing_role, rights_needed

__all__ = ["FIELD_MANAGER", "Access", "KubeCluster", "Right", "missing_role", "rights_needed"]
