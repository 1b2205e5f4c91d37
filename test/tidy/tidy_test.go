package tidy

import (
	"bytes"
	"go/ast"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestPackages_HaveComments(t *testing.T) {
	commented := make(map[string]bool)
	for _, s := range sources(t) {
		commented[s.dir()] = commented[s.dir()] || s.ast.Doc != nil
	}
	for _, dir := range slices.Sorted(maps.Keys(commented)) {
		if !commented[dir] {
			t.Errorf("%s: no file has a package comment", dir)
		}
	}
}

// mayImport lists, for each package, the packages of this module that it may
// import. For a package that is not listed, the entry of its nearest listed
// parent applies.
var mayImport = map[string][]string{
	"fsm/codec":       {},
	"fsm/container":   {},
	"fsm/geo":         {},
	"fsm/glob":        {},
	"fsm/hll":         {},
	"fsm/keyspace":    {"fsm/codec", "fsm/container", "fsm/number", "fsm/stream"},
	"fsm/library":     {"fsm/codec"},
	"fsm/lockdelay":   {"fsm/keyspace"},
	"fsm/locklist":    {"fsm/keyspace"},
	"fsm/number":      {},
	"fsm/rdb":         {"fsm/container", "fsm/number", "fsm/stream"},
	"fsm/stream":      {"fsm/codec", "fsm/container"},
	"fsm/subsequence": {},
	"fsm/command": {"fsm", "fsm/codec", "fsm/container", "fsm/geo", "fsm/glob", "fsm/hll", "fsm/keyspace",
		"fsm/locklist", "fsm/number", "fsm/rdb", "fsm/stream", "fsm/subsequence"},
	// Only tests of fsm import fsm/command: in other files, the import would be
	// a cycle.
	"fsm": {"fsm/codec", "fsm/command", "fsm/container", "fsm/glob", "fsm/keyspace", "fsm/library", "fsm/lockdelay",
		"fsm/locklist", "fsm/number", "fsm/rdb", "fsm/stream"},
	"rpc":                {},
	"certs":              {},
	"lock":               {},
	"lock/listing":       {},
	"lock/fence":         {},
	"lock/rueidisclient": {"lock"},
	"lock/examples":      {"lock", "lock/fence"},
	"cluster/failpoint":  {},
	"cluster/trace":      {"fsm"},
	"cluster/yield":      {},
	"tracing":            {"cluster/trace"},
	"cluster/fairshare":  {},
	"cluster/storage":    {"cluster/failpoint"},
	"script/numeral":     {},
	"script/luac":        {"cluster/yield", "script/numeral"},
	"script":             {"fsm", "fsm/library", "script/luac", "script/numeral"},
	"acl":                {"cluster/yield", "fsm", "fsm/codec", "fsm/command", "fsm/glob"},
	"backup":             {"fsm", "fsm/command"},
	"migrate":            {"fsm/container", "fsm/rdb", "fsm/stream", "verify/process"},
	"cluster/metrics":    {"fsm", "cluster/execution", "cluster/health", "cluster/machine"},
	"cluster/failover":   {"rpc", "cluster/health", "cluster/member", "cluster/transport"},
	"cluster/snapshot":   {"fsm", "cluster/machine"},
	"cluster/outcome":    {},
	"cluster/clientid":   {"fsm"},
	"cluster/events":     {"fsm"},
	"cluster/raftlog":    {"fsm", "cluster/failpoint", "cluster/storage"},
	"cluster/pulse":      {},
	"cluster/readindex":  {},
	"cluster/transport":  {"rpc", "cluster/raftlog"},
	"cluster/bytequeue":  {},
	"cluster/commitwait": {},
	"cluster/diskspace":  {"cluster/member"},
	"cluster/execution": {"acl", "fsm", "fsm/command", "fsm/locklist", "platform", "cluster/events",
		"cluster/fairshare", "cluster/machine", "cluster/yield"},
	"cluster/features": {"fsm", "cluster/health", "cluster/machine", "cluster/member"},
	"cluster/health":   {"cluster/diskspace"},
	"cluster/history":  {"fsm", "fsm/codec"},
	"cluster/verdict":  {"cluster/health"},
	"cluster/member":   {},
	"cluster/offline":  {"cluster/member", "cluster/storage", "fsm", "fsm/command"},
	"cluster/machine":  {"fsm", "fsm/command", "cluster/events", "cluster/raftlog"},
	"cluster": {"acl", "cluster/bytequeue", "cluster/clientid", "cluster/commitwait", "cluster/diskspace",
		"cluster/events",
		"cluster/execution", "cluster/failover", "cluster/failpoint", "cluster/fairshare", "cluster/features",
		"cluster/health", "cluster/history", "cluster/machine", "cluster/member", "cluster/metrics",
		"cluster/outcome", "cluster/pulse", "cluster/raftlog", "cluster/readindex", "cluster/snapshot",
		"cluster/storage", "cluster/transport", "cluster/trace", "cluster/verdict", "cluster/yield", "fsm",
		"fsm/command", "fsm/library", "platform", "rpc"},
	"platform":       {},
	"resp/clientmem": {"platform"},
	"resp/guard":     {"cluster/yield", "platform", "resp/clientmem"},
	"resp/output":    {"cluster/yield", "fsm", "resp/clientmem", "resp/guard", "resp/pubsub"},
	"resp/slow":      {},
	"resp/metrics":   {"fsm", "resp/clientmem", "resp/pubsub", "resp/wire"},
	"resp/locks":     {"cluster/history", "fsm", "fsm/number"},
	"resp/topology":  {},
	"resp/parameter": {},
	"resp/wire":      {},
	"resp/sentinel":  {"fsm", "resp/topology", "resp/wire"},
	"resp/slots":     {"fsm", "fsm/number", "resp/topology"},
	"resp/pubsub":    {"acl", "cluster/yield", "fsm", "fsm/glob"},
	"resp": {"acl", "cluster/history", "cluster/outcome", "cluster/yield", "fsm", "fsm/command", "fsm/number",
		"platform",
		"resp/clientmem", "resp/guard", "resp/locks", "resp/metrics", "resp/output", "resp/parameter",
		"resp/pubsub", "resp/sentinel", "resp/slots", "resp/slow", "resp/topology", "resp/wire"},
	"verify/respwire": {},
	"verify/checker":  {"verify/respwire"},
	"verify/replay":   {"fsm", "fsm/command", "cluster/storage", "verify/checker", "verify/process", "verify/respwire"},
	"verify/load":     {"verify/checker", "verify/respwire"},
	"verify/process":  {},
	"verify/neighbor": {"verify/load", "verify/process", "verify/respwire"},
	"verify/attack": {"platform", "rpc", "cluster/failpoint", "verify/checker", "verify/replay", "verify/load",
		"verify/neighbor", "verify/process", "verify/respwire"},
	"verify/report":     {"timeline", "verify/checker", "verify/attack"},
	"timeline":          {},
	"dashboard":         {"cluster/health", "cluster/verdict", "dashboard/traffic", "lock/listing", "timeline"},
	"dashboard/traffic": {},
	"cmd/flags":         {},
	"cmd/terminal":      {},
	"cmd/client":        {"certs", "cluster", "cluster/verdict", "cmd/flags", "verify/load", "verify/process"},
	"cmd/serve": {"acl", "certs", "cluster", "cluster/failpoint", "cluster/history", "cmd/flags",
		"cmd/terminal", "dashboard", "dashboard/traffic", "fsm", "fsm/command", "platform", "resp",
		"resp/guard", "resp/slots", "resp/topology", "rpc", "script", "tracing"},
	"cmd/operator": {"backup", "certs", "cluster", "cluster/member", "cluster/offline", "cluster/verdict", "cmd/client",
		"cmd/flags", "cmd/terminal", "fsm", "fsm/command", "migrate", "verify/load"},
	"cmd/locking": {"cmd/client", "cmd/flags", "cmd/terminal", "lock", "lock/listing", "verify/process"},
	"cmd/dev":     {"cluster", "cmd/client", "cmd/serve", "verify/process"},
	"cmd/top": {"cluster", "cluster/verdict", "cmd/client", "cmd/flags", "cmd/terminal", "lock/listing",
		"verify/load"},
	"cmd/verify": {"cmd/client", "cmd/flags", "cmd/terminal", "verify/attack", "verify/load", "verify/report"},
	"cmd/holdfast": {"cmd/dev", "cmd/flags", "cmd/locking", "cmd/operator", "cmd/serve", "cmd/terminal", "cmd/top",
		"cmd/verify",
		"fsm", "fsm/command", "resp", "resp/parameter"},
	"test": {"acl", "certs", "lock", "lock/fence", "lock/rueidisclient", "fsm", "fsm/command",
		"rpc", "cluster", "script", "cluster/failpoint", "cluster/outcome",
		"cluster/storage", "resp", "resp/guard", "resp/parameter", "verify/checker", "verify/respwire",
		"verify/replay", "verify/load", "verify/neighbor", "verify/process", "verify/attack", "verify/report",
		"test/..."},
}

// testsMayImport lists the packages that every test may import, in addition to
// those below test/. The listed packages import nothing of the product.
var testsMayImport = []string{"verify/respwire", "verify/process"}

// rule returns the entry of mayImport for a package.
func rule(dir string) ([]string, bool) {
	for p := dir; p != "."; p = filepath.ToSlash(filepath.Dir(p)) {
		if allowed, ok := mayImport[p]; ok {
			return allowed, true
		}
	}
	return nil, false
}

func TestImports_AreInTable(t *testing.T) {
	for _, s := range sources(t) {
		allowed, ok := rule(s.dir())
		if !ok {
			t.Errorf("%s: package %s is not in mayImport: add it", s.path, s.dir())
			continue
		}
		for _, spec := range s.ast.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			ours, ok := strings.CutPrefix(name, module+"/")
			if !ok || ours == s.dir() || slices.Contains(allowed, ours) {
				continue
			}
			if s.test() && (strings.HasPrefix(ours, "test/") || slices.Contains(testsMayImport, ours)) {
				continue
			}
			if slices.Contains(allowed, "test/...") && strings.HasPrefix(ours, "test/") {
				continue
			}
			t.Errorf("%s: %s may not import %s: see mayImport", s.at(spec.Pos()), s.dir(), ours)
		}
	}
}

