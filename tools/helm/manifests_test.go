package helm

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	disruption "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	security "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	strict "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// objects are the manifests of one file that refer to each other.
type objects struct {
	pod       core.PodTemplateSpec
	claims    []core.PersistentVolumeClaim
	service   string // of a StatefulSet
	selectors map[string]*meta.LabelSelector
	services  []core.Service
	monitors  []monitoring.ServiceMonitor
	policies  []networking.NetworkPolicy
}

// decode reads manifests as the API server would, and refuses a field that it does not have.
func decode(t *testing.T, text string) *objects {
	t.Helper()
	o := &objects{selectors: map[string]*meta.LabelSelector{}}
	for part := range strings.SplitSeq("\n"+text, "\n---\n") {
		b, err := yaml.YAMLToJSONStrict([]byte(part))
		if err != nil {
			t.Fatalf("%v in\n%s", err, part)
		}
		var kind meta.TypeMeta
		if err := json.Unmarshal(b, &kind); err != nil {
			t.Fatal(err)
		}
		if kind.Kind != "" {
			o.add(t, kind, b)
		}
	}
	return o
}

func as[T any](t *testing.T, b []byte) *T {
	t.Helper()
	out := new(T)
	unknown, err := strict.UnmarshalStrict(b, out)
	if err != nil || len(unknown) > 0 {
		t.Errorf("%T: %v %v", out, err, unknown)
	}
	return out
}

func (o *objects) add(t *testing.T, kind meta.TypeMeta, b []byte) {
	t.Helper()
	switch kind.APIVersion + " " + kind.Kind {
	case "apps/v1 Deployment":
		d := as[apps.Deployment](t, b)
		o.pod, o.selectors[kind.Kind] = d.Spec.Template, d.Spec.Selector
	case "apps/v1 StatefulSet":
		s := as[apps.StatefulSet](t, b)
		o.pod, o.claims, o.service, o.selectors[kind.Kind] = s.Spec.Template, s.Spec.VolumeClaimTemplates, s.Spec.ServiceName, s.Spec.Selector
	case "v1 Service":
		s := as[core.Service](t, b)
		o.services = append(o.services, *s)
		o.selectors[kind.Kind+" "+s.Name] = &meta.LabelSelector{MatchLabels: s.Spec.Selector}
	case "batch/v1 CronJob":
		spec := as[batch.CronJob](t, b).Spec
		if spec.ConcurrencyPolicy != batch.ForbidConcurrent {
			t.Error("two runs of a job may disturb each other")
		}
		checkSecurity(t, security.LevelRestricted, spec.JobTemplate.Spec.Template)
	case "v1 ConfigMap":
		as[core.ConfigMap](t, b)
	case "v1 ServiceAccount":
		if a := as[core.ServiceAccount](t, b); a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken {
			t.Error("the account's token is mounted")
		}
	case "policy/v1 PodDisruptionBudget":
		o.selectors[kind.Kind] = as[disruption.PodDisruptionBudget](t, b).Spec.Selector
	case "networking.k8s.io/v1 NetworkPolicy":
		n := as[networking.NetworkPolicy](t, b)
		o.policies = append(o.policies, *n)
		o.selectors[kind.Kind] = &n.Spec.PodSelector
	case "autoscaling/v2 HorizontalPodAutoscaler":
		as[autoscaling.HorizontalPodAutoscaler](t, b)
	case "monitoring.coreos.com/v1 ServiceMonitor":
		o.monitors = append(o.monitors, *as[monitoring.ServiceMonitor](t, b))
	case "monitoring.coreos.com/v1 PrometheusRule":
		if r := as[monitoring.PrometheusRule](t, b); len(r.Spec.Groups) == 0 {
			t.Error("the rule has no alerts")
		}
	default:
		t.Errorf("nobody checks %s %s", kind.APIVersion, kind.Kind)
	}
}

// check holds the objects to each other, to a Pod Security Standard, and to likeness's configuration.
func (o *objects) check(t *testing.T, level security.Level) {
	t.Helper()
	spec := o.pod.Spec
	all := slices.Concat(spec.InitContainers, spec.Containers)
	o.checkSelectors(t)
	o.checkPorts(t, all)
	o.checkVolumes(t, all)
	own := all[slices.IndexFunc(all, func(c core.Container) bool { return c.Name == "likeness" })]
	checkEnvironment(t, own, spec)
	checkSecurity(t, level, o.pod)
	alone := o.pod.DeepCopy()
	alone.Spec.InitContainers, alone.Spec.Containers = nil, []core.Container{own}
	checkSecurity(t, security.LevelRestricted, *alone)
	if own.SecurityContext.ReadOnlyRootFilesystem == nil || !*own.SecurityContext.ReadOnlyRootFilesystem {
		t.Error("likeness may write to its root file system")
	}
	if own.LivenessProbe.HTTPGet.Path != "/livez" || own.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Error("the probes do not ask /livez and /readyz")
	}
}

