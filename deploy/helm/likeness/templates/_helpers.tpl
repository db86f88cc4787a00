{{- define "likeness.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{- define "likeness.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "likeness.labels" -}}
{{ include "likeness.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "likeness.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion -}}
{{- if .Values.image.digest -}}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}{{ .Values.image.repository }}:{{ $tag }}{{ if .Values.gpu.enabled }}-cuda{{ end }}{{- end -}}
{{- end -}}

{{- /* How many pods there can be at a time. */ -}}
{{- define "likeness.mostReplicas" -}}
{{ .Values.autoscaling.enabled | ternary .Values.autoscaling.maxReplicas .Values.replicas | int }}
{{- end -}}

{{- /* What the chart decides of the configuration: the environment counts more than the file. */ -}}
{{- define "likeness.env" -}}
- {name: LIKENESS_LISTEN_GRPC, value: "0.0.0.0:7600"}
- {name: LIKENESS_LISTEN_ADMIN, value: "0.0.0.0:7601"}
- {name: LIKENESS_REPLICAS, value: {{ include "likeness.mostReplicas" . | quote }}}
- {name: LIKENESS_SHUTDOWN_DELAY, value: {{ printf "%ds" (int .Values.shutdown.delaySeconds) | quote }}}
- {name: LIKENESS_SHUTDOWN_GRACE, value: {{ printf "%ds" (int .Values.shutdown.graceSeconds) | quote }}}
{{- if not .Values.restartOnConfigChange }}
- {name: LIKENESS_RELOAD_INTERVAL, value: 30s}
{{- end }}
{{- with .Values.rest.port }}
- {name: LIKENESS_LISTEN_REST, value: "0.0.0.0:{{ . }}"}
{{- end }}
{{- with .Values.proxy.grpcPort }}
- {name: LIKENESS_PROXY_LISTEN_GRPC, value: "0.0.0.0:{{ . }}"}
{{- end }}
{{- with .Values.proxy.restPort }}
- {name: LIKENESS_PROXY_LISTEN_REST, value: "0.0.0.0:{{ . }}"}
{{- end }}
{{- if .Values.state.enabled }}
- {name: LIKENESS_STATE_DIR, value: /var/lib/likeness}
{{- end }}
{{- if .Values.state.sharedJournal }}
- {name: LIKENESS_JOURNAL_SHARED, value: /var/lib/likeness-journal}
{{- end }}
{{- if .Values.tls.secretName }}
- {name: LIKENESS_LISTEN_TLS_CERT_FILE, value: /etc/likeness/tls/tls.crt}
- {name: LIKENESS_LISTEN_TLS_KEY_FILE, value: /etc/likeness/tls/tls.key}
{{- if .Values.tls.clientCA }}
- {name: LIKENESS_LISTEN_TLS_CLIENT_CA_FILE, value: /etc/likeness/tls/ca.crt}
{{- end }}
{{- end }}
{{- if .Values.tokens.secretName }}
- {name: LIKENESS_LISTEN_AUTH_TOKENS_FILE, value: /etc/likeness/tokens/{{ .Values.tokens.key }}}
{{- end }}
{{- if .Values.admin.tls.secretName }}
- {name: LIKENESS_LISTEN_ADMIN_TLS_CERT_FILE, value: /etc/likeness/admin-tls/tls.crt}
- {name: LIKENESS_LISTEN_ADMIN_TLS_KEY_FILE, value: /etc/likeness/admin-tls/tls.key}
{{- if .Values.admin.tls.clientCA }}
- {name: LIKENESS_LISTEN_ADMIN_TLS_CLIENT_CA_FILE, value: /etc/likeness/admin-tls/ca.crt}
{{- end }}
{{- end }}
{{- if .Values.admin.tokens.secretName }}
- {name: LIKENESS_LISTEN_ADMIN_AUTH_TOKENS_FILE, value: /etc/likeness/admin-tokens/{{ .Values.admin.tokens.key }}}
{{- end }}
{{- with .Values.goMemoryLimit }}
- {name: GOMEMLIMIT, value: {{ . | quote }}}
{{- end }}
{{- range $variable, $from := .Values.secretEnv }}
- {name: {{ $variable }}, valueFrom: {secretKeyRef: {name: {{ $from.name }}, key: {{ $from.key }}}}}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "likeness.adminScheme" -}}{{ empty .Values.admin.tls.secretName | ternary "http" "https" }}{{- end -}}

{{- /* A probe of the admin port. */ -}}
{{- define "likeness.probe" -}}
{path: {{ .path }}, port: admin{{ if .root.Values.admin.tls.secretName }}, scheme: HTTPS{{ end }}}
{{- end -}}

{{- define "likeness.ports" -}}
- {name: grpc, containerPort: 7600}
- {name: admin, containerPort: 7601}
{{- with .Values.rest.port }}
- {name: rest, containerPort: {{ . }}}
{{- end }}
{{- with .Values.proxy.grpcPort }}
- {name: proxy-grpc, containerPort: {{ . }}}
{{- end }}
{{- with .Values.proxy.restPort }}
- {name: proxy-rest, containerPort: {{ . }}}
{{- end }}
{{- end -}}