// redigoUsers lists the files that may import redigo. These files test or
// measure redigo, or redsync with redigo. All other files speak RESP through
// verify/respwire.
var redigoUsers = []string{"test/bench/redsync.go", "test/clients/go_test.go", "test/compat/script_test.go",
	"test/discovery/go_test.go", "test/matrix/golang_test.go"}

func TestRedigo_IsNotAConvenience(t *testing.T) {
	used := make(map[string]bool)
	for _, s := range sources(t) {
		for _, spec := range s.ast.Imports {
			if !strings.HasPrefix(spec.Path.Value, `"github.com/gomodule/redigo/`) {
				continue
			}
			if !slices.Contains(redigoUsers, s.path) {
				t.Errorf("%s: %s may not import redigo: use verify/respwire", s.at(spec.Pos()), s.path)
				continue
			}
			used[s.path] = true
		}
	}
	for _, u := range redigoUsers {
		if !used[u] {
			t.Errorf("%s does not import redigo: remove it from redigoUsers", u)
		}
	}
}

func TestExported_HaveComments(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		for _, decl := range s.ast.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Name.IsExported() && decl.Doc == nil && exportedReceiver(decl) && !conventional(decl) {
					t.Errorf("%s: %s has no comment", s.at(decl.Pos()), decl.Name.Name)
				}
			case *ast.GenDecl:
				checkSpecs(t, s, decl)
			}
		}
	}
}

