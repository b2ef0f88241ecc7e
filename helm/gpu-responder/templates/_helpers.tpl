{{- define "gpu-responder.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "gpu-responder.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "gpu-responder.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "gpu-responder.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "gpu-responder.selectorLabels" -}}
app.kubernetes.io/name: {{ include "gpu-responder.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gpu-responder.labels" -}}
{{- $labels := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" (.Values.image.tag | default .Chart.AppVersion | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/part-of" "gpu-responder" }}
{{- $labels = merge (include "gpu-responder.selectorLabels" . | fromYaml) $labels .Values.commonLabels }}
{{- toYaml $labels }}
{{- end }}

{{- define "gpu-responder.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "gpu-responder.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "gpu-responder.image" -}}
{{- $name := .Values.image.repository }}
{{- if .Values.image.registry }}{{ $name = printf "%s/%s" .Values.image.registry $name }}{{ end }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $name .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $name (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{- define "gpu-responder.scheme" -}}
{{- ternary "https" "http" (ne .Values.tls.existingSecret "") }}
{{- end }}

{{- define "gpu-responder.url" -}}
{{- printf "%s://%s.%s.svc:%v" (include "gpu-responder.scheme" .) (include "gpu-responder.fullname" .) .Release.Namespace .Values.service.port }}
{{- end }}

{{- /* The namespaces that get a Role, as a JSON list: with the test, its own too. */}}
{{- define "gpu-responder.namespaces" -}}
{{- $named := .Values.targetNamespaces | default (list .Release.Namespace) }}
{{- if include "gpu-responder.testable" . }}{{ $named = append $named .Release.Namespace | uniq }}{{ end }}
{{- $named | toJson }}
{{- end }}

{{- /* Name and key of a Secret with a token, as JSON; both empty when nobody has it. */}}
{{- define "gpu-responder.tokenSecret" -}}
{{- $given := index .root.Values.tokens (printf "%sSecret" .role) }}
{{- if $given.name }}
{{- dict "name" $given.name "key" $given.key | toJson }}
{{- else if and .root.Values.tokens.generate (not .root.Values.tokens.existingHashesSecret.name) }}
{{- dict "name" (printf "%s-tokens" (include "gpu-responder.fullname" .root)) "key" .role | toJson }}
{{- else }}
{{- dict "name" "" "key" "" | toJson }}
{{- end }}
{{- end }}

{{- define "gpu-responder.hashesSecret" -}}
{{- .Values.tokens.existingHashesSecret.name | default (printf "%s-token-hashes" (include "gpu-responder.fullname" .)) }}
{{- end }}

{{- /* Whether `helm test` can be: it needs both tokens. */}}
{{- define "gpu-responder.testable" -}}
{{- $deliver := include "gpu-responder.tokenSecret" (dict "root" . "role" "alertmanager") | fromJson }}
{{- $view := include "gpu-responder.tokenSecret" (dict "root" . "role" "viewer") | fromJson }}
{{- if and .Values.helmTest.enabled $deliver.name $view.name }}yes{{ end }}
{{- end }}

{{- define "gpu-responder.policyFile" -}}
{{- $allowed := include "gpu-responder.namespaces" . | fromJsonArray }}
{{- $policy := deepCopy .Values.policy }}
{{- if include "gpu-responder.testable" . }}
{{- $test := tpl (.Files.Get "files/test-policy.yaml") . | fromYaml }}
{{- $_ := set $policy "policies" (prepend $policy.policies $test) }}
{{- end }}
{{- $head := dict "apiVersion" "gpu-responder.io/v1alpha1" "kind" "ResponderPolicy" "dryRun" .Values.dryRun "allowedNamespaces" $allowed }}
{{- if .Values.cluster }}{{ $_ := set $head "cluster" .Values.cluster }}{{ end }}
{{- toYaml (merge $head $policy) }}
{{- end }}

{{- /* What may be done where targets are. Only `scale` can be written. */}}
{{- define "gpu-responder.targetRules" -}}
{{- $scales := list }}
{{- range .Values.rbac.workloads }}{{ $scales = append $scales (printf "%s/scale" .) }}{{ end }}
{{- if $scales }}
- apiGroups: [apps]
  resources: {{ .Values.rbac.workloads | toJson }}
  verbs: [get, list, watch]
{{- if not (has "replicasets" .Values.rbac.workloads) }}
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [get]
{{- end }}
- apiGroups: [apps]
  resources: {{ $scales | toJson }}
  verbs: [get, update]
{{- end }}
{{- range .Values.rbac.customResources }}
- apiGroups: [{{ .apiGroup | quote }}]
  resources: [{{ .resource | quote }}]
  verbs: [get, list, watch]
- apiGroups: [{{ .apiGroup | quote }}]
  resources: [{{ printf "%s/scale" .resource | quote }}]
  verbs: [get, update]
{{- end }}
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list, watch]
{{- if .Values.rbac.keda }}
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [list, watch]
{{- end }}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
{{- if .Values.rbac.events }}
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end }}
{{- end }}
