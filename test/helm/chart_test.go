package helm

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const chartDir = "../../deploy/helm/holdfast"

// objects are the rendered objects of the chart, by kind and name.
type objects struct {
	sets     map[string]*appsv1.StatefulSet
	jobs     map[string]*batchv1.Job
	services map[string]*corev1.Service
	secrets  map[string]*corev1.Secret
	budgets  map[string]*policyv1.PodDisruptionBudget
	notes    string
}

// values contains the values of a release as nested maps, in the form that the
// YAML decoder returns.
type values = map[string]any

// render renders the chart as "helm install" or "helm upgrade" does, without a
// Kubernetes cluster.
func render(v values, upgrade bool) (map[string]string, error) {
	chart, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "locks", Namespace: "prod", Revision: 1, IsInstall: !upgrade,
		IsUpgrade: upgrade}
	full, err := chartutil.ToRenderValues(chart, v, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, full)
}

// decode renders the chart and decodes each object strictly: a field that the
// Kubernetes API does not have fails the test.
func decode(t *testing.T, v values, upgrade bool) objects {
	t.Helper()
	files, err := render(v, upgrade)
	if err != nil {
		t.Fatal(err)
	}
	o := objects{
		sets: map[string]*appsv1.StatefulSet{}, jobs: map[string]*batchv1.Job{},
		services: map[string]*corev1.Service{}, secrets: map[string]*corev1.Secret{},
		budgets: map[string]*policyv1.PodDisruptionBudget{},
	}
	for name, text := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			o.notes = text
			continue
		}
		for _, doc := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
			var head struct {
				APIVersion, Kind string
				Metadata         struct{ Name string }
			}
			if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, doc)
			}
			if head.Kind == "" {
				continue // only comments
			}
			switch head.APIVersion + " " + head.Kind {
			case "apps/v1 StatefulSet":
				put(t, o.sets, head.Metadata.Name, doc)
			case "batch/v1 Job":
				put(t, o.jobs, head.Metadata.Name, doc)
			case "v1 Service":
				put(t, o.services, head.Metadata.Name, doc)
			case "v1 Secret":
				put(t, o.secrets, head.Metadata.Name, doc)
			case "policy/v1 PodDisruptionBudget":
				put(t, o.budgets, head.Metadata.Name, doc)
			default:
				t.Fatalf("%s: unexpected object %s %s", name, head.APIVersion, head.Kind)
			}
		}
	}
	return o
}

func put[T any](t *testing.T, m map[string]*T, name, doc string) {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(doc), object); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, doc)
	}
	if m[name] != nil {
		t.Fatalf("two objects have the name %s", name)
	}
	m[name] = object
}

// flag returns the value of a flag, and whether args contains the flag.
func flag(args []string, name string) (string, bool) {
	for _, a := range args {
		if value, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return value, true
		}
	}
	return "", false
}