// exportedReceiver reports whether a function has no receiver or is a method of
// an exported type.
func exportedReceiver(decl *ast.FuncDecl) bool {
	if decl.Recv == nil {
		return true
	}
	typ := decl.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

// conventional reports whether a method needs no comment because its name is
// conventional: the methods of error and fmt.Stringer.
func conventional(decl *ast.FuncDecl) bool {
	name := decl.Name.Name
	return decl.Recv != nil && (name == "Error" || name == "Unwrap" || name == "String")
}

// checkSpecs requires a comment at each exported type. For an exported constant
// or variable it requires a comment at the name or at its block.
func checkSpecs(t *testing.T, s source, decl *ast.GenDecl) {
	t.Helper()
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() && spec.Doc == nil && (decl.Doc == nil || decl.Lparen.IsValid()) {
				t.Errorf("%s: type %s has no comment", s.at(spec.Pos()), spec.Name.Name)
			}
		case *ast.ValueSpec:
			if decl.Doc == nil && spec.Doc == nil && spec.Comment == nil && spec.Names[0].IsExported() &&
				!continued(decl, spec) {
				t.Errorf("%s: %s has no comment", s.at(spec.Pos()), spec.Names[0].Name)
			}
		}
	}
}

// continued reports whether a spec comes after one that has a comment in the
// same declaration. Such specs form a list under one sentence.
func continued(decl *ast.GenDecl, spec *ast.ValueSpec) bool {
	for i, other := range decl.Specs {
		if other == ast.Spec(spec) {
			for ; i >= 0; i-- {
				if v, ok := decl.Specs[i].(*ast.ValueSpec); ok && (v.Doc != nil || v.Comment != nil) {
					return true
				}
			}
		}
	}
	return false
}

