{{- define "holdfast.name" -}}
{{- if contains "holdfast" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-holdfast" (.Release.Name | trunc 30 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "holdfast.selector" -}}
app.kubernetes.io/name: holdfast
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "holdfast.labels" -}}
{{ include "holdfast.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Values.image.tag | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The DNS domain that contains the names of the pods. */}}
{{- define "holdfast.domain" -}}
{{ include "holdfast.name" . }}-peers.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{/* The members with their peer addresses. The argument is a list of the root context and the number of members. */}}
{{- define "holdfast.members" -}}
{{- $root := index . 0 -}}
{{- range $i := until (int (index . 1)) -}}
{{- if $i }},{{ end }}{{ include "holdfast.name" $root }}-{{ $i }}={{ include "holdfast.name" $root }}-{{ $i }}.{{ include "holdfast.domain" $root }}:7379
{{- end -}}
{{- end }}

{{- define "holdfast.authSecret" -}}
{{ .Values.auth.existingSecret | default (printf "%s-auth" (include "holdfast.name" .)) }}
{{- end }}

{{- define "holdfast.clusterSecret" -}}
{{ .Values.clusterSecret.existingSecret | default (printf "%s-cluster" (include "holdfast.name" .)) }}
{{- end }}

{{- define "holdfast.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end }}

{{- define "holdfast.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "holdfast.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The flags for the password and for TLS with which "holdfast member" connects to a node. */}}
{{- define "holdfast.loginArgs" -}}
- --password-file=/etc/holdfast/auth/{{ .Values.auth.key }}
{{- if .Values.tls.enabled }}
- --tls-ca-cert-file=/etc/holdfast/tls/ca.crt
{{- if ne .Values.tls.authClients "no" }}
- --tls-cert-file=/etc/holdfast/tls/tls.crt
- --tls-key-file=/etc/holdfast/tls/tls.key
{{- end }}
{{- end }}
{{- end }}

{{- define "holdfast.secretMounts" -}}
- {name: auth, mountPath: /etc/holdfast/auth, readOnly: true}
{{- if .Values.tls.enabled }}
- {name: tls, mountPath: /etc/holdfast/tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "holdfast.secretVolumes" -}}
- name: auth
  secret: {secretName: {{ include "holdfast.authSecret" . }}, defaultMode: 0440}
{{- if .Values.tls.enabled }}
- name: tls
  secret: {secretName: {{ required "tls.existingSecret: name the Secret with tls.crt, tls.key and ca.crt" .Values.tls.existingSecret }}, defaultMode: 0440}
{{- end }}
{{- end }}