func TestChart_Defaults(t *testing.T) {
	o := decode(t, nil, false)
	set := o.sets["locks-holdfast"]
	if set == nil || *set.Spec.Replicas != 3 {
		t.Fatalf("StatefulSet: %+v", set)
	}
	pod := set.Spec.Template
	for name, s := range o.services {
		for key, want := range s.Spec.Selector {
			if pod.Labels[key] != want {
				t.Errorf("Service %s selects %s=%s, the pods have %q", name, key, want, pod.Labels[key])
			}
		}
		for _, p := range s.Spec.Ports {
			if !slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(c corev1.ContainerPort) bool {
				return c.Name == p.TargetPort.StrVal
			}) {
				t.Errorf("Service %s: the container has no port %s", name, p.TargetPort.StrVal)
			}
		}
	}
	peers := o.services[set.Spec.ServiceName]
	if peers == nil || peers.Spec.ClusterIP != "None" || !peers.Spec.PublishNotReadyAddresses {
		t.Errorf("the StatefulSet's Service %q must be headless and publish nodes that are not ready: %+v",
			set.Spec.ServiceName, peers)
	}
	for key, want := range set.Spec.Selector.MatchLabels {
		if pod.Labels[key] != want {
			t.Errorf("the StatefulSet selects %s=%s, its pods have %q", key, want, pod.Labels[key])
		}
	}
	apart := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(apart) != 1 || apart[0].TopologyKey != "kubernetes.io/hostname" ||
		apart[0].LabelSelector.MatchLabels["app.kubernetes.io/instance"] != "locks" {
		t.Errorf("anti-affinity: %+v", apart)
	}
	if b := o.budgets["locks-holdfast"]; b == nil || b.Spec.MaxUnavailable.IntVal != 1 {
		t.Errorf("PodDisruptionBudget: %+v", b)
	}
	if set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
		t.Error("the pods must start together: the nodes form the cluster when all are up")
	}
	if p := set.Spec.PersistentVolumeClaimRetentionPolicy; p == nil || p.WhenScaled != "Delete" {
		t.Errorf("the data of a removed node must be deleted: %+v", p)
	}
	checkMounts(t, pod.Spec)
	c := pod.Spec.Containers[0]
	if c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe.HTTPGet.Path != "/healthz" ||
		c.StartupProbe == nil {
		t.Errorf("probes: %+v %+v %+v", c.ReadinessProbe, c.LivenessProbe, c.StartupProbe)
	}
	checkServe(t, c.Args)
	want := "locks-holdfast-0=locks-holdfast-0.locks-holdfast-peers.prod.svc.cluster.local:7379," +
		"locks-holdfast-1=locks-holdfast-1.locks-holdfast-peers.prod.svc.cluster.local:7379," +
		"locks-holdfast-2=locks-holdfast-2.locks-holdfast-peers.prod.svc.cluster.local:7379"
	if got, _ := flag(c.Args, "peers"); got != want {
		t.Errorf("--peers=%s, want %s", got, want)
	}
	for name, s := range o.secrets {
		for key, text := range s.Data {
			if len(text) < 32 {
				t.Errorf("Secret %s: %s has %d bytes, want 32 at least", name, key, len(text))
			}
		}
	}
	if len(o.secrets) != 2 || len(o.services) != 2 {
		t.Errorf("%d secrets and %d services, want 2 of each", len(o.secrets), len(o.services))
	}
	if !strings.Contains(o.notes, "locks-holdfast.prod.svc:6379") || strings.Contains(o.notes, "tolerate") {
		t.Errorf("notes: %s", o.notes)
	}
}

// checkMounts reports mounts without a volume, volumes that are not mounted, and
// Secrets that every user can read.
func checkMounts(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	var volumes, mounts []string
	for _, v := range pod.Volumes {
		volumes = append(volumes, v.Name)
		if v.Secret != nil && *v.Secret.DefaultMode&0o007 != 0 {
			t.Errorf("every user can read the Secret %s", v.Secret.SecretName)
		}
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.Name != "data" {
			mounts = append(mounts, m.Name)
		}
	}
	slices.Sort(volumes)
	slices.Sort(mounts)
	if !slices.Equal(volumes, mounts) {
		t.Errorf("volumes %v, mounts %v", volumes, mounts)
	}
}

// TestChart_Scaled checks the upgrade to another number of replicas. The hook
// must set the members of the cluster to the pods that exist after the upgrade.
// The existing nodes must not restart.
func TestChart_Scaled(t *testing.T) {
	before := decode(t, nil, false)
	for _, n := range []int{1, 5} {
		after := decode(t, values{"replicas": n}, true)
		job := after.jobs["locks-holdfast-members"]
		if job == nil {
			t.Fatal("no hook")
		}
		if hook := job.Annotations["helm.sh/hook"]; !strings.Contains(hook, "pre-upgrade") {
			t.Errorf("hook is %q: the members must change before the pods do", hook)
		}
		pod := job.Spec.Template
		checkMounts(t, pod.Spec)
		args := pod.Spec.Containers[0].Args
		if got := strings.Count(args[2], ":7379"); args[0]+" "+args[1] != "member set" || got != n {
			t.Errorf("%d members in %q, want %d", got, args, n)
		}
		checkFlags(t, []string{"member", "set"}, args[3:])
		if pod.Labels["app.kubernetes.io/name"] == "holdfast" {
			t.Error("the Services select the pod of the hook")
		}
		was, is := before.sets["locks-holdfast"].Spec.Template, after.sets["locks-holdfast"].Spec.Template
		if a, b := was.Spec.Containers[0].Args, is.Spec.Containers[0].Args; !slices.Equal(a, b) {
			t.Errorf("the nodes would restart: their arguments change from %q to %q", a, b)
		}
		if got := *after.sets["locks-holdfast"].Spec.Replicas; int(got) != n {
			t.Errorf("%d replicas, want %d", got, n)
		}
	}
	if o := decode(t, values{"membershipHook": values{"enabled": false}}, true); len(o.jobs) != 0 {
		t.Errorf("the hook is turned off, but there are %d jobs, want none", len(o.jobs))
	}
}