// TestSleep_IsNotSynchronization checks that time.Sleep is called in two cases
// only:
//   - in a test that uses synctest, where it advances the fake clock;
//   - in a test, to pace a loop that polls a condition, if a comment on the same
//     line says what is polled.
//
// Other sleeps are forbidden for two reasons. In the program, a goroutine that
// sleeps cannot be stopped. In a test, the right length of the sleep depends on
// the speed of the machine.
func TestSleep_IsNotSynchronization(t *testing.T) {
	for _, s := range sources(t) {
		polls := make(map[int]bool) // lines with a comment that says what the loop polls
		for _, group := range s.ast.Comments {
			for _, c := range group.List {
				polls[s.fset.Position(c.Pos()).Line] = strings.HasPrefix(c.Text, "// polls ")
			}
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Sleep" {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if ok && pkg.Name == "time" && !(s.test() && polls[s.fset.Position(n.Pos()).Line]) && !bubbles(s) {
				t.Errorf("%s: time.Sleep: wait for a condition or a timer that can be stopped; a test that paces a "+
					"loop says \"// polls …\" on that line", s.at(n.Pos()))
			}
			return true
		})
	}
}

// bubbles reports whether a test file uses fake time.
func bubbles(s source) bool {
	return s.test() && slices.ContainsFunc(s.ast.Imports, func(spec *ast.ImportSpec) bool {
		return spec.Path.Value == `"testing/synctest"`
	})
}

func TestComments_PromiseNothing(t *testing.T) {
	promise := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	for _, s := range sources(t) {
		for _, group := range s.ast.Comments {
			for _, c := range group.List {
				if word := promise.FindString(c.Text); word != "" {
					t.Errorf("%s: %s: do it, or open an issue", s.at(c.Pos()), word)
				}
			}
		}
	}
}

// maxColumns is the maximum length of a line of code. A tab counts as four
// columns.
const maxColumns = 120

// wideFolders lists the folders whose code may have longer lines. The pages of
// docs/recipes show the code of test/recipes.
var wideFolders = []string{"test/recipes"}

// narrowTests lists the folders in which TestLines_AreShort also checks test
// files.
var narrowTests = []string{"test"}

// TestLines_AreShort checks the length of the lines. In test files, it allows a
// longer line in a raw string, because a script or a regular expression cannot
// always be broken into lines.
func TestLines_AreShort(t *testing.T) {
	for _, s := range sources(t) {
		if below(s.path, wideFolders) || s.test() && !below(s.path, narrowTests) {
			continue
		}
		raw := make(map[int]bool)
		if s.test() {
			raw = rawLines(s)
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(s.path)))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			if n > maxColumns && !raw[i+1] {
				t.Errorf("%s:%d: %d columns, at most %d are allowed", s.path, i+1, n, maxColumns)
			}
		}
	}
}

// below reports whether a file is in one of the folders.
func below(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(dir string) bool { return strings.HasPrefix(path, dir+"/") })
}

// rawLines returns the numbers of the lines that contain a part of a raw
// string.
func rawLines(s source) map[int]bool {
	lines := make(map[int]bool)
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && strings.HasPrefix(lit.Value, "`") {
			for i := s.fset.Position(lit.Pos()).Line; i <= s.fset.Position(lit.End()).Line; i++ {
				lines[i] = true
			}
		}
		return true
	})
	return lines
}

func TestPages_AreCurrent(t *testing.T) {
	for command, page := range map[string]string{"commands": "commands.md", "settings": "config.md"} {
		cmd := exec.Command("go", "run", "./cmd/holdfast", command)
		cmd.Dir = root
		var want, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &want, &errOut
		if err := cmd.Run(); err != nil {
			t.Fatalf("holdfast %s: %v\n%s", command, err, &errOut)
		}
		got, err := os.ReadFile(filepath.Join(root, "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want.Bytes()) {
			t.Errorf("docs/%s is out of date: run make docs", page)
		}
	}
}

// markdownLink matches a link to a file of the tree.
var markdownLink = regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)`)

func TestLinks_LeadSomewhere(t *testing.T) {
	paths, err := walk()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		if !strings.HasSuffix(p, ".md") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(p)))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range markdownLink.FindAllSubmatch(text, -1) {
			target := filepath.Join(root, filepath.Dir(filepath.FromSlash(p)), filepath.FromSlash(string(m[1])))
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which does not exist", p, m[1])
			}
		}
	}
}

// TestMakefile_TargetsHaveHelp checks that "make help" describes every target
// of the Makefile.
func TestMakefile_TargetsHaveHelp(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\.PHONY: (\S+)\n(.*)$`).FindAllSubmatch(text, -1) {
		if !strings.HasPrefix(string(m[2]), string(m[1])+":") || !strings.Contains(string(m[2]), " ## ") {
			t.Errorf("Makefile: target %s has no ## help", m[1])
		}
	}
}