func checkSecurity(t *testing.T, level security.Level, pod core.PodTemplateSpec) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	at := security.LevelVersion{Level: level, Version: security.LatestVersion()}
	for _, r := range evaluator.EvaluatePod(at, &pod.ObjectMeta, &pod.Spec) {
		if !r.Allowed {
			t.Errorf("Pod Security Standard %s: %s: %s", level, r.ForbiddenReason, r.ForbiddenDetail)
		}
	}
}

func (o *objects) checkSelectors(t *testing.T) {
	t.Helper()
	for name, s := range o.selectors {
		selector, err := meta.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() || !selector.Matches(labels.Set(o.pod.Labels)) {
			t.Errorf("%s selects %v (%v), the pods are %v", name, s, err, o.pod.Labels)
		}
	}
	for _, m := range o.monitors {
		selector, err := meta.LabelSelectorAsSelector(&m.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		matched := 0
		for _, s := range o.services {
			if selector.Matches(labels.Set(s.Labels)) {
				matched++
				if !slices.ContainsFunc(s.Spec.Ports, func(p core.ServicePort) bool { return p.Name == m.Spec.Endpoints[0].Port }) {
					t.Errorf("service %s has no port %s", s.Name, m.Spec.Endpoints[0].Port)
				}
			}
		}
		if matched != 1 {
			t.Errorf("the monitor selects %d services", matched)
		}
	}
	if o.service != "" && !slices.ContainsFunc(o.services, func(s core.Service) bool { return s.Name == o.service && s.Spec.ClusterIP == "None" }) {
		t.Errorf("there is no headless service %s", o.service)
	}
}

func (o *objects) checkPorts(t *testing.T, containers []core.Container) {
	t.Helper()
	named := map[string]bool{}
	for _, c := range containers {
		for _, p := range c.Ports {
			if named[p.Name] || len(p.Name) > 15 {
				t.Errorf("the name of port %q is taken or too long", p.Name)
			}
			named[p.Name] = true
		}
	}
	want := func(where, name string) {
		if !named[name] {
			t.Errorf("%s: no container has a port %q", where, name)
		}
	}
	for _, s := range o.services {
		for _, p := range s.Spec.Ports {
			want("service "+s.Name, p.TargetPort.StrVal)
		}
	}
	for _, p := range o.policies {
		for _, rule := range p.Spec.Ingress {
			for _, port := range rule.Ports {
				want("network policy", port.Port.StrVal)
			}
		}
	}
	for _, c := range containers {
		for _, p := range []*core.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if p != nil && p.HTTPGet != nil && p.HTTPGet.Port.StrVal != "" {
				want("probe of "+c.Name, p.HTTPGet.Port.StrVal)
			}
		}
	}
}

func (o *objects) checkVolumes(t *testing.T, containers []core.Container) {
	t.Helper()
	volumes := map[string]bool{}
	for _, v := range o.pod.Spec.Volumes {
		volumes[v.Name] = true
	}
	for _, c := range o.claims {
		volumes[c.Name] = true
	}
	for _, c := range containers {
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s mounts %s, which does not exist", c.Name, m.Name)
			}
		}
	}
}

// checkEnvironment wants a heap smaller than the memory, and a drain that ends within the pod's
// termination time. A test in deploy checks the meaning of the variables to likeness.
func checkEnvironment(t *testing.T, c core.Container, spec core.PodSpec) {
	t.Helper()
	grace, end := time.Duration(0), time.Duration(*spec.TerminationGracePeriodSeconds)*time.Second
	for _, e := range c.Env {
		switch {
		case e.Name == "GOMEMLIMIT":
			heap, err := resource.ParseQuantity(strings.TrimSuffix(e.Value, "B"))
			if limit := c.Resources.Limits.Memory(); err != nil || heap.Cmp(*limit) >= 0 {
				t.Errorf("a heap of %s (%v) does not fit %s", e.Value, err, limit)
			}
		case e.Name == "LIKENESS_SHUTDOWN_GRACE" || e.Name == "LIKENESS_SHUTDOWN_DELAY":
			d, err := time.ParseDuration(e.Value)
			if err != nil {
				t.Fatal(err)
			}
			grace += d
		}
	}
	for _, other := range slices.Concat(spec.InitContainers, spec.Containers) {
		if other.Lifecycle != nil && other.Lifecycle.PreStop != nil {
			end -= time.Duration(other.Lifecycle.PreStop.Sleep.Seconds) * time.Second
		}
	}
	if grace == 0 || end < grace+5*time.Second {
		t.Errorf("%v are left to end in, shutdown.delay and shutdown.grace are %v", end, grace)
	}
	if spec.EnableServiceLinks == nil || *spec.EnableServiceLinks {
		t.Error("Kubernetes sets variables that begin with LIKENESS_ for a service of that name")
	}
}