func TestChart_TLSAndSecrets(t *testing.T) {
	v := values{
		"tls":  values{"enabled": true, "existingSecret": "node-cert", "authClients": "yes"},
		"auth": values{"existingSecret": "mine"}, "clusterSecret": values{"existingSecret": "ours"},
		"sentinel": values{"enabled": true}, "antiAffinity": "preferred",
		"config": values{"snapshot-bytes": "256mb", "max-clients": 500},
	}
	o := decode(t, v, true)
	if len(o.secrets) != 0 {
		t.Errorf("the chart generates %d secrets although others are named", len(o.secrets))
	}
	pod := o.sets["locks-holdfast"].Spec.Template.Spec
	checkMounts(t, pod)
	checkServe(t, pod.Containers[0].Args)
	var names []string
	for _, volume := range pod.Volumes {
		names = append(names, volume.Secret.SecretName)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "mine node-cert ours" {
		t.Errorf("mounted secrets: %s", got)
	}
	for name, want := range map[string]string{
		"tls-cert-file": "/etc/holdfast/tls/tls.crt", "tls-auth-clients": "yes", "snapshot-bytes": "256mb",
		"max-clients": "500", "sentinel-addr": "0.0.0.0:26379",
	} {
		if got, _ := flag(pod.Containers[0].Args, name); got != want {
			t.Errorf("--%s=%s, want %s", name, got, want)
		}
	}
	hook := o.jobs["locks-holdfast-members"].Spec.Template.Spec
	checkMounts(t, hook)
	for _, name := range []string{"tls-ca-cert-file", "tls-cert-file", "tls-key-file", "password-file"} {
		if _, ok := flag(hook.Containers[0].Args, name); !ok {
			t.Errorf("the hook cannot log in: no --%s in %q", name, hook.Containers[0].Args)
		}
	}
	if got := pod.Affinity.PodAntiAffinity; len(got.PreferredDuringSchedulingIgnoredDuringExecution) != 1 ||
		len(got.RequiredDuringSchedulingIgnoredDuringExecution) != 0 {
		t.Errorf("anti-affinity: %+v", got)
	}
}

func TestChart_RefusesWrongValues(t *testing.T) {
	for want, v := range map[string]values{
		"they must be the same when the chart is installed": {"replicas": 5},
		"at least one node":                   {"replicas": 0, "initialReplicas": 0},
		"tls.existingSecret: name the Secret": {"tls": values{"enabled": true}},
		`not "required" or "preferred"`:       {"antiAffinity": "maybe"},
	} {
		if _, err := render(v, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %q", v, err, want)
		}
	}
	o := decode(t, values{"replicas": 4}, true)
	if !strings.Contains(o.notes, "4 nodes tolerate no more failures than 3") {
		t.Errorf("notes of four nodes: %s", o.notes)
	}
}

// checkServe reports flags that serve does not have.
func checkServe(t *testing.T, args []string) {
	t.Helper()
	if args[0] != "serve" {
		t.Fatalf("arguments: %q", args)
	}
	checkFlags(t, []string{"serve"}, args[1:])
}

// checkFlags reports flags that a command does not have. HOLDFAST_HELM_PROGRAM names
// the program: see the Makefile.
func checkFlags(t *testing.T, command, args []string) {
	t.Helper()
	path := os.Getenv("HOLDFAST_HELM_PROGRAM")
	if path == "" {
		path = filepath.Join("..", "..", "bin", "holdfast")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append(command, "--help")...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	help, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v (make build builds the program): %v\n%s", path, command, err, help)
	}
	for _, a := range args {
		name, _, _ := strings.Cut(a, "=")
		if strings.HasPrefix(name, "--") && !strings.Contains(string(help), name+" ") {
			t.Errorf("%v has no flag %s", command, name)
		}
	}
}
